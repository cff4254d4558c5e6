"""A variable that is None, where the line passes it to native code that takes a pointer.

pybind11 and ctypes turn None into a null pointer, and few functions check for one. None itself is not recorded. It is
said only where nothing else fits: the function that was called used a null argument, and of what the line passes, all
but one variable cannot be None by its recorded value or by the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.returns import Named, returns_none_at
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_BINDINGS = Pattern(r"(?:pybind11::cpp_function::|nanobind::detail::nb_func_)")
_REGISTERS = (("rdi", "rsi", "rdx", "rcx", "r8", "r9"), tuple(f"x{n}" for n in range(8)))  # of the arguments
_LOOKS_UP = ("find", "get", "search", "match", "lookup", "pop", "fullmatch")
_NEVER_NONE = frozenset({"byref", "addressof", "cast", "data_ptr", "encode", "len", "list", "tuple", "str", "bytes"})
_VALUES = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.BinOp, ast.Compare, ast.Lambda)
_QUOTED = 60


class PassedNone(msgspec.Struct, frozen=True):
    """`text`, which `line` passes, is None. `origin`: what made it (`line 38: ...`). `why`: how that can give None."""

    text: str
    line: int
    origin: str
    why: str
    is_set: bool
    """Whether the source sets None, and nothing else sets it."""

    @property
    def summary(self) -> str:
        """For the headline."""
        return f"`{self.text}`, which line {self.line} passes, is None ({self.origin})"

    @property
    def advice(self) -> str:
        """Where to look, and what to test."""
        if self.is_set:
            return f"Set `{self.text}` before line {self.line}: {self.why}, and the native function does not check it."
        return (
            f"Test `{self.text}` for None before line {self.line} passes it: {self.why}, and the native function uses "
            "the null pointer that it gets for None."
        )


def passed_none(view: ProcessView) -> PassedNone | None:
    """None where another argument, or something inside of one, may have been the null pointer."""
    instruction, innermost = view.instruction, next(iter(python_frames(view)), None)
    if instruction is None or instruction.base is None or instruction.base_value != 0 or innermost is None:
        return None
    if is_library_file(innermost.file) or find_operator(view) is not None or not _is_called(view):
        return None
    back = Slice(view.process.snapshot, program_frames(view))
    spot = back.spot(0)
    calls = [call for call in calls_on(spot.tree, spot.line) if not _is_of_python(call)] if spot is not None else []
    if spot is None or len(calls) != 1 or any(isinstance(item, ast.Starred) for item in calls[0].args):
        return None
    known = _known(view)
    given = passed_values(calls[0])
    made = [(item, back.made(item, spot, calls=False)) for item in given if ast.unparse(item) not in known]
    possible = [(item, one) for item, one in made if _may_be_none(view, one)]
    if len(possible) != 1:
        return None
    item, one = possible[0]
    is_set = isinstance(one.node, ast.Constant)
    if isinstance(item, ast.Constant) or not (is_set or _is_argument(view, instruction.base, given.index(item))):
        return None  # `None` is written there, or another pointer may have been null
    origin = _origin(view, one)
    return PassedNone(shortened(ast.unparse(item), _QUOTED), spot.line, *origin, is_set) if origin is not None else None


def _is_called(view: ProcessView) -> bool:
    """Whether a binding called the function at the fault, or a method of the same class that it called."""
    called = _called(view)
    classes = {name.rpartition("::")[0] for name in called}
    return len(called) == 1 or (len(classes) == 1 and classes != {""})


def _called(view: ProcessView) -> list[str]:
    """The functions between the binding's own and the fault, innermost first; none where no binding is known."""
    names: list[str] = []
    for frame in own_frames(view):
        if _BINDINGS.match(frame.function or "") or image_name(frame.image).startswith("libffi."):
            return names
        if frame.function is None or frame.found == "scanned":
            return []
        names.append(function_words(frame.function))
    return []


def _is_argument(view: ProcessView, register: str, place: int) -> bool:
    """Whether the null pointer is still in the register of that argument; pybind11 may pass the object before it."""
    by_ctypes = any(image_name(frame.image).startswith("libffi.") for frame in own_frames(view))
    at = next((names.index(register) for names in _REGISTERS if register in names), None)
    return at is not None and at - place in ((0,) if by_ctypes else (0, 1))


def _is_of_python(call: ast.Call) -> bool:
    """`print(...)` around it."""
    return isinstance(call.func, ast.Name) and call.func.id in ("print", "len", "str", "int", "float", "bool", "list")


def _known(view: ProcessView) -> set[str]:
    """Expressions of the frame that held a number, a tensor or an array."""
    crash, frame = view.crash, next(iter(program_frames(view)), None)
    if crash is None or frame is None:
        return set()
    held = [(item.expression, item.frame) for item in crash.numbers]
    held += [(item.expression, item.frame) for item in crash.arrays]
    held += [(item.expression, item.frame) for item in crash.holders if item.frame is not None]
    return {name for name, at in held if (at.file, at.line) == (frame.file, frame.line)}


def _may_be_none(view: ProcessView, made: Made) -> bool:
    node = made.node
    if isinstance(node, ast.Constant):
        return node.value is None
    if isinstance(node, _VALUES):
        return False
    if not isinstance(node, ast.Call):
        return True
    name = called_name(node) or ""
    if name[:1].isupper() or name in _NEVER_NONE:
        return False  # a class
    own = [*_functions(view, name)]
    return not own or any(returns_none_at(item) is not None for _, item in own)


def _functions(view: ProcessView, name: str) -> Iterator[tuple[str, Named]]:
    for file, tree in program_files(view.process.snapshot, program_frames(view)).items():
        for item in nodes_of(tree):
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                yield file, item


def _origin(view: ProcessView, made: Made) -> tuple[LineWords, str] | None:
    """Where it was made, and how that can be None; nothing of what is not known to be a call or None."""
    statement = next((item for item in _assignments(made) if spans(item, made.line)), None)
    text = shortened(ast.unparse(statement if statement is not None else made.node), _QUOTED)
    place = place_of(view, made.spot.file, made.line)
    if isinstance(made.node, ast.Constant):
        return place.then(f": `{text}`"), f"{place} (`{text}`) is all that sets it"
    if not isinstance(made.node, ast.Call):
        return None
    called = shortened(ast.unparse(made.node), _QUOTED)
    own = next(_functions(view, called_name(made.node) or ""), None)
    if own is None:
        found = (called_name(made.node) or "").lower().startswith(_LOOKS_UP)
        why = "returns None where it finds nothing" if found else "returned None"
        return place.then(f": `{text}`"), f"`{called}` at {place} {why}"
    file, function = own
    at = returns_none_at(function)
    if at is None:
        return None
    ends = f"returns None at {place_of(view, file, at[0])}" if at[1] else f"ends without a value at line {at[0]}"
    return place.then(f": `{text}`"), f"{function.name}() {ends}"


def _assignments(made: Made) -> Iterator[ast.stmt]:
    return (item for item in own_nodes(made.spot.scope) if isinstance(item, (ast.Assign, ast.AnnAssign)))
