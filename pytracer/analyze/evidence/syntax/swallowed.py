"""A loop all of whose ends stand behind lines of a `try`: where these raise, the `except` goes on with the next pass.

`while done < count: try: step(); done += 1; except RuntimeError: skipped += 1` ends, unless step() raises each time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.changes import bound_in, is_among, is_own, names_read, touched
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, function_named, own_nodes, spans
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, body_of, is_unbounded, leaves, yields

_EMPTY = {"list": "list of 0", "dict": "dict of 0", "set": "set of 0", "deque": "deque of 0"}
_OF_MISSING_NAMES = frozenset({"AttributeError", "Exception", "BaseException"})
_LACKS_NEXT = Pattern(r"has no attribute 'next'")
_NO_NEXT = frozenset({"map", "zip", "filter", "enumerate", "reversed"})
_ADDS = frozenset({"append", "appendleft", "add", "insert"})
_IN_CHUNKS = frozenset({"imap", "imap_unordered"})


class Mover(msgspec.Struct, frozen=True):
    """What the condition reads and the `try` alone changes: `done`, by `node`. `before`: its text before the loop."""

    name: str
    node: ast.stmt
    before: str | None
    each: bool = True
    """Whether each pass that raises nothing comes to the line and moves it on: not one below an `if`, nor a reset."""


class SwallowingLoop(msgspec.Struct, frozen=True):
    """`raising`: the calls of the `try` before all that brings the loop to its end; `movers`: none where it is left."""

    tried: ast.Try
    movers: tuple[Mover, ...]
    raising: tuple[ast.Call, ...]

    @property
    def stays(self) -> bool:
        """Whether only what is raised lets it go on: one that raises nothing brings it nearer to its end."""
        if self.movers:
            return all(item.each for item in self.movers)
        return any(isinstance(item, (ast.Return, ast.Break)) for item in (*self.tried.body, *self.tried.orelse))

    @property
    def handlers(self) -> list[ast.ExceptHandler]:
        """Of the `try`."""
        return self.tried.handlers


def swallowing_loop(tree: ast.Module, scope: Scope, loop: EndlessLoop) -> SwallowingLoop | None:
    """None where anything but the one `try` of its body may end it."""
    tries = [item for item in _own_statements(loop.body) if isinstance(item, ast.Try) and item.handlers]
    if len(tries) != 1 or tries[0].finalbody or yields(body_of(loop)):
        return None
    tried = tries[0]
    within = {id(part) for item in (*tried.body, *tried.orelse) for part in nodes_of(item)}
    leaving = leaves(loop)
    if any(id(item) not in within for item in leaving):
        return None
    movers: list[Mover] = []
    if isinstance(loop, ast.While) and not is_unbounded(loop):
        outside = [item for item in body_of(loop) if id(item) not in within]
        names, changed = names_read(loop.test), bound_in(outside)
        movers = [item for name in names for item in _movers(tree, scope, loop, tried, name)]
        if not movers or any(is_among(name, changed) for name in names):
            return None
        if any(is_among(item.name, touched(outside, passed=False)) for item in movers):
            return None
    ends = [*(item.node for item in movers), *leaving]
    raising = tuple(_before(tried, ends)) if ends else ()
    return SwallowingLoop(tried, tuple(movers), raising) if raising else None


def value_before(tree: ast.Module, scope: Scope, loop: EndlessLoop, name: str) -> str | None:
    """The constant that a variable has as the loop begins, as a recording has it; None where that is not known."""
    bound = [
        (item.lineno, value)
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign)
        for target, value in each_set(item.targets, item.value)
        if ast.unparse(target) == name and not spans(loop, item.lineno)
    ]
    others = [item for item in own_nodes(scope) if isinstance(item, (ast.AugAssign, ast.For, ast.With))]
    if any(is_among(name, bound_in([item])) and item.lineno < loop.lineno for item in others):
        return None
    around = [item.lineno for item in loops_around(tree, loop.lineno) if item is not loop]
    last = max(around, default=0)
    earlier = [item for item in bound if last < item[0] < loop.lineno]
    return _constant(earlier[-1][1]) if len(earlier) == 1 else None


def caught_names(handler: ast.ExceptHandler) -> set[str]:
    """The exceptions that it names, without their modules; none where it takes all."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(item).rpartition(".")[2] for item in kinds if item is not None}


class NoNext(msgspec.Struct, frozen=True):
    """`call`: `self.gen.next()`, of what has no such method; `made`: by what. `kind`: None of what an error named."""

    call: ast.Call
    made: ast.expr
    kind: str | None
    none: int | None = None
    """The line that sets it to None."""


