"""Tails of distributions, against exact sums."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from pytracer.history.chance import binomial_tail, discoveries, poisson_tail


@pytest.mark.parametrize(
    ("count", "trials", "share"), [(3, 10, 0.2), (0, 5, 0.5), (5, 5, 0.5), (40, 50, 0.1), (6, 5, 0.9)]
)
def test_binomial_tail_is_exact(count: int, trials: int, share: float) -> None:
    """As a sum of fractions."""
    p = Fraction(share)
    exact = sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(count, trials + 1))
    assert binomial_tail(count, trials, share) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("count", "mean"), [(0, 3.0), (3, 3.0), (1, 10.0), (30, 3.0), (200, 150.0)])
def test_poisson_tail_is_the_complement_of_the_lower_sum(count: int, mean: float) -> None:
    """As a sum of fractions, with e as one of them."""
    lower = sum(Fraction(mean) ** k / math.factorial(k) for k in range(count))
    whole = sum(Fraction(mean) ** k / math.factorial(k) for k in range(700))
    assert poisson_tail(count, mean) == pytest.approx(float(1 - lower / whole), rel=1e-8)


def test_nothing_expected_is_impossible_to_exceed() -> None:
    """And certain not to be undercut."""
    assert (poisson_tail(0, 0.0), poisson_tail(1, 0.0)) == (1.0, 0.0)
    assert (binomial_tail(1, 3, 0.0), binomial_tail(3, 3, 1.0)) == (0.0, 1.0)


def test_discoveries_keep_their_rate() -> None:
    """The example of Benjamini and Hochberg's paper (1995): four of fifteen."""
    values = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0,
    ]
    assert discoveries(values) == [True] * 4 + [False] * 11
    assert discoveries([]) == []
