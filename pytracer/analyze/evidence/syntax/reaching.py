"""Which lines can have given a variable the value that it has at a line: over branches, loops, `try` and `match`.

Syntax alone: any branch may have been taken, any loop may have run no round, and any line of a `try` may have raised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import holds
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans

ENTRY = 0  # in place of a line: what the function was called with, or nothing yet
UNKNOWN = -1  # another function, or a comprehension, has bound it
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVES = (ast.Return, ast.Raise)
_TRIES: tuple[type[ast.stmt], ...] = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))


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
    lines = {line for node in own_nodes(scope) for line in _bound_by(node, name)}
    return sorted(lines)


def _in_comprehension(scope: Scope, name: str, line: int) -> bool:
    return any(
        isinstance(item, COMPREHENSIONS)
        and spans(item, line)
        and any(holds(part.target, name) for part in item.generators)
        for item in nodes_of(scope)
    )


def _bound_by(node: ast.AST, name: str) -> Iterator[int]:
    """The line, if the node itself binds the variable."""
    targets: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        targets = [*node.targets]
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target] if node.value is not None else []
    elif isinstance(node, (ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor)):
        targets = [node.target]
    elif isinstance(node, ast.Delete):
        targets = [*node.targets]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        if holds(node.optional_vars, name):
            yield node.optional_vars.lineno
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        if any((item.asname or item.name.split(".")[0]) == name for item in node.names):
            yield node.lineno
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name == name:
            yield node.lineno
    elif isinstance(node, ast.MatchMapping) and node.rest == name:
        yield node.lineno
    elif isinstance(node, ast.Call) and called_name(node) in ("register_buffer", "register_parameter", "add_module"):
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and f"self.{first.value!s}" == name:
            yield node.lineno
    if any(holds(item, name) for item in targets):
        yield node.lineno  # type: ignore[attr-defined]


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
                came = frozenset(_bound_by(part, self._name)) or came
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
            return frozenset(_bound_by(item, self._name)) or came
        bound = frozenset(_bound_by(item, self._name))
        if isinstance(item, ast.AugAssign) and bound and self._changed is not False:
            return came | bound if self._changed is None else came
        return bound if bound and came else self._expression(item, came)

    def _expression(self, node: ast.AST, came: frozenset[int]) -> frozenset[int]:
        """`:=` in it may be evaluated or not."""
        found = {line for item in [node, *own_nodes(node)] for line in _bound_by(item, self._name)} if came else set()
        return came | found

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
                begins = frozenset(_bound_by(item, self._name)) or round_
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
        within = {
            line for part in item.body for node in [part, *own_nodes(part)] for line in _bound_by(node, self._name)
        }
        broken = came | within if came else came
        done = self.through(item.orelse, done)
        for handler in item.handlers:
            done |= self.through(handler.body, frozenset(_bound_by(handler, self._name)) or broken)
        if item.finalbody:
            after = self.through(item.finalbody, done | broken)
            return after if done else frozenset()
        return done

    def _match(self, item: ast.Match, came: frozenset[int]) -> frozenset[int]:
        done = came
        for case in item.cases:
            bound = {line for node in nodes_of(case.pattern) for line in _bound_by(node, self._name)}
            begins = frozenset(bound) or came
            done |= self.through(case.body, begins) | bound
        return done