def call_without_next(
    files: Mapping[str, ast.Module], tree: ast.Module, found: SwallowingLoop, message: str | None
) -> NoNext | None:
    """The method of Python 2's iterators, where all that the variable is set to is an iterator of Python 3.

    `message`: of the exception that the loop had caught, which may say so.
    """
    calls = [
        item
        for item in found.raising
        if isinstance(item.func, ast.Attribute) and item.func.attr == "next" and not (item.args or item.keywords)
    ]
    if len(calls) != 1 or not any(_takes_missing_names(item) for item in found.handlers):
        return None
    receiver = ast.unparse(calls[0].func.value) if isinstance(calls[0].func, ast.Attribute) else ""
    values = [
        value
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign)
        for target, value in each_set(item.targets, item.value)
        if ast.unparse(target) == receiver
    ]
    none = next((item.lineno for item in values if isinstance(item, ast.Constant) and item.value is None), None)
    if message is not None and _LACKS_NEXT.search(message):
        return NoNext(calls[0], calls[0].func, None, none)
    functions = (item for one in files.values() for item in nodes_of(one) if isinstance(item, ast.FunctionDef))
    if any(item.name == "next" for item in functions):
        return None
    made = [item for item in values if not isinstance(item, ast.Constant)]
    kinds = [_without_next(tree, item) for item in made]
    first = kinds[0] if kinds else None
    return NoNext(calls[0], made[0], first, none) if first is not None and None not in kinds else None


def _takes_missing_names(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or bool(caught_names(handler) & _OF_MISSING_NAMES)


def _without_next(tree: ast.Module, made: ast.expr) -> str | None:
    if isinstance(made, ast.GeneratorExp):
        return "a generator"
    if not isinstance(made, ast.Call):
        return None
    name = called_name(made) or ""
    if name in _IN_CHUNKS:
        size = argument_at(made, 2, "chunksize")
        one = size is None or (isinstance(size, ast.Constant) and size.value == 1)
        return None if one else f"a generator ({name}() with a chunksize above 1 returns one)"
    if name in _NO_NEXT and isinstance(made.func, ast.Name) and function_named(tree, name) is None:
        return f"an iterator ({name}())"
    own = function_named(tree, name)
    made_by = own is not None and yields(own_nodes(own))
    return f"a generator ({name}())" if made_by else None


def _own_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Those that each pass comes to: also inside of a `with`."""
    for item in body:
        yield item
        if isinstance(item, (ast.With, ast.AsyncWith)):
            yield from _own_statements(item.body)


def _movers(tree: ast.Module, scope: Scope, loop: EndlessLoop, tried: ast.Try, name: str) -> Iterator[Mover]:
    """The statements of the `try` that change a variable of the function."""
    if not is_own(scope, name) and not isinstance(scope, ast.Module):
        return
    for item in (*tried.body, *tried.orelse):
        for part in (item, *own_nodes(item)):
            if isinstance(part, (ast.Assign, ast.AugAssign, ast.Expr)) and is_among(
                name, touched([part, *nodes_of(part)], passed=False)
            ):
                yield Mover(name, part, value_before(tree, scope, loop, name), part is item and _moves(tried, part))


def _moves(tried: ast.Try, node: ast.stmt) -> bool:
    """`done += 1` and `found.append(item)`, which no `continue` before it leaves out."""
    passes = [item for item in nodes_of(tried) if isinstance(item, ast.Continue) and item.lineno < node.lineno]
    if any(any(part is item for one in tried.body for part in nodes_of(one)) for item in passes):
        return False
    if isinstance(node, ast.AugAssign):
        return isinstance(node.value, ast.Constant) and bool(node.value.value)
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.BinOp) and ast.unparse(node.targets[0]) in names_read(node.value)
    return any(isinstance(item, ast.Call) and called_name(item) in _ADDS for item in nodes_of(node))


def _before(tried: ast.Try, ends: Sequence[ast.AST]) -> Iterator[ast.Call]:
    """Calls that come before the first of them, or that give what it sets."""
    own = [item for item in ends if any(part is item for one in tried.body for part in nodes_of(one))]
    first = min((getattr(item, "lineno", 0) for item in own), default=None)
    for item in tried.body:
        for part in nodes_of(item):
            if not isinstance(part, ast.Call):
                continue
            inside = any(any(one is part for one in nodes_of(end)) for end in own if not isinstance(end, ast.Expr))
            if first is None or part.lineno < first or inside:
                yield part


def _constant(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant) and (value.value is None or type(value.value) in (bool, int, float)):
        return repr(value.value)
    if isinstance(value, ast.List) and not value.elts:
        return _EMPTY["list"]
    if isinstance(value, ast.Dict) and not value.keys:
        return _EMPTY["dict"]
    name = called_name(value) if isinstance(value, ast.Call) and not (value.args or value.keywords) else None
    return _EMPTY.get(name or "")
