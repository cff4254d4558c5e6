"""How likely a count is by chance. Exact sums: counts are small, and tails as low as 1e-300 matter for the order."""

from __future__ import annotations

import math
from collections.abc import Sequence

_NEGLIGIBLE = 1e-17


def poisson_tail(count: int, mean: float) -> float:
    """The probability of `count` or more events where `mean` are expected."""
    if count <= 0:
        return 1.0
    if mean <= 0.0:
        return 0.0
    if count <= mean:  # the lower part is the smaller sum, and nothing is lost: the tail is not small
        lower = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count))
        return max(0.0, 1.0 - lower)
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total, k = 0.0, count
    while term > total * _NEGLIGIBLE:
        total += term
        k += 1
        term *= mean / k
    return min(1.0, total)


def binomial_tail(count: int, trials: int, share: float) -> float:
    """The probability of `count` or more successes in `trials` of probability `share`."""
    if count <= 0:
        return 1.0
    if share <= 0.0 or count > trials:
        return 0.0
    if share >= 1.0:
        return 1.0
    ways = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    term = math.exp(ways + count * math.log(share) + (trials - count) * math.log1p(-share))
    total, odds = 0.0, share / (1.0 - share)
    for k in range(count, trials + 1):
        total += term
        term *= (trials - k) / (k + 1) * odds
        if term < total * _NEGLIGIBLE and k > trials * share:
            break
    return min(1.0, total)


def discoveries(probabilities: Sequence[float], rate: float = 0.05, tests: int | None = None) -> list[bool]:
    """Which of many tests are no chance: of those, at most `rate` are expected to be (Benjamini and Hochberg, 1995).

    Args:
        probabilities: of each test.
        rate: the false discovery rate.
        tests: the number of tests if only the least likely were given; None for all.
    """
    total = tests if tests is not None else len(probabilities)
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    passed = max(
        (rank for rank, index in enumerate(order, 1) if probabilities[index] <= rate * rank / total), default=0
    )
    found = set(order[:passed])
    return [index in found for index in range(len(probabilities))]
