"""An expression that can make NaN or infinity."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.spots import Spot

WRITTEN, USUAL, WEAK = 3, 2, 1


class Hazard(msgspec.Struct, frozen=True):
    """`says`: what the expression does, behind `line 44`; `make`: what to write, behind "there".

    `only`: what the operand must be for it, `single`, `zero` or `empty`, which makes a loss NaN, and no gradient.
    `backward`: its gradient, not its value. `also`: other lines that take part.
    """

    node: ast.expr
    spot: Spot
    says: str
    make: str
    weight: int = USUAL
    only: str = ""
    operand: ast.expr | None = None
    backward: bool = False
    also: tuple[Place, ...] = ()

    @property
    def line(self) -> int:
        """Its number."""
        return self.node.lineno
