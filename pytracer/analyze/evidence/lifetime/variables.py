"""Python variables that held a tensor at the crash: what the user calls a storage, and which tensors had no memory.

The handler reads frames that may be damaged, so a variable is a possible holder of its tensor, not a proven one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.operators.compiled import compiled_call
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report import job as r

MODULE = "<module>"  # the function of a module's own lines
_MOST_EMPTY = 3
_OF_DYNAMO = Pattern(r"(?:tmp_\d+|graph_out_\d+|___\w+)(?![\w])")  # variables that Dynamo adds to a function
_OF_MODULE = Pattern(r"\._(?:parameters|buffers|modules)\['([A-Za-z_]\w*)'\]")


def variable_of(view: ProcessView, base: int, elements: int | None = None) -> str | None:
    """`` `idx` in densify() ``: the closest variable with a tensor whose storage begins at `base`.

    `elements`: only of a tensor with so many.
    """
    best = _closest(view, base, elements)
    return _words(best) if best is not None else None


def variable_name(view: ProcessView, base: int) -> str | None:
    """`idx`: the same variable without its function; None for a variable of a library."""
    return _program_name(_closest(view, base))


def tensor_variable(view: ProcessView, item: Argument) -> str | None:
    """`u`: the variable that holds that very part of its storage, else one of the same storage.

    None where all of those are other parts: `i, o, u = gates.chunk(3)` share one.
    """
    held = _held(view, item.base)
    same = [one for one in held if one.elements == item.elements and one.offset == item.offset]
    if same:
        return _program_name(min(same, key=_distance))
    older = [one for one in held if one.elements == item.elements and one.offset is None and item.offset]
    if older:
        best = min(older, key=_distance)
        alone = all(one.expression == best.expression for one in older if one.frame == best.frame)
        return _program_name(best) if alone else None
    return _program_name(min((one for one in held if one.elements != item.elements), key=_distance, default=None))


def registered_name(view: ProcessView, base: int) -> str | None:
    """`lstm.weight_hh_l0` of `parameter lstm.weight_hh_l0 of Net`: the latest name by which a model has that memory."""
    storage = view.space.live_around(base)
    named = view.space.uses.named.of_storage(storage, base)[0] if storage is not None else []
    latest = max((item.epoch for item in named if item.role == "parameter"), default=None)
    names = {item.name for item in named if item.role == "parameter" and item.epoch == latest}
    return parameter_name(names.pop()) if len(names) == 1 else None


def parameter_name(name: str) -> str:
    """`lstm.weight` of `parameter lstm.weight of Net`."""
    return name.partition(" of ")[0].partition(" ")[2]


def plain_expression(expression: str) -> str:
    """`self.table` of `self._parameters['table']`: as the program writes it."""
    return _OF_MODULE.sub(r".\1", expression)


def _closest(view: ProcessView, base: int, elements: int | None = None) -> Holder | None:
    """The user's name wins over those of torch's own frames."""
    return min((item for item in _held(view, base) if elements in (None, item.elements)), key=_distance, default=None)


def _held(view: ProcessView, base: int) -> list[Holder]:
    crash = view.crash
    return [item for item in crash.holders if item.base == base and item.frame is not None] if crash else []


def _program_name(item: Holder | None) -> str | None:
    if item is None or (item.frame is not None and is_library_file(item.frame.file)):
        return None
    return plain_expression(item.expression)


def tensors_without_memory(view: ProcessView) -> list[Holder]:
    """Local variables and arguments of the innermost frames whose tensors have no memory, each tensor's name once.

    Only of the innermost frame of the program, and of the library frames above it: what its callers hold was not passed
    to the native function.
    """
    crash = view.crash
    found: dict[str, Holder] = {}
    for item in crash.holders if crash is not None else ():
        if item.base == 0 and item.kind in ("local", "cell") and item.frame is not None and _is_innermost(view, item):
            found.setdefault(item.expression, item)
    own = [item for item in found.values() if item.frame is not None and not is_library_file(item.frame.file)]
    # `args[4]` of a function that only passes its arguments on is the same tensor.
    kept = [item for item in found.values() if not own or "[" not in item.expression or item in own]
    return kept[:_MOST_EMPTY]


def without_memory_words(item: Holder) -> str:
    """`` `running_var` in train_step() has 0 elements ``."""
    if item.elements == 0:
        return f"{_words(item)} has 0 elements"
    return f"{_words(item)} has {item.elements} elements and no memory: its storage was resized to 0"


def line_words(view: ProcessView) -> str:
    """`line 12` of the file that the headline names, or `the native code` where no Python line is known."""
    compiled = compiled_call(view)
    if compiled is not None and compiled.caller is not None and compiled.caller.line is not None:
        return f"line {compiled.caller.line}"
    frames = python_frames(view)
    frame = next((item for item in frames if not is_library_file(item.file)), next(iter(frames), None))
    if frame is None:
        return "the native code"
    own = frame.line is not None and not is_library_file(frame.file)
    return f"line {frame.line}" if own else place_words(python_frame(frame))


def headline_file(view: ProcessView) -> str | None:
    """The file of line_words(): that of the call of a compiled function, else of the program's innermost line."""
    compiled = compiled_call(view)
    if compiled is not None:
        return (compiled.caller or compiled.function).file
    return next((item.file for item in program_frames(view)), None)


def _words(item: Holder) -> str:
    function = item.frame.function if item.frame is not None and item.kind != "global" else MODULE
    where = f" in {function}()" if function != MODULE else ""
    return f"`{plain_expression(item.expression)}`{where}"


def _distance(item: Holder) -> tuple[bool, bool, int, bool]:
    """The program's before those of libraries, the crashed thread's first, plain variables before what is inside of
    something, locals before globals. Those that Dynamo adds to a compiled function are in no source.
    """
    library = item.frame is None or is_library_file(item.frame.file) or _OF_DYNAMO.match(item.expression) is not None
    return library, not item.own, item.expression.count(".") + item.expression.count("["), item.kind == "global"


def _is_innermost(view: ProcessView, item: Holder) -> bool:
    for frame in python_frames(view):
        if item.frame is not None and (frame.function, frame.file) == (item.frame.function, item.frame.file):
            return True
        if not is_library_file(frame.file):
            return False
    return False


def python_frames(view: ProcessView) -> Sequence[PythonFrame]:
    """The Python stack at the crash; the main thread's for a worker of a native pool, which runs no Python."""
    crash, snapshot = view.crash, view.process.snapshot
    if crash is None or crash.python_stack:
        return crash.python_stack if crash is not None else ()
    main = snapshot.main_pthread
    return next((frames for pthread, frames in crash.python_threads if pthread == main), ())


def program_frames(view: ProcessView) -> list[r.PythonFrame]:
    """Those of python_frames() that are of the program's files, the innermost first."""
    return [python_frame(item) for item in python_frames(view) if not is_library_file(item.file)]
