"""A file that the reading methods of a class take from what was opened before they ran: one place for all its copies.

By syntax alone, from a method such as `__getitem__` over the functions and objects of the program that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.data.guarded_reads import read_under_lock
from pytracer.analyze.evidence.failing.data.opened_files import Opened, lineage, opened_file
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes

_READS = frozenset({"read", "readinto", "readline", "readlines", "read1"})
_NO_USE = frozenset({"close", "fileno", "keys", "namelist", "infolist", "getnames", "getmembers", "isOpened"})
_MODES = Pattern(r"[wax]")
_METHODS = 24  # that are followed


class OpenHandle(msgspec.Struct, frozen=True):
    """`name`: as the reader writes it. `opened`: the call that opened it. `reads`: the line that uses it.

    `plain`: a file with bytes that the program itself seeks and reads; else an archive, a table, a video.
    """

    name: str
    opened: Made
    reads: Spot
    plain: bool


@dataclass
class _Reached:
    """What a method calls of the program: its functions, each with its place."""

    spots: list[Spot] = field(default_factory=list)

    def add(self, spot: Spot) -> None:
        """Once each."""
        if all(item.scope is not spot.scope for item in self.spots) and len(self.spots) < _METHODS:
            self.spots.append(spot)


def shared_handle(files: Mapping[str, ast.Module], back: Slice, owner: str) -> OpenHandle | None:
    """Of what `__getitem__` of a dataset reads; None without such a file, with several, or behind a lock.

    `owner`: its class; of one that is not the program's, such as a Subset, all that have the method come into question.
    """
    classes = [item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef)]
    named = [item for item in classes if item.name == owner]
    found: dict[tuple[str | None, int], OpenHandle] = {}
    for kind in named or classes:
        for getter in (*_methods(files, kind, "__getitem__"), *_methods(files, kind, "__iter__")):
            for item in _handles(files, back, kind, getter):
                found.setdefault((item.opened.spot.file, item.opened.line), item)
    handle = next(iter(found.values())) if len(found) == 1 else None
    return None if handle is None or read_under_lock(files.values(), handle.name) else handle


def _handles(files: Mapping[str, ast.Module], back: Slice, kind: ast.ClassDef, getter: Spot) -> Iterator[OpenHandle]:
    reached = _Reached()
    reached.add(getter)
    for spot in reached.spots:  # grows while it is gone through
        for item in own_nodes(spot.scope):
            called = [*_called(files, back, kind, item, spot)] if isinstance(item, ast.Call) else []
            if isinstance(item, ast.Subscript) and variable(item.value) is not None:  # `self.base[index]`
                called = [*_methods(files, _class_of(files, back, item.value, spot), "__getitem__")]
            for found in called:
                reached.add(found)
    for spot in reached.spots:
        for name in _names(spot):
            uses = [*_uses(spot, name)]
            opened = _opened(files, back, name, spot, reached) if uses else None
            if opened is None:
                continue
            plain = opened.kind != "archive"
            if plain and not (_is_moved(reached, name) and _is_read_from(opened.call)):
                continue
            yield OpenHandle(name, opened.made, structs.replace(spot, line=uses[0].lineno), plain)


def _called(
    files: Mapping[str, ast.Module], back: Slice, kind: ast.ClassDef, call: ast.Call, spot: Spot
) -> Iterator[Spot]:
    """The functions of the program that a call may mean: `self.read()`, `read(path)`, `self.store.read()`.

    Of a method that other classes have, too, that of `kind`, whose object it is.
    """
    spot = structs.replace(spot, line=call.lineno)
    function = back.function(call, spot)
    if function is not None:
        yield structs.replace(function[1], scope=function[0], line=function[0].lineno)
    elif isinstance(call.func, ast.Attribute):
        base = call.func.value
        of_self = isinstance(base, ast.Name) and base.id == "self"
        yield from _methods(files, kind if of_self else _class_of(files, back, base, spot), call.func.attr)


def _methods(files: Mapping[str, ast.Module], owner: ast.ClassDef | None, name: str) -> Iterator[Spot]:
    method = _method(files, owner, name) if owner is not None else None
    if method is not None:
        yield Spot(method[0], files[method[0]], method[1], method[1].lineno)


def _class_of(files: Mapping[str, ast.Module], back: Slice, node: ast.expr, spot: Spot) -> ast.ClassDef | None:
    made = back.made(node, spot, calls=True).node
    name = called_name(made) if isinstance(made, ast.Call) else None
    found = [item for tree in files.values() if name and (item := class_named(tree, name)) is not None]
    return found[0] if len(found) == 1 else None


def _method(files: Mapping[str, ast.Module], owner: ast.ClassDef, name: str) -> tuple[str, ast.FunctionDef] | None:
    """Its own, or that of a class of the program that it is derived from."""
    for file, kind in lineage(files, owner):
        own = next((item for item in kind.body if isinstance(item, ast.FunctionDef) and item.name == name), None)
        if own is not None:
            return file, own
    return None


def _names(spot: Spot) -> list[str]:
    """Variables and attributes that a function reads."""
    read = (variable(item) for item in own_nodes(spot.scope) if isinstance(item, (ast.Name, ast.Attribute)))
    return [*dict.fromkeys(name for name in read if name is not None and name != "self")]


def _uses(spot: Spot, name: str) -> Iterator[ast.expr]:
    """Where a function takes data from it: `f.read()`, `f[i]`, `np.fromfile(f)`."""
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Call):
            base = item.func.value if isinstance(item.func, ast.Attribute) else None
            own = base is not None and variable(base) == name and called_name(item) not in _NO_USE
            if own or (called_name(item) != "len" and any(variable(part) == name for part in passed_values(item))):
                yield item
        elif isinstance(item, ast.Subscript) and variable(item.value) == name and isinstance(item.ctx, ast.Load):
            yield item


def _is_moved(reached: _Reached, name: str) -> bool:
    """Whether the program seeks in it, and reads it after that."""
    calls = [item for spot in reached.spots for item in own_nodes(spot.scope) if isinstance(item, ast.Call)]
    own = [item for item in calls if isinstance(item.func, ast.Attribute) and variable(item.func.value) == name]
    seeks = any(called_name(item) == "seek" for item in own)
    reads = any(called_name(item) in _READS for item in own)
    passed = any(variable(part) == name for item in calls for part in passed_values(item))
    return seeks and (reads or passed)


def _is_read_from(call: ast.Call) -> bool:
    """Whether open() is not told to write."""
    mode = keyword_value(call, "mode") or next(
        (item for item in call.args[:2] if isinstance(item, ast.Constant) and len(str(item.value)) <= len("rb+")), None
    )
    told = mode.value if isinstance(mode, ast.Constant) else "r"
    return not (isinstance(told, str) and _MODES.search(told) and "+" not in told)


def _opened(files: Mapping[str, ast.Module], back: Slice, name: str, spot: Spot, reached: _Reached) -> Opened | None:
    """What it has open, by a function that does not run with the reader; None of what checks what it reads."""
    found = opened_file(files, back, name, structs.replace(spot, depth=None))
    if found is None or found.kind == "store" or any(item.scope is found.made.spot.scope for item in reached.spots):
        return None
    return found
