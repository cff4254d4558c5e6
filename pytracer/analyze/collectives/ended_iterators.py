"""An iterator of the program's own that a method of it ends early: early stopping by a value that each rank has.

`for epoch in counter:` ends on one rank where `counter.update(score)` sets what `__next__` asks before StopIteration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TypeGuard

import msgspec

from pytracer._text import capital
from pytracer.analyze.collectives.deciders import Decider
from pytracer.analyze.collectives.rank_branches import asks_rank
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in
from pytracer.report.job import PythonFrame

_ITERATES = ("__next__", "__iter__")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Method = ast.FunctionDef | ast.AsyncFunctionDef


class EndedIterator(msgspec.Struct, frozen=True):
    """`subject`: for the headline, behind which rank had left the loop; `advice`: what to change."""

    subject: str
    advice: str


def ended_iterator(there: Side, by: Decider) -> EndedIterator | None:
    """Of a loop over an object whose end one method alone sets, which one line of the program calls."""
    frames, loop = there.way[::-1], by.node
    if by.frame not in frames or not isinstance(loop, (ast.For, ast.AsyncFor)):
        return None
    snapshot, slice_ = there.view.process.snapshot, Slice(there.view.process.snapshot, frames)
    spot = slice_.spot(frames.index(by.frame))
    made = slice_.made(loop.iter, spot, calls=True) if spot is not None else None
    kind = slice_.defined(made.node.func, made.spot) if made is not None and isinstance(made.node, ast.Call) else None
    if kind is None or not isinstance(kind[0], ast.ClassDef):
        return None
    files = program_files(snapshot, frames)
    setters = {(item[1].name, item[2]): item for item in _setters(files, kind[0])}
    calls = [(file, tree, item) for file, tree in files.items() for item in nodes_of(tree) if _calls(item, setters)]
    if len({name for name, _ in setters}) != 1 or len(calls) != 1:
        return None
    (file, method, line), (at, tree, call) = next(iter(setters.values())), calls[0]
    here = there.way[-1].file
    sets, given = line_in(file, line, here), quoted(snapshot, PythonFrame(file=at, line=call.lineno), call.lineno)
    where = line_in(at, call.lineno, here)
    alone = _of_one_rank(files, tree, call.lineno)
    below = f" below `if {short(source(alone.test))}:` (line {alone.lineno}) alone" if alone is not None else ""
    change = (
        f"Call {method.name}() on all ranks, outside of that branch, with one value for all"
        if alone is not None
        else f"Give {method.name}() one value on all ranks"
    )
    return EndedIterator(
        f"; {method.name}(), which {where} ({given}) calls{below}, can end it",
        f"{capital(where)} ({given}) calls {method.name}(){below}, which sets at {sets} what ends that loop. {change} "
        "(all_reduce() it before); or let one rank decide and broadcast() the decision in each round, so that all "
        "leave the loop together.",
    )


def _setters(files: Mapping[str, ast.Module], owner: ast.ClassDef) -> Iterator[tuple[str, _Method, int]]:
    """The methods that set what ends the iteration, apart from those that iterate or begin it, and the line."""
    for test in _end_tests(owner):
        for asked, name in _asked(files, owner, test):
            file = next((file for file, tree in files.items() if asked in nodes_of(tree)), "")
            for method in _methods(asked):
                if method.name in ("__init__", *_ITERATES):
                    continue
                lines = [item.lineno for item in own_nodes(method) if _sets(item, name)]
                if lines:
                    yield file, method, lines[-1]


def _end_tests(owner: ast.ClassDef) -> Iterator[ast.expr]:
    """Of `if self.stop: raise StopIteration` in __next__, and of the `while`, `break` and `return` of a generator."""
    for method in _methods(owner):
        if method.name not in _ITERATES:
            continue
        for item in own_nodes(method):
            leaves = isinstance(item, ast.If) and any(_ends(part, method) for part in item.body)
            if isinstance(item, ast.While) or (isinstance(item, ast.If) and leaves):
                yield item.test


def _ends(item: ast.stmt, method: _Method) -> bool:
    if isinstance(item, ast.Raise):
        kind = item.exc.func if isinstance(item.exc, ast.Call) else item.exc
        return isinstance(kind, ast.Name) and kind.id == "StopIteration"
    return isinstance(item, (ast.Break, ast.Return)) and method.name == "__iter__"


def _asked(files: Mapping[str, ast.Module], owner: ast.ClassDef, test: ast.AST) -> Iterator[tuple[ast.ClassDef, str]]:
    """The attributes that a test asks, with their class; of a property or method what that asks."""
    classes = [item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef)]
    for item in nodes_of(test):
        if not isinstance(item, ast.Attribute):
            continue
        of_self = isinstance(item.value, ast.Name) and item.value.id == "self"
        found = [owner] if of_self else [part for part in classes if _has(part, item.attr)]
        if len(found) != 1:
            continue
        method = next((part for part in _methods(found[0]) if part.name == item.attr), None)
        if method is None:
            yield found[0], item.attr
            continue
        for part in own_nodes(method):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                yield found[0], part.attr


def _has(owner: ast.ClassDef, name: str) -> bool:
    return any(item.name == name or any(_sets(part, name) for part in own_nodes(item)) for item in _methods(owner))


def _methods(owner: ast.ClassDef) -> list[_Method]:
    return [item for item in owner.body if isinstance(item, _FUNCTIONS)]


def _sets(item: ast.AST, name: str) -> TypeGuard[ast.stmt]:
    """`self.stop = ...`, `self.bad += 1`, `self.best, self.bad = score, 0`."""
    return isinstance(item, ast.stmt) and isinstance(item, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and any(
        isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and part.attr == name
        for part in nodes_of(item)
    )  # fmt: skip


def _calls(item: ast.AST, setters: Mapping[tuple[str, int], object]) -> TypeGuard[ast.Call]:
    names = {name for name, _ in setters}
    return isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in names


def _of_one_rank(files: Mapping[str, ast.Module], tree: ast.Module, line: int) -> ast.If | None:
    """A branch on the rank around the line; also by a property that compares it."""
    for item, around in deciding_ifs(tree, line):
        names = {part.attr for part in nodes_of(item.test) if isinstance(part, ast.Attribute)}
        properties = [
            part
            for other in files.values()
            for part in nodes_of(other)
            if isinstance(part, ast.FunctionDef) and part.name in names and part.decorator_list
        ]
        by = any(
            isinstance(part, ast.Return) and part.value is not None and is_of_rank(part.value)
            for function in properties
            for part in own_nodes(function)
        )
        if around and (by or asks_rank(tree, item)):
            return item
    return None
