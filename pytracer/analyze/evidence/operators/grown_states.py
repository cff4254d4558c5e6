"""A parameter with more rows than when its optimizer's state was saved: a vocabulary that was extended."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.view import ProcessView


class GrownParameter(msgspec.Struct, frozen=True):
    """`parameter` has the shape `now`, and had `rows` rows then."""

    parameter: str
    rows: int
    now: tuple[int, ...]

    def advice(self, at: str, fused: str) -> str:
        """What to do with its state; `at`: the line that loads it, in brackets; `fused`: a sentence, or nothing."""
        return (
            f"{self.parameter} has {self.now[0]} rows, and {self.rows} when its states were saved. load_state_dict() "
            f"of an optimizer{at} compares no shapes: before it, fill each of them (exp_avg, exp_avg_sq, ...) up with "
            f"zeros to {[*self.now]}, or take the states of that one parameter out of what is loaded.{fused}"
        )


def grown_parameter(view: ProcessView, parameter: str, bases: tuple[int, int]) -> GrownParameter | None:
    """None where the shapes differ otherwise, or another parameter of the operator has the state's shape.

    Args:
        view: The process.
        parameter: Its name.
        bases: Addresses of the storages of a state and of the parameter.
    """
    operator = find_operator(view) if all(bases) else None
    shapes = {item.item.base: item.item.sizes for item in (operator.tensors if operator is not None else ())}
    state, now = (shapes.get(base) or () for base in bases)
    if len(state) != len(now) or not now or state[1:] != now[1:] or not 0 < state[0] < now[0]:
        return None
    alike = [base for base, sizes in shapes.items() if sizes == state and base != bases[0]]
    names = {item.base for items in view.process.snapshot.named.values() for item in items if item.role == "parameter"}
    return GrownParameter(parameter, state[0], now) if not names & set(alike) else None
