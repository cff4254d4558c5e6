"""Ranges of versions, as `>=2.10,<2.11`: enough of packaging's rules for released versions."""

from __future__ import annotations

import operator
from itertools import zip_longest

from pytracer._patterns import Pattern

_OPERATORS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
_CLAUSE = Pattern(r"\s*(>=|<=|==|>|<)\s*(\d+(?:\.\d+)*)\s*")
_RELEASE = Pattern(r"\d+(?:\.\d+)*")


def in_range(version: str, wanted: str) -> bool:
    """Whether a version lies in a range. Local parts and pre-releases count as the release: `2.10.0a0+cpu` is 2.10.

    Raises:
        ValueError: `wanted` is no range.
    """
    release = _RELEASE.match(version)
    clauses = [_CLAUSE.fullmatch(clause) for clause in wanted.split(",")]
    if not all(clauses):
        raise ValueError(f"not a range of versions: {wanted}")
    if release is None:
        return False
    return all(_OPERATORS[clause[1]](_compared(release[0], clause[2]), 0) for clause in clauses if clause)


def _compared(left: str, right: str) -> int:
    """Below, at or above zero; missing parts are zero."""
    pairs = zip_longest(map(int, left.split(".")), map(int, right.split(".")), fillvalue=0)
    return next((a - b for a, b in pairs if a != b), 0)
