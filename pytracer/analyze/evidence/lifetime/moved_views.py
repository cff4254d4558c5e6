"""A NumPy view of a tensor that was given other memory since: `self.array` of `self.array = self.series.numpy()`.

A view holds its tensor, but not the memory: `share_memory_()`, `set_()` and an assignment to `.data` replace that below
it. So does sending the tensor to another process (a Queue, the arguments of a process, the data set of a DataLoader
whose workers are spawned): torch pickles it by moving its memory into shared memory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.releases import Release, ReleaseWay, Traced
from pytracer.analyze.evidence.lifetime.variables import parameter_name, program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line, place_of
from pytracer.analyze.evidence.native.fault_function import is_numpy
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.array_views import ArrayView, array_views, same_tensor
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, registered, set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, scope_of, spans, statement_at
from pytracer.analyze.naming import LineWords
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView

_HOPS, _QUOTED = 4, 60
_SENT = "Sending a tensor to another process moves its memory into shared memory"
# Completes "moves `x`" of the headline.
_BY: dict[ReleaseWay, tuple[str, str]] = {
    "sent": ("pickling for another process", "into shared memory"),
    "share-memory": ("share_memory_()", "into shared memory"),
    "shared": ("share_memory_() or pickling for another process", "into shared memory"),
    "module-to": ("Module.to() or its like", "to other memory"),
    "load-state-dict": ("load_state_dict(assign=True)", "to other memory"),
    "swap-tensors": ("swap_tensors()", "to other memory"),
    "set": ("set_()", "to other memory"),
    "resize": ("resize_()", "to other memory"),
    "data": ("an assignment to `.data`", "to other memory"),
}


class MovedView(msgspec.Struct, frozen=True):
    """NumPy used memory that `tensor` had until `way` moved it; `freed`: at which line, where that is the program's.

    `name` is a view of it since `made`: None where no line of the program is known to keep one.
    """

    way: ReleaseWay
    freed: LineWords | None
    tensor: str | None
    name: str | None
    made: LineWords | None
    value: str | None
    other_thread: bool
    in_items: bool = False
    """Whether its class has a `__getitem__`."""

    @property
    def summary(self) -> str:
        """Behind the headline."""
        by, where = _BY[self.way]
        at = f" at {self.freed}" if self.freed is not None else ""
        thread = ", on another thread," if self.other_thread else ""
        what = f"`{self.tensor}`" if self.tensor is not None else "the tensor that had it"
        view = f"`{self.name}` ({self.made}), a NumPy view of it," if self.name is not None else "a NumPy array of it"
        return f"{by}{at}{thread} moved {what} {where}, and {view} has the old address"

    @property
    def advice(self) -> str:
        """The change to make."""
        sent = self.way == "sent"
        why = f" {_SENT}, which a NumPy view of it does not follow." if sent else ""
        if self.name is None:
            before = "is sent" if sent else f"got other memory{f' at {self.freed}' if self.freed is not None else ''}"
            return (
                f"Make the array (numpy(), np.asarray()) where it is used, after the tensor {before}, or keep a copy "
                f"(`.copy()`).{why}"
            )
        copy = f"keep a copy at {self.made} (`{self.value}.copy()`)"
        if not sent:
            after = f"after {self.freed}" if self.freed is not None else f"after {_BY[self.way][0]}"
            return (
                f"Make `{self.name}` (`{self.value}`) again {after}, or {copy}: a NumPy view does not follow its "
                "tensor to other memory."
            )
        return (
            f"Keep only one of `{self.tensor}` and `{self.name}`, and call numpy() where the array is used"
            f"{' (in `__getitem__`)' * self.in_items}; or {copy}; or call share_memory_() on `{self.tensor}` before "
            f"{self.made}.{why}"
        )


def moved_view(view: ProcessView, release: Release | None) -> MovedView | None:
    """Of the freed storage at the fault; None where something else than NumPy used it."""
    storage = view.place.storage if view.place is not None else None
    if storage is None or release is None or not isinstance(release.by, Traced) or release.by.way not in _BY:
        return None
    if not is_numpy(view):
        return None
    way, freed = release.by.way, own_line(storage.freed_by) if storage.freed_by is not None else None
    made = own_line(storage.allocated_by)
    known = [python_frame(item) for item in (made, freed) if item is not None]
    files = program_files(view.process.snapshot, [*known, *program_frames(view)])
    origin = _Origin(files, made.file, made.line) if made is not None and made.file and made.line else None
    parameters = [parameter_name(item) for item in view.place.names] if view.place is not None else []
    found = {
        (file, item.line, item.name): item
        for file, tree in files.items()
        for item in array_views(tree)
        if _is_parameter(item, parameters) or (origin is not None and origin.is_of(file, item.of, item.line))
    }
    crash = view.crash
    other = crash is not None and bool(storage.freed_thread) and storage.freed_thread != crash.tid
    at = place_of(view, freed.file, freed.line) if freed is not None and way != "sent" else None
    if len(found) != 1:
        return MovedView(way, at, None, None, None, None, other)
    (file, line, name), item = next(iter(found.items()))
    value = shortened(item.value, _QUOTED)
    return MovedView(
        way, at, ast.unparse(item.of), name, place_of(view, file, line), value, other, _has_items(files[file], line)
    )


def _has_items(tree: ast.Module, line: int) -> bool:
    around = class_around(tree, scope_of(tree, line))
    return around is not None and any(getattr(item, "name", None) == "__getitem__" for item in around.body)


def _is_parameter(item: ArrayView, names: Sequence[str]) -> bool:
    """Whether it is a view of the named parameter: `model.table.weight` of `table.weight`."""
    return any(name and f".{ast.unparse(item.of)}".endswith(f".{name}") for name in names)


class _Origin(msgspec.Struct, frozen=True):
    """The line that allocated the memory, and which expressions of the program are known to have it."""

    files: Mapping[str, ast.Module]
    file: str
    line: int

    def is_of(self, file: str, value: ast.expr, line: int, hops: int = _HOPS) -> bool:
        """Whether an expression that is read at a line is the tensor that was made there."""
        tree, value = self.files[file], same_tensor(value)
        if file == self.file and spans(value, self.line) and isinstance(value, ast.Call):
            return True
        if isinstance(value, ast.Call):
            return any(self._spans(item) for item in self._functions(called_name(value)))
        name, scope = variable(value), scope_of(tree, line)
        bound = list(_bindings(tree, scope, name)) if name is not None else []
        if len(bound) != 1 or hops == 0:
            return False
        at, given = bound[0]
        statement = statement_at(tree, at)
        if file == self.file and _made_at(statement, self.line):
            return True
        return isinstance(given, ast.expr) and self.is_of(file, given, at, hops - 1)

    def _functions(self, name: str | None) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for file, tree in self.files.items():
            for item in nodes_of(tree):
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                    yield file, item

    def _spans(self, function: tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> bool:
        return function[0] == self.file and spans(function[1], self.line)


def _bindings(tree: ast.Module, scope: Scope, name: str) -> Iterator[tuple[int, ast.AST | None]]:
    """The lines that set a variable of a function, or an attribute anywhere in its class, with the values."""
    if not name.startswith("self."):
        yield from lines_that_bind(scope, name)
        return
    around = class_around(tree, scope)
    for node in nodes_of(around) if around is not None else ():
        held = registered(node)
        if held is not None and held[0] == name and isinstance(node, ast.Call):
            yield node.lineno, held[1]
        for target, value in set_by(node):
            if holds(target, name):
                yield target.lineno, value if variable(target) == name else None


def _made_at(statement: ast.stmt | None, line: int) -> bool:
    """Whether a line is one of the statement's own: what the body of a loop or a `with` makes, its target has not."""
    if statement is None or not spans(statement, line):
        return False
    body: list[ast.stmt] = getattr(statement, "body", [])
    return not body or line == statement.lineno or line < body[0].lineno
