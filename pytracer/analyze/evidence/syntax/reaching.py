"""Which lines can have given a variable the value that it has at a line: over branches, loops, `try` and `match`.

Syntax alone: any branch may have been taken, any loop may have run no round, and any line of a `try` may have raised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import held_names, holds
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans

ENTRY = 0  # in place of a line: what the function was called with, or nothing yet
UNKNOWN = -1  # another function, or a comprehension, has bound it
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_REGISTERS = ("register_buffer", "register_parameter", "add_module")
_LEAVES = (ast.Return, ast.Raise)
_TRIES: tuple[type[ast.stmt], ...] = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))


@lru_cache(maxsize=1 << 12)  # see nodes_of()
def reaching(scope: Scope, name: str, line: int, changed: bool | None = False) -> frozenset[int] | None:
    """Lines of the scope, ENTRY and UNKNOWN; None where no statement of it is at the line.

    `changed`: `x += y` changes what `x` is, and binds no other; None where that is not known.
    """
    if isinstance(scope, ast.Lambda):
        return frozenset({UNKNOWN if _in_comprehension(scope, name, line) else ENTRY})
    flow = _Flow(name, line, changed)
    flow.through(scope.body, frozenset({ENTRY}))
    if flow.met is None:
        return None
    others = [item for item in nodes_of(scope) if isinstance(item, ast.Nonlocal) and name in item.names]
    elsewhere = _in_comprehension(scope, name, line) or any(item not in scope.body for item in others)
    return flow.met | {UNKNOWN} if elsewhere else flow.met


def left_by(method: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> frozenset[int]:
    """Lines of a method whose value a variable, or an attribute, has at its end."""
    return _Flow(name, -1).through(method.body, frozenset({ENTRY}))


def places_that_bind(scope: ast.AST, name: str) -> list[int]:
    """All lines of a scope that bind it, in any way; a line for each."""
    return sorted(_bound_within(scope).get(name, ()))


def _in_comprehension(scope: Scope, name: str, line: int) -> bool:
    return any(
        isinstance(item, COMPREHENSIONS)
        and spans(item, line)
        and any(holds(part.target, name) for part in item.generators)
        for item in nodes_of(scope)
    )


def _bound_by(node: ast.AST, name: str) -> frozenset[int]:
    """The line, if the node itself binds the variable."""
    return frozenset(line for bound, line in _bindings(node) if bound == name)


@lru_cache(maxsize=1 << 14)  # see nodes_of()
def _bound_within(node: ast.AST) -> dict[str, frozenset[int]]:
    """The lines of a part of a function that bind each variable."""
    found: dict[str, set[int]] = {}
    for item in own_nodes(node):
        for name, line in _bindings(item):
            found.setdefault(name, set()).add(line)
    return {name: frozenset(lines) for name, lines in found.items()}


def _bindings(node: ast.AST) -> Iterator[tuple[str, int]]:
    """What the node itself binds, and its line."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        yield from ((name, node.lineno) for target in node.targets for name in held_names(target))
    elif isinstance(node, ast.AnnAssign):
        yield from ((name, node.lineno) for name in held_names(node.target) if node.value is not None)
    elif isinstance(node, (ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor)):
        yield from ((name, node.lineno) for name in held_names(node.target))
    elif isinstance(node, ast.withitem):
        if node.optional_vars is not None:
            yield from ((name, node.optional_vars.lineno) for name in held_names(node.optional_vars))
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((item.asname or item.name.split(".")[0], node.lineno) for item in node.names)
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name is not None:
            yield node.name, node.lineno
    elif isinstance(node, ast.MatchMapping):
        if node.rest is not None:
            yield node.rest, node.lineno
    elif isinstance(node, ast.Call) and called_name(node) in _REGISTERS:
        yield from ((f"self.{item.value!s}", node.lineno) for item in node.args[:1] if isinstance(item, ast.Constant))


