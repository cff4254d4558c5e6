"""Loops that end only when an object, asked again and again, says yes: `while not work.is_completed()`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, body_of, is_unbounded, leaves, loops_at

_TAKES = frozenset({"remove", "pop", "popleft", "discard", "clear"})


class PollingLoop(msgspec.Struct, frozen=True):
    """`asked`: the calls of the method, one of which has to be true before the loop can end."""

    loop: EndlessLoop
    asked: tuple[ast.Call, ...]

    @property
    def objects(self) -> list[ast.expr]:
        """What is asked; of a function that answers, itself."""
        return [item.func.value if isinstance(item.func, ast.Attribute) else item.func for item in self.asked]

    @property
    def in_head(self) -> bool:
        """Whether the head asks."""
        inside = {id(item) for item in nodes_of(self.loop.test)} if isinstance(self.loop, ast.While) else set()
        return all(id(item) in inside for item in self.asked)


def polling_loop(scope: Scope, line: int, method: str, answers: Collection[str] = ()) -> PollingLoop | None:
    """The innermost loop around a line that ends by that method of an object alone; None where it may end otherwise.

    `answers`: functions that return nothing but such an answer.
    """
    for loop in loops_at(scope, line):
        asks = _Asks(loop, method, answers)
        if asks.only_end:
            return PollingLoop(loop, tuple(asks.calls))
    return None


def answer_of(function: ast.FunctionDef, method: str) -> ast.expr | None:
    """The object that a function asks by that method, where it returns nothing but the answer."""
    returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
    value = returns[0].value if len(returns) == 1 else None
    if isinstance(value, ast.Call) and called_name(value) in ("all", "any") and len(value.args) == 1:
        value = value.args[0].elt if isinstance(value.args[0], ITEM_COMPREHENSIONS) else None
    return value.func.value if isinstance(value, ast.Call) and _asks(value, method) else None  # type: ignore[attr-defined]


def _asks(node: ast.AST, method: str) -> bool:
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
    return is_method and not node.args  # type: ignore[attr-defined]


class _Asks:
    """What a loop asks by one method, and what depends on the answers."""

    def __init__(self, loop: EndlessLoop, method: str, answers: Collection[str]) -> None:
        self._loop = loop
        self._method = method
        self._answers = answers

    @property
    def calls(self) -> Iterator[ast.Call]:
        """`work.is_completed()`."""
        nodes = [*nodes_of(self._loop.test)] if isinstance(self._loop, ast.While) else []
        return (item for item in [*nodes, *body_of(self._loop)] if isinstance(item, ast.Call) and self._is_asked(item))

    @property
    def only_end(self) -> bool:
        """Whether the loop goes on as long as all answers are no."""
        leaving = leaves(self._loop)
        if next(self.calls, None) is None or not all(self._is_guarded(item) for item in leaving):
            return False
        if is_unbounded(self._loop):
            return bool(leaving)
        return isinstance(self._loop, ast.While) and (self._is_no(self._loop.test) or self._keeps(self._loop.test))

    def _is_asked(self, node: ast.AST) -> bool:
        return _asks(node, self._method) or (isinstance(node, ast.Call) and called_name(node) in self._answers)

    def _is_yes(self, node: ast.expr) -> bool:
        """Whether it is false as long as all answers are no."""
        if self._is_asked(node):
            return True
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._is_no(node.operand)
        if isinstance(node, ast.BoolOp):
            parts = [self._is_yes(item) for item in node.values]
            return any(parts) if isinstance(node.op, ast.And) else all(parts)
        if isinstance(node, ast.Call) and called_name(node) in ("all", "any") and len(node.args) == 1:
            given = node.args[0]
            return isinstance(given, ITEM_COMPREHENSIONS) and self._is_yes(given.elt)
        if isinstance(node, ITEM_COMPREHENSIONS):
            return any(self._is_yes(test) for part in node.generators for test in part.ifs)
        return isinstance(node, ast.Name) and self._holds_yes(node.id)

    def _is_no(self, node: ast.expr) -> bool:
        """Whether it is true as long as all answers are no."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._is_yes(node.operand)
        if isinstance(node, ast.BoolOp):
            parts = [self._is_no(item) for item in node.values]
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        if isinstance(node, ast.Call) and called_name(node) == "any" and len(node.args) == 1:
            given = node.args[0]
            return isinstance(given, ITEM_COMPREHENSIONS) and self._is_no(given.elt)
        return False

    def _holds_yes(self, name: str) -> bool:
        """Whether the loop binds a variable, and to nothing but answers."""
        bound = [*self._bindings(name)]
        return bool(bound) and all(value is not None and self._is_yes(value) for value in bound)

    def _bindings(self, name: str) -> Iterator[ast.expr | None]:
        """What the loop binds it to; None of what is no plain assignment."""
        plain: set[int] = set()
        for item in body_of(self._loop):
            for target in item.targets if isinstance(item, ast.Assign) else ():
                if variable(target) == name and isinstance(item, ast.Assign):
                    plain.add(id(target))
                    yield item.value
        for item in body_of(self._loop):
            stored = isinstance(item, (ast.Name, ast.Attribute)) and not isinstance(item.ctx, ast.Load)
            if stored and variable(item) == name and id(item) not in plain:
                yield None

    def _keeps(self, test: ast.expr) -> bool:
        """`while pending`: whether only what has said yes is taken out of it."""
        name = _collection(test)
        if name is None:
            return False
        bound = [*self._bindings(name)]
        taken = [item for item in body_of(self._loop) if _takes(item, name)]
        kept = all(isinstance(item, ITEM_COMPREHENSIONS) and self._keeps_unanswered(item, name) for item in bound)
        return bool(bound or taken) and kept and all(self._is_guarded(item) for item in taken)

    def _keeps_unanswered(self, value: ast.ListComp | ast.SetComp | ast.GeneratorExp, name: str) -> bool:
        """`[work for work in pending if not work.is_completed()]`."""
        tests = [test for part in value.generators for test in part.ifs]
        same = len(value.generators) == 1 and variable(value.generators[0].iter) == name
        return same and bool(tests) and all(self._is_no(test) for test in tests)

    def _is_guarded(self, node: ast.AST) -> bool:
        """Whether it stands below an `if` that asks."""
        for item in body_of(self._loop):
            if not isinstance(item, ast.If):
                continue
            if self._is_yes(item.test) and any(node in nodes_of(part) for part in item.body):
                return True
            if self._is_no(item.test) and any(node in nodes_of(part) for part in item.orelse):
                return True
        return False


def _collection(test: ast.expr) -> str | None:
    """`pending` of `pending`, `len(pending)` and `len(pending) > 0`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Gt, ast.NotEq)):
        number = test.comparators[0]
        test = test.left if isinstance(number, ast.Constant) and number.value == 0 else test
    if isinstance(test, ast.Call) and called_name(test) == "len" and len(test.args) == 1:
        test = test.args[0]
    return variable(test)


def _takes(node: ast.AST, name: str) -> bool:
    """`pending.remove(work)`, `del pending[0]`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKES:
        return variable(node.func.value) == name
    if isinstance(node, ast.Delete):
        return any(isinstance(item, ast.Subscript) and variable(item.value) == name for item in node.targets)
    return False
