"""The functions that an event loop runs from a line on, by name: `asyncio.run(main())`, and what main() calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, qualified_name, spans

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LIMITS = frozenset({"wait_for", "timeout", "timeout_at", "move_on_after", "fail_after"})


class Coroutine(msgspec.Struct, frozen=True):
    """A function that a loop runs, itself or by one that it runs."""

    file: str
    tree: ast.Module
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def name(self) -> str:
        """`Worker.run`."""
        return qualified_name(self.tree, self.node)


class Made(msgspec.Struct, frozen=True):
    """The line that makes a Semaphore, a Queue or the like, in whose file."""

    file: str
    call: ast.Call


def coroutines_from(files: Mapping[str, ast.Module], file: str, line: int) -> list[Coroutine]:
    """Those that a line begins, the ones closer to it first."""
    tree = files.get(file)
    begun = [name for call in calls_on(tree, line) if (name := called_name(call)) is not None] if tree else []
    return _reached(files, begun)


def coroutines_behind(files: Mapping[str, ast.Module], nodes: Sequence[ast.AST]) -> list[Coroutine]:
    """Those that these nodes call, and what they call."""
    return _reached(files, [*_called(nodes)])


def _reached(files: Mapping[str, ast.Module], begun: Sequence[str]) -> list[Coroutine]:
    found: list[Coroutine] = []
    waiting, seen = [*dict.fromkeys(begun)], {*begun}
    while waiting:
        name = waiting.pop(0)
        for item in _named(files, name):
            found.append(item)
            new = [other for other in _called(own_nodes(item.node)) if other not in seen]
            seen |= {*new}
            waiting += new
    return found


def _named(files: Mapping[str, ast.Module], name: str) -> Iterator[Coroutine]:
    for file, tree in files.items():
        for item in nodes_of(tree):
            if isinstance(item, _FUNCTIONS) and item.name == name:
                yield Coroutine(file, tree, item)


def _called(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Lambdas inside of them, too."""
    for item in nodes:
        parts = nodes_of(item) if isinstance(item, ast.Lambda) else (item,)
        for part in parts:
            name = called_name(part) if isinstance(part, ast.Call) else None
            if name is not None:
                yield name


def is_limited(nodes: Sequence[ast.AST], line: int) -> bool:
    """Whether a time limit is around a line: asyncio.wait_for(...), or `async with asyncio.timeout(...)`."""
    calls = [item for item in nodes if isinstance(item, ast.Call) and called_name(item) in _LIMITS]
    around = [item for item in nodes if isinstance(item, (ast.AsyncWith, ast.With))]
    return any(spans(item, line) for item in calls) or any(
        part.context_expr in calls and spans(item, line) for item in around for part in item.items
    )


def made_by(files: Mapping[str, ast.Module], thing: ast.expr, kinds: Sequence[str]) -> Made | None:
    """The only line that binds a name like that of `thing`, where it makes one of `kinds`."""
    name = last_name(thing)
    found = [
        Made(file, value)
        for file, tree in files.items()
        for item in nodes_of(tree)
        for target, value in set_by(item)
        if last_name(target) == name and isinstance(value, ast.Call) and called_name(value) in kinds
    ]
    return found[0] if len(found) == 1 else None


def is_one_object(first: Coroutine, thing: ast.expr, second: Coroutine, other: ast.expr) -> bool:
    """Whether two functions mean one object by a name: the same attribute of one class, or one name of the module."""
    if ast.unparse(thing) != ast.unparse(other) or first.file != second.file:
        return False
    if isinstance(thing, ast.Attribute):
        own = class_around(first.tree, first.node)
        return own is not None and own is class_around(second.tree, second.node)
    local = [
        target.id
        for part in (first, second)
        for item in own_nodes(part.node)
        for target, _ in set_by(item)
        if isinstance(target, ast.Name)
    ]
    passed = [item.arg for part in (first, second) for item in part.node.args.args]
    return isinstance(thing, ast.Name) and thing.id not in (*local, *passed)
