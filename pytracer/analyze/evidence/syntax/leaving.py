"""What can keep a line from being reached: an `if` around it, and branches and handlers before it that leave."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of

_LONGEST = 60


@dataclass(frozen=True)
class Obstacle:
    """`line`: of the head. `around`: whether the line lies below it; else it leaves before the line."""

    text: str
    line: int
    around: bool

    @property
    def words(self) -> str:
        """After "that is": `not reached where `x is None` (line 8, which leaves)`."""
        if self.around:
            return f"reached only where `{self.text}` (line {self.line})"
        return f"not reached after `{self.text}` (line {self.line}, which leaves)"


def obstacles(tree: ast.Module, line: int) -> list[Obstacle]:
    """The closest first. Of an `if` around the line, whose `else` has it, nothing is said."""
    found = []
    for item, around in deciding_ifs(tree, line):
        if around and not any(part.lineno <= line <= (part.end_lineno or 0) for part in item.body):
            continue
        test = shortened(ast.unparse(item.test), _LONGEST)
        found.append(Obstacle(test if around else f"if {test}", item.lineno, around))
    found += _handlers(tree, line)
    return sorted(found, key=lambda item: -item.line)


def _handlers(tree: ast.Module, line: int) -> list[Obstacle]:
    """`except ... : continue` of a `try` that ends above the line, in the same function and loop."""
    scope, loop = scope_of(tree, line), loops_around(tree, line)
    found = []
    for item in own_nodes(scope):
        if not isinstance(item, ast.Try) or (item.end_lineno or 0) >= line or item.finalbody:
            continue
        same_loop = loops_around(tree, item.lineno) == loop
        for handler in item.handlers:
            last = handler.body[-1]
            leaves = isinstance(last, (ast.Return, ast.Raise))
            if leaves or (isinstance(last, (ast.Continue, ast.Break)) and same_loop):
                kind = f" {shortened(ast.unparse(handler.type), _LONGEST)}" if handler.type is not None else ""
                found.append(Obstacle(f"except{kind}", handler.lineno, around=False))
    return found
