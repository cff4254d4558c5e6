"""A tensor that one thread frees or replaces below a lock, and that another one uses without taking it.

torch's operators run without the GIL, and a slice has the memory of its tensor: neither keeps `resize_()` away. The
lock is read from the source: the `with` around the line that freed the memory, or around each call of its function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line, place_of
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    own_nodes,
    qualified_name,
    scope_of,
    statement_at,
    withs_around,
)
from pytracer.analyze.naming import LineWords
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import PythonFrame

_LOCKS = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_OTHERS = 3


class UnlockedUse(msgspec.Struct, frozen=True):
    """`lock` is taken at `taken` around what frees `freed`, both as a sentence has them; `reader` at `read` takes none.

    `others`: other methods of the class that read it so, each with the line.
    """

    lock: str
    taken: LineWords
    freed: str
    reader: str
    read: LineWords
    others: tuple[tuple[str, LineWords], ...]

    @property
    def summary(self) -> str:
        """Behind the headline's words about who freed it."""
        return f"that is done below {self.lock} ({self.taken}), which {self.reader}() does not take"

    @property
    def advice(self) -> str:
        """The change to make."""
        more = [f"{name}() ({line})" for name, line in self.others]
        verb = "do" if len(more) > 1 else "does"
        others = f" So {verb} {list_words(more)}: take it there, too." if more else ""
        return (
            f"Take {self.lock} in {self.reader}() around {self.read} and all that uses {self.freed} there, as "
            f"{self.taken} does: it reads {self.freed} without.{others} Or make it as large as it can get at first, "
            "and do not resize or replace in place what another thread reads: torch's operators run without the GIL, "
            "and a slice does not keep the memory."
        )


def unlocked_use(view: ProcessView, storage: Storage | None = None) -> UnlockedUse | None:
    """None where no lock is around what freed the memory, or the thread that used it holds one of that name.

    `storage`: that was freed, where it is not the one at the fault.
    """
    if storage is None and view.place is not None:
        storage = view.place.storage
    freed = own_line(storage.freed_by) if storage is not None and storage.freed_by is not None else None
    frames = program_frames(view)
    if freed is None or not freed.line or not freed.file or not frames:
        return None
    files = program_files(view.process.snapshot, [python_frame(freed), *frames])
    tree = files.get(freed.file)
    if tree is None:
        return None
    scope = scope_of(tree, freed.line)
    name = _replaced(tree, freed.line)
    taken = _lock(files, freed.file, scope, freed.line)
    if name is None or taken is None:
        return None
    lock, file, line = taken
    if any(_takes(files, frame, lock) for frame in frames):
        return None
    reader = _reader(files, frames, name)
    if reader is None:
        return None
    at, there = files[file], files[reader.file or ""]
    words = place_of(view, file, line).then(f" in {qualified_name(at, scope_of(at, line))}")
    reading = scope_of(there, reader.line or 0)
    function = qualified_name(there, reading)
    others = tuple(
        (qualified_name(tree, method), place_of(view, freed.file, number))
        for method, number in _other_readers(files, tree, scope, name, lock)
        if qualified_name(tree, method) != function
    )
    read = place_of(view, reader.file, reader.line)
    owner, inside = class_around(tree, scope), class_around(there, reading)
    elsewhere = owner.name if owner is not None and owner is not inside else None
    lock, name = (_shown(item, elsewhere) for item in (lock, name))
    return UnlockedUse(lock, words, name, function, read, others[:_MOST_OTHERS])


def _shown(name: str, owner: str | None) -> str:
    """`` `self.lock` ``; `` `lock` of Memory `` for a reader in another class."""
    return (
        f"`{name}`" if owner is None or not name.startswith("self.") else f"`{name.removeprefix('self.')}` of {owner}"
    )


def _replaced(tree: ast.Module, line: int) -> str | None:
    """`self.obs` of `self.obs.resize_(rows, 8)`, and of `self.obs = torch.empty(...)`."""
    statement = statement_at(tree, line)
    found: set[str] = set()
    for node in nodes_of(statement) if statement is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            owner = owner.func.value if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) else owner
            if node.func.attr.endswith("_") and (name := variable(owner)) is not None:
                found.add(name)
        elif isinstance(node, ast.Assign):
            found |= {name for item in node.targets if (name := variable(_whole(item))) is not None}
    attributes = {item for item in found if item.startswith("self.")}
    return attributes.pop() if len(attributes) == 1 else None


