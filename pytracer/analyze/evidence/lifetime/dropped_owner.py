"""The object that owned memory and unmapped it when it was collected: a local variable of a function that returned.

`multiprocessing.shared_memory.SharedMemory` and `mmap` unmap their memory in `__del__`. An array or tensor that was
made of the buffer keeps neither. The recorded stack of the munmap() shows that `__del__` ran, and at which line of the
program: the line that called the function, bound the variable anew, or let it go. The variable that held it may have
been given the array of its buffer: `store = np.ndarray(..., buffer=store.buf)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.replaced_owner import Replaced, replaced_owner
from pytracer.analyze.evidence.lifetime.unmapping import is_by_mmap, unmapping_of
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import innermost_of_program, python_frame
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Unmapping
from pytracer.report.job import PythonFrame

_FINALIZER = "__del__"
_QUOTED = 60
_ADDRESSES = ("data_ptr", "ctypes", "addressof", "__array_interface__", "cast", "byref")
_MAKERS = {"mmap": ("mmap", "memmap")}
_KEEPS = frozenset({"append", "add", "extend", "setdefault", "put", "register"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Local(msgspec.Struct, frozen=True):
    """`name`, which `made` binds (`line 29: ...`) in `function`; `returns`: the line that returns without it."""

    name: str
    made: str
    function: str
    returns: str | None
    value: str | None
    anew: bool = False
    address: bool = False
    """Whether only an address is returned, of which a copy keeps nothing, either."""


class DroppedOwner(msgspec.Struct, frozen=True):
    """An object of class `owner` was collected at `line` of the program; `local`: the variable that held it.

    `replaced`: it was collected because the line gives that variable something else, or deletes it.
    """

    owner: str
    line: str
    local: _Local | None
    replaced: Replaced | None = None

    @property
    def summary(self) -> str:
        """A clause, for the headline: why the memory was unmapped."""
        if self.replaced is not None:
            return self.replaced.summary(self.owner)
        if self.local is None:
            return f"the {self.owner} that owned it was collected at {self.line}"
        one = self.local
        if one.anew:
            return f"{one.made} binds `{one.name}` anew, and the {self.owner} that it held before was collected"
        return (
            f"`{one.name}` of {one.function}() ({one.made}), which owns it, was collected when {one.function}() "
            f"returned to {self.line}"
        )

    def advice(self, what: str) -> str:
        """What to keep, or copy. `what`: the tensor, or the array."""
        if self.replaced is not None:
            return self.replaced.advice(self.owner, what)
        if self.local is None:
            return (
                f"Keep the {self.owner} for as long as {what}: an array or tensor that is made of its buffer does not "
                f"keep it, and it was collected at {self.line}. Or copy the data (clone(), copy()) before."
            )
        one = self.local
        if one.anew:
            return (
                f"Keep each {self.owner} that `{one.name}` has held for as long as {what}, such as in a list: an array "
                f"or tensor that is made of its buffer does not keep it. Or copy the data (clone(), copy()) in the "
                "same round."
            )
        if one.address:
            return (
                f"Keep `{one.name}` of {one.function}() for as long as {what}{_how(one)}: the address that "
                f"{one.returns} returns (`{one.value}`) does not keep it."
            )
        ends = f"{one.returns} returns without it" if one.returns is not None else f"{one.function}() ends without it"
        copied = (
            f"return a copy at {one.returns} (`{one.value}`: clone() or copy())"
            if one.returns is not None and one.value is not None
            else f"copy the data (clone(), copy()) inside {one.function}()"
        )
        return (
            f"Keep `{one.name}` of {one.function}() for as long as {what}{_how(one)}: an array or tensor that is made "
            f"of its buffer does not keep it, and {ends}. Or {copied}: once {one.function}() has returned, it is too "
            "late."
        )


def _how(local: _Local) -> str:
    if local.function.endswith("__init__"):
        return f" (as `self.{local.name}`, or in a list of `self` where there are several)"
    return " (as an attribute, or returned with the data)"


def dropped_owner(view: ProcessView) -> DroppedOwner | None:
    """None where the memory at the fault was given back by a call of the program: `close()`, `with`."""
    unmapping = unmapping_of(view)
    found = _collected(view, unmapping) if unmapping is not None else None
    if found is None:
        return None
    owner, at = found
    files = program_files(view.process.snapshot, [at])
    held = list(_locals(view, files, owner, at))
    tree = files.get(at.file or "")
    makers = _MAKERS.get(owner, (owner,))
    replaced = replaced_owner(view, tree, at, makers) if tree is not None and not any(x.anew for x in held) else None
    if held and replaced is not None:
        held, replaced = [], None  # of which of both is not known
    text = line_text(view.process.snapshot, at) if not held else None
    line = f"{place_words(at)}{f' (`{shortened(text, _QUOTED)}`)' if text else ''}"
    return DroppedOwner(owner, line, held[0] if len(held) == 1 else None, replaced)


def _collected(view: ProcessView, unmapping: Unmapping) -> tuple[str, PythonFrame] | None:
    """The class of what was collected, and the line of the program that did it."""
    frames = [python_frame(frame) for frame in unmapping.stack]
    ends = [n for n, frame in enumerate(frames) if (frame.function or "").rpartition(".")[2] == _FINALIZER]
    if ends:
        owner = (frames[ends[-1]].function or "").rpartition(".")[0].rpartition(".")[2]
        at = innermost_of_program(frames[ends[-1] + 1 :])
        return (owner, at) if owner and at is not None else None
    first = next(iter(frames), None)
    if first is None or is_library_file(first.file) or not is_by_mmap(view, unmapping):
        return None
    tree = program_files(view.process.snapshot, [first]).get(first.file or "")
    if tree is None or first.line is None:
        return None
    calls = [called_name(call) for call in calls_on(tree, first.line)]
    around = [item for item in nodes_of(tree) if isinstance(item, ast.With) and _closes_at(item, first.line)]
    return None if around or any(name in ("close", "__exit__", "resize") for name in calls) else ("mmap", first)


def _closes_at(item: ast.With, line: int) -> bool:
    """The line of a `with` is that of its end, too."""
    return item.lineno == line


def _locals(view: ProcessView, files: Mapping[str, ast.Module], owner: str, at: PythonFrame) -> Iterator[_Local]:
    tree = files.get(at.file or "")
    if tree is None or at.line is None:
        return
    calls = calls_on(tree, at.line)
    names = {called_name(call) for call in calls}
    for file, module in files.items():
        for function in (
            item for item in nodes_of(module) if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
        ):
            around = class_around(module, function)
            name = around.name if function.name == "__init__" and around is not None else function.name
            if name not in names:
                continue
            for variable in _held(function, owner):
                yield _local(view, file, function, around, variable, owner)
    for statement in nodes_of(tree):
        if isinstance(statement, ast.Assign) and statement.lineno == at.line and _makes(statement.value, owner):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    text = shortened(ast.unparse(statement), _QUOTED)
                    yield _Local(target.id, f"line {at.line} (`{text}`)", at.function or "", None, None, anew=True)


def _held(function: _Function, owner: str) -> Iterator[str]:
    """Local variables that hold one, and that nothing else keeps."""
    names = {node.id for node in own_nodes(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for name in sorted(names):
        if any(_makes(value, owner) for _, value in lines_that_bind(function, name)) and not _kept(function, name):
            yield name


def _makes(value: ast.AST | None, owner: str) -> bool:
    return isinstance(value, ast.Call) and called_name(value) in _MAKERS.get(owner, (owner,))


def _kept(function: _Function, name: str) -> bool:
    """Whether it goes elsewhere: returned, set as an attribute or item, put into a container."""
    for node in own_nodes(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return True
        values: list[ast.expr | None] = []
        if isinstance(node, (ast.Return, ast.Yield)) or (isinstance(node, ast.Assign) and _goes_into(node.targets)):
            values = [node.value]
        elif isinstance(node, ast.Call) and called_name(node) in _KEEPS:
            values = [*node.args]
        if any(_is_whole(item, name) for item in values):
            return True
    return False


def _goes_into(targets: Sequence[ast.expr]) -> bool:
    """Whether an attribute or item is set."""
    return not all(isinstance(item, ast.Name) for item in targets)


def _is_whole(node: ast.expr | None, name: str) -> bool:
    """The variable itself, also in a tuple; not its buffer."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_is_whole(item, name) for item in node.elts)
    if isinstance(node, ast.Dict):
        return any(_is_whole(item, name) for item in node.values)
    if isinstance(node, ast.Call):
        return any(_is_whole(item, name) for item in passed_values(node))
    return isinstance(node, ast.Name) and node.id == name


def _local(
    view: ProcessView, file: str, function: _Function, around: ast.ClassDef | None, name: str, owner: str
) -> _Local:
    bound = next(line for line, value in lines_that_bind(function, name) if _makes(value, owner))
    value = next(value for line, value in lines_that_bind(function, name) if line == bound)
    text = shortened(f"{name} = {ast.unparse(value)}" if value is not None else name, _QUOTED)
    returned = [item for item in own_nodes(function) if isinstance(item, ast.Return) and item.value is not None]
    last = returned[0] if len(returned) == 1 else None
    return _Local(
        name,
        place_of(view, file, bound).then(f": `{text}`"),
        f"{around.name}.{function.name}" if around is not None else function.name,
        place_of(view, file, last.lineno) if last is not None else None,
        shortened(ast.unparse(last), _QUOTED) if last is not None else None,
        address=last is not None and any(_takes_address(item) for item in nodes_of(last)),
    )


def _takes_address(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    return name in _ADDRESSES