class _Flow:
    """Follows the lines that bind one variable through the statements of a function."""

    def __init__(self, name: str, line: int, changed: bool | None = False) -> None:
        self.met: frozenset[int] | None = None
        self._name = name
        self._line = line
        self._changed = changed
        self._breaks: list[frozenset[int]] = []
        self._continues: list[frozenset[int]] = []

    def through(self, body: Sequence[ast.stmt], came: frozenset[int]) -> frozenset[int]:
        """What comes out at the end; nothing where the end is not reached."""
        for item in body:
            came = self._statement(item, came)
        return came

    def _statement(self, item: ast.stmt, came: frozenset[int]) -> frozenset[int]:
        if spans(item, self._line) and self._is_own(item):
            self.met = came | (self.met or frozenset())
        if isinstance(item, ast.If):
            came = self._expression(item.test, came)
            return self.through(item.body, came) | self.through(item.orelse, came)
        if isinstance(item, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(item, came)
        if isinstance(item, _TRIES):
            return self._try(item, came)  # type: ignore[arg-type]
        if isinstance(item, (ast.With, ast.AsyncWith)):
            for part in item.items:
                came = self._expression(part.context_expr, came)
                came = _bound_by(part, self._name) or came
            return self.through(item.body, came)
        if isinstance(item, ast.Match):
            return self._match(item, came)
        return self._simple(item, came)

    def _simple(self, item: ast.stmt, came: frozenset[int]) -> frozenset[int]:
        if isinstance(item, _LEAVES):
            return frozenset()
        if isinstance(item, ast.Break):
            self._breaks.append(came)
            return frozenset()
        if isinstance(item, ast.Continue):
            self._continues.append(came)
            return frozenset()
        if isinstance(item, (*_FUNCTIONS, ast.ClassDef)):
            return _bound_by(item, self._name) or came
        bound = _bound_by(item, self._name)
        if isinstance(item, ast.AugAssign) and bound and self._changed is not False:
            return came | bound if self._changed is None else came
        return bound if bound and came else self._expression(item, came)

    def _expression(self, node: ast.AST, came: frozenset[int]) -> frozenset[int]:
        """`:=` in it may be evaluated or not."""
        return came | self._within(node) if came else came

    def _within(self, node: ast.AST) -> frozenset[int]:
        return _bound_by(node, self._name) | _bound_within(node).get(self._name, frozenset())

    def _is_own(self, item: ast.stmt) -> bool:
        """Whether the line is not one of a statement within it."""
        inner = (part for part in nodes_of(item) if isinstance(part, ast.stmt) and part is not item)
        return not any(spans(part, self._line) for part in inner)

    def _loop(self, item: ast.For | ast.AsyncFor | ast.While, came: frozenset[int]) -> frozenset[int]:
        outer = self._breaks, self._continues
        round_ = came
        for _ in range(3):
            self._breaks, self._continues = [], []
            if isinstance(item, ast.While):
                begins = self._expression(item.test, round_)
            else:
                begins = _bound_by(item, self._name) or round_
            ends = self.through(item.body, begins).union(*self._continues)
            if ends <= round_:
                break
            round_ |= ends
        if spans(item, self._line) and self._is_own(item):
            self.met = round_ | (self.met or frozenset())
        endless = isinstance(item, ast.While) and isinstance(item.test, ast.Constant) and bool(item.test.value)
        done = frozenset() if endless else self.through(item.orelse, round_)
        done = done.union(*self._breaks)
        self._breaks, self._continues = outer
        return done

    def _try(self, item: ast.Try, came: frozenset[int]) -> frozenset[int]:
        done = self.through(item.body, came)
        broken = came.union(*map(self._within, item.body)) if came else came
        done = self.through(item.orelse, done)
        for handler in item.handlers:
            done |= self.through(handler.body, _bound_by(handler, self._name) or broken)
        if item.finalbody:
            after = self.through(item.finalbody, done | broken)
            return after if done else frozenset()
        return done

    def _match(self, item: ast.Match, came: frozenset[int]) -> frozenset[int]:
        done = came
        for case in item.cases:
            bound = frozenset[int]().union(*(_bound_by(node, self._name) for node in nodes_of(case.pattern)))
            begins = bound or came
            done |= self.through(case.body, begins) | bound
        return done
