"""Places in a program, and the expression that made a value."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of
from pytracer.report.job import PythonFrame

END = 1 << 30  # behind the last line


class Spot(msgspec.Struct, frozen=True):
    """A place in a program. `depth`: of its frame among the program's on the stack, None if it is not there.

    `call`: what called the function, where that is known otherwise than by the stack.
    """

    file: str | None
    tree: ast.Module
    scope: Scope
    line: int
    depth: int | None = None
    call: tuple[ast.Call, Spot] | None = None

    def is_of(self, frame: PythonFrame) -> bool:
        """Whether it is in the function that a frame runs."""
        own = scope_of(self.tree, frame.line) if frame.line is not None else None
        return frame.file == self.file and own is self.scope


class Made(msgspec.Struct, frozen=True):
    """The expression that made a value. `through`: the spots between, of which the first is the reader's own."""

    node: ast.AST
    spot: Spot
    through: tuple[tuple[ast.AST, Spot], ...] = ()

    @property
    def line(self) -> int:
        """Its line."""
        return getattr(self.node, "lineno", self.spot.line)


def name_made(made: Made) -> str | None:
    """The variable that the call that makes it is assigned to."""
    for item in own_nodes(made.spot.scope):
        if isinstance(item, ast.Assign) and item.value is made.node and len(item.targets) == 1:
            return variable(item.targets[0])
    return None
