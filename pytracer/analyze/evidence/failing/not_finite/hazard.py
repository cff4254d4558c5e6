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
    `backward`: its gradient, not its value. `also`: other lines that take part. `since`: for the headline, behind
    `says`. `tiny`: of a sum of numbers that are too small, what it says up to these, and what to write, without why.
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
    since: str = ""
    tiny: tuple[str, str] | None = None

    @property
    def line(self) -> int:
        """Its number."""
        return self.node.lineno
