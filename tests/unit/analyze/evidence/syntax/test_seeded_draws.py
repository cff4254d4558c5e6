"""A loop that seeds its generator in each pass, and loops that do not."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.endless import reason_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.unbounded import Reason, loops_at

DRAWS = """\
def negative(self, seen):
    item = 0
    {before}
    while item in seen:
        {within}
        item = int(rng.integers(self.n))
        {after}
    return item
"""
SEED = "rng = np.random.default_rng(self.seed)"


def reason(before: str = "pass", within: str = "pass", after: str = "pass") -> Reason | None:
    tree = ast.parse(DRAWS.format(before=before, within=within, after=after))
    scope = scope_of(tree, 6)
    return reason_of(scope, loops_at(scope, 6)[0], 6)


def test_seed_of_each_pass_is_named() -> None:
    """Found by a twin: the items were said to be used up, and every draw was the same."""
    found = reason(within=SEED)
    assert found is not None
    assert found.words.startswith("line 5 (`np.random.default_rng(self.seed)`) seeds the generator anew in each pass")
    assert found.advice.startswith("Move line 5 (`np.random.default_rng(self.seed)`) above the loop of line 4")


@pytest.mark.parametrize(
    "parts",
    [{"before": SEED}, {"within": "rng = np.random.default_rng()"}, {"within": SEED, "after": "self.seed += 1"}],
    ids=["before", "no seed", "another seed"],
)
def test_draws_that_differ_are_not_said_to_be_the_same(parts: dict[str, str]) -> None:
    found = reason(**parts)
    assert found is None or "seeds the generator" not in found.words


@pytest.mark.parametrize(
    "within",
    [
        "torch.manual_seed(0)",
        "random.seed(7)",
        "order = np.random.RandomState(self.seed).permutation(9)",
        "rng = np.random.default_rng(None)",
        "rng = np.random.default_rng(time.time_ns() ^ 3)",
        "rng = np.random.default_rng([self.seed, next(count)])",
        f"if not item: {SEED}",
    ],
)
def test_seed_of_another_generator_or_of_some_passes_is_not_named(within: str) -> None:
    found = reason(within=within)
    assert found is None or "seeds the generator" not in found.words


def test_seed_of_the_module_that_draws_is_named() -> None:
    source = DRAWS.replace("int(rng.integers(self.n))", "int(torch.randint(9, (1,)))")
    for within, named in (("torch.manual_seed(7)", True), ("np.random.seed(7)", False)):
        scope = scope_of(ast.parse(source.format(before="pass", within=within, after="pass")), 6)
        found = reason_of(scope, loops_at(scope, 6)[0], 6)
        assert (found is not None and "seeds the generator" in found.words) is named
