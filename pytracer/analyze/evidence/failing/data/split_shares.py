"""Shares for random_split() that do not add up to 1."""

from __future__ import annotations

import ast
import math

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.syntax.calls import argument_at

_SUM = "Sum of input lengths does not equal the length of the input dataset"


def split_shares(at: FailingLine) -> str | None:
    """Where each is below 1: torch then takes them for numbers of samples."""
    call = at.only(ast.Call) if _SUM in at.message else None
    given = argument_at(call, 1, "lengths") if call is not None else None
    made = at.made(given, calls=False) if isinstance(given, (ast.Name, ast.Attribute)) else None
    listed = made.node if made is not None else given
    if given is None or not isinstance(listed, (ast.List, ast.Tuple)):
        return None
    shares = [number_at(at, item) for item in listed.elts]
    known = [share for share in shares if share is not None and 0 <= share <= 1]
    if len(known) != len(shares) or not any(isinstance(share, float) for share in known):
        return None
    total = sum(known)
    return (
        f"The shares `{source(given)}` ({' + '.join(f'{share:g}' for share in known)}) add up to {_shown(total)}, and "
        f"not to 1, so that they count as numbers of samples: {_mend(total)}."
    )


def _shown(total: float) -> str:
    return f"{total:g}" if not math.isclose(total, 1) else repr(total)


def _mend(total: float) -> str:
    if math.isclose(total, 1):  # floats that round up: torch refuses any sum above 1
        return "pass numbers of samples, the last of them what is left of the length"
    if total > 1:
        return "make them smaller"
    return f"add the rest as another part ({1 - total:.3g}, which need not be used), or make one larger"