def _whole(target: ast.expr) -> ast.expr:
    """`self.rows` of `self.rows.data = ...`."""
    return target.value if isinstance(target, ast.Attribute) and target.attr == "data" else target


def _lock(files: Mapping[str, ast.Module], file: str, scope: Scope, line: int) -> tuple[str, str, int] | None:
    """The lock around a line, with the line of its `with`; else the one around each call of its function."""
    own = next(_locks(files[file], line), None)
    if own is not None:
        return own[0], file, own[1]
    if not isinstance(scope, _FUNCTIONS):
        return None
    calls = [(at, next(_locks(tree, call.lineno), None)) for at, tree, call in calls_named(files, scope.name)]
    texts = {found[0] if found is not None else None for _, found in calls}
    if len(texts) != 1 or None in texts:
        return None
    at, found = calls[0]
    return (found[0], at, found[1]) if found is not None else None


def _locks(tree: ast.Module, line: int) -> Iterator[tuple[str, int]]:
    """The locks whose `with` a line is in, innermost last, each with the line of the `with`."""
    for node in withs_around(tree, line):
        for item in node.items:
            text = ast.unparse(item.context_expr)
            if variable(item.context_expr) is not None and _is_lock(tree, text):
                yield text, node.lineno


def _is_lock(tree: ast.Module, text: str) -> bool:
    """Whether a line makes it one."""
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called_name(node.value) in _LOCKS
        and any(ast.unparse(target) == text for target in node.targets)
        for node in nodes_of(tree)
    )


def _takes(files: Mapping[str, ast.Module], frame: PythonFrame, lock: str) -> bool:
    """Whether a frame is inside of a `with` of a lock of that name, or its function acquires one."""
    tree = files.get(frame.file or "")
    if tree is None or frame.line is None:
        return True
    name = lock.rpartition(".")[2]
    if any(
        ast.unparse(item.context_expr).rpartition(".")[2] == name
        for node in withs_around(tree, frame.line)
        for item in node.items
    ):
        return True
    return any(
        isinstance(node, ast.Call) and called_name(node) == "acquire" for node in own_nodes(scope_of(tree, frame.line))
    )


def _reader(files: Mapping[str, ast.Module], frames: list[PythonFrame], name: str) -> PythonFrame | None:
    """The innermost frame whose function reads that attribute, of an object of whatever variable."""
    attribute = name.removeprefix("self.")
    for frame in frames:
        tree = files.get(frame.file or "")
        scope = scope_of(tree, frame.line) if tree is not None and frame.line is not None else None
        if scope is not None and any(_reads(node, attribute) for node in own_nodes(scope)):
            return frame
    return None


def _reads(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)


def _other_readers(
    files: Mapping[str, ast.Module], tree: ast.Module, scope: Scope, name: str, lock: str
) -> Iterator[tuple[ast.FunctionDef, int]]:
    """Methods of the class that read it where no lock is taken; not those that the constructor alone may run."""
    owner = class_around(tree, scope)
    for method in owner.body if owner is not None else ():
        if not isinstance(method, ast.FunctionDef) or method is scope or method.name == "__init__":
            continue
        own = (node for node in own_nodes(method) if _reads(node, name.removeprefix("self.")))
        lines = [node.lineno for node in own if isinstance(node, ast.Attribute)]
        free = [line for line in lines if lock not in [text for text, _ in _locks(tree, line)]]
        locked = _lock(files, next(file for file, one in files.items() if one is tree), method, method.lineno)
        if free and locked is None and not _sizes_only(method, name):
            yield method, free[0]


def _sizes_only(method: ast.FunctionDef, name: str) -> bool:
    """`len(self.obs)` and `self.obs.shape`, which read no element."""
    parents = {id(child): node for node in nodes_of(method) for child in ast.iter_child_nodes(node)}
    uses = [node for node in nodes_of(method) if isinstance(node, ast.Attribute) and ast.unparse(node) == name]
    return all(_is_size(parents.get(id(node))) for node in uses)


def _is_size(around: ast.AST | None) -> bool:
    if isinstance(around, ast.Call):
        return called_name(around) == "len"
    return isinstance(around, ast.Attribute) and around.attr in ("shape", "dtype", "device", "ndim", "size", "numel")
