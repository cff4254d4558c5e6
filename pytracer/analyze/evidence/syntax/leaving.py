"""What can keep a line from being reached: an `if` around it, and branches and handlers before it that leave."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans

_LONGEST = 60


class Obstacle(msgspec.Struct, frozen=True):
    """`line`: of the head. `around`: whether the line lies below it; else it leaves before the line.

    `caught`: an `except` of the `try` that the line is in, which goes on.
    """

    text: str
    line: int
    around: bool
    caught: bool = False
    names: frozenset[str] = frozenset()
    """That its test reads."""
    asks_for: str | None = None
    """What the test asks no more of than whether it is there: `queue` of `if queue is None`."""

    @property
    def words(self) -> str:
        """After "that is": `not reached where `x is None` (line 8, which leaves)`."""
        if self.caught:
            return f"left out where `{self.text}` (line {self.line}) catches an error before"
        if self.around:
            return f"reached only where `{self.text}` (line {self.line})"
        return f"not reached after `{self.text}` (line {self.line}, which leaves)"


def obstacles(tree: ast.Module, line: int) -> list[Obstacle]:
    """The closest first. Of an `if` around the line, whose `else` has it, nothing is said."""
    found = []
    for item, around in deciding_ifs(tree, line):
        if around and not any(spans(part, line) for part in item.body):
            continue
        test = shortened(ast.unparse(item.test), _LONGEST)
        names = frozenset(name for part in nodes_of(item.test) if (name := variable(part)) is not None)
        text = test if around else f"if {test}"
        found.append(Obstacle(text, item.lineno, around, names=names, asks_for=_asked_for(item.test)))
    found += _handlers(tree, line)
    return sorted(found, key=lambda item: -item.line)


def _asked_for(test: ast.expr) -> str | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        other = test.comparators[0]
        return variable(test.left) if isinstance(other, ast.Constant) and other.value is None else None
    return variable(test)


def _handlers(tree: ast.Module, line: int) -> list[Obstacle]:
    """`except ... : continue` of a `try` that ends above the line, in the same function and loop; or one around it."""
    scope, loop = scope_of(tree, line), loops_around(tree, line)
    found = []
    for item in own_nodes(scope):
        if isinstance(item, ast.Try) and _can_fail_before(item, line):
            found += [
                Obstacle(_head(handler), handler.lineno, around=False, caught=True)
                for handler in item.handlers
                if not isinstance(handler.body[-1], (ast.Raise, ast.Return))
            ]
        if not isinstance(item, ast.Try) or (item.end_lineno or 0) >= line or item.finalbody:
            continue
        same_loop = loops_around(tree, item.lineno) == loop
        for handler in item.handlers:
            last = handler.body[-1]
            leaves = isinstance(last, (ast.Return, ast.Raise))
            if leaves or (isinstance(last, (ast.Continue, ast.Break)) and same_loop):
                found.append(Obstacle(_head(handler), handler.lineno, around=False))
    return found


def _can_fail_before(item: ast.Try, line: int) -> bool:
    """Whether the line is in its body, and something else is called up to there."""
    upto = [part for part in item.body if part.lineno <= line]
    calls = sum(isinstance(part, ast.Call) for one in upto for part in nodes_of(one))
    return bool(upto) and line <= (item.body[-1].end_lineno or 0) and calls > 1


def _head(handler: ast.ExceptHandler) -> str:
    return f"except {shortened(ast.unparse(handler.type), _LONGEST)}" if handler.type is not None else "except"
