"""Loops that a number keeps going which is nan; the look-alikes end by something else, or have numbers."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.nan_tests import nan_test
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.unbounded import Reason, loops_at

PATIENCE = """\
def fit(model, patience):
    best, waited = 1e9, 0
    while waited < patience:
        value = validated(model)
        if value >= best:
            waited += 1
        else:
            best, waited = value, 0
"""
TOLERANCE = """\
def solve(x, tol):
    delta = 1.0
    while {test}:
        delta = moved(x)
"""


def reason(source: str, **values: str) -> Reason | None:
    tree = ast.parse(source)
    scope = scope_of(tree, 4)
    return nan_test(scope, loops_at(scope, 4)[0], lambda node: values.get(ast.unparse(node)))


def test_patience_that_nan_sets_anew_is_told() -> None:
    found = reason(PATIENCE, value="nan", best="0.5", waited="0", patience="3")
    assert found is not None and found.sure and found.spins
    assert found.words == (
        "`value` is nan, so `value >= best` (line 5) is false in each pass, and line 8 "
        "(`best, waited = (value, 0)`) sets `waited` anew"
    )
    assert found.advice.startswith("End the loop where `value` is no number: `if not math.isfinite(value): raise")


def test_counter_that_nan_leaves_as_it_is_is_told() -> None:
    source = PATIENCE.replace("        else:\n            best, waited = value, 0\n", "")
    found = reason(source, value="nan", best="0.5")
    assert found is not None and found.words.endswith("is false in each pass, and `waited` stays as it is")


def test_tolerance_that_nan_never_meets_is_told() -> None:
    found = reason(TOLERANCE.format(test="not delta < tol"), delta="nan", tol="0.001")
    assert found is not None and found.words == "`delta` is nan, so `not delta < tol` stays true in each pass"


@pytest.mark.parametrize(
    ("source", "values"),
    [
        (PATIENCE, {"value": "0.7", "best": "0.5"}),
        (PATIENCE.replace(">= best", "< best").replace("+= 1", "+= 2"), {"value": "0.7", "best": "0.5"}),
        (f"{PATIENCE}        waited += 1\n", {"value": "nan", "best": "0.5"}),  # it comes to its end
        (PATIENCE.replace("waited < patience", "True"), {"value": "nan", "best": "0.5"}),
        (TOLERANCE.format(test="delta > tol"), {"delta": "nan", "tol": "0.001"}),  # which ends
        (TOLERANCE.format(test="not delta < tol").replace("1.0", "float('nan')"), {"delta": "nan", "tol": "0.001"}),
        (TOLERANCE.format(test="not delta < tol").replace("1.0", "math.nan"), {"delta": "nan", "tol": "0.001"}),
        (TOLERANCE.format(test="not self.gap < tol"), {"self.gap": "nan", "tol": "0.001"}),  # that moved() may set
        (PATIENCE.replace("best, waited = 1e9, 0", "best, waited = np.nan, 0"), {"value": "0.7", "best": "nan"}),
    ],
)
def test_loop_that_no_nan_keeps_going_has_no_such_reason(source: str, values: dict[str, str]) -> None:
    """The look-alikes."""
    assert reason(source, **values) is None
