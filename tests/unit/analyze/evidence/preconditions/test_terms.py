"""Comparisons of what operators take for granted, for recorded arguments: broken, holds, or not decided."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.preconditions.terms import Given, as_code, broken, is_decided
from pytracer.analyze.known.operators import preconditions
from pytracer.decode.types.snapshot import Argument


def tensor(*sizes: int, least: int | None = None, most: int | None = None) -> Given:
    elements = 1
    for size in sizes:
        elements *= size
    item = Argument(
        1, 2, elements, 0, sizes, len(sizes), "int64", "cpu", minimum=least, maximum=most, frame=0, outer_frame=2,
        register=None, how="reference",
    )  # fmt: skip
    return Given("`x`", item, elements=elements, base=2)


GIVEN = {
    "mean": tensor(16),
    "input": tensor(4, 32, 8, 8),
    "lengths": tensor(3, least=2, most=5),
    "few": Given("`few`", elements=7),
    "axis": Given("`axis`", value=1),
    "on": Given("True", value=1),
    "off": Given("False", value=0),
}


@pytest.mark.parametrize(
    ("comparison", "values"),
    [
        ("numel(mean) == size(input, 1)", (16, 32)),
        ("numel(mean) == size(input, axis)", (16, 32)),
        ("numel(mean) == size(input, 1) if on", (16, 32)),
        ("numel(few) == size(input, -1)", (7, 8)),
        ("least_sum(lengths) <= size(input, 0)", (9, 4)),
        ("max(lengths) < size(input, 0)", (5, 4)),
        ("min(lengths) >= 3", (2, 3)),
        ("2 * numel(mean) == size(input, 1) * size(input, 1) - size(input, 1)", (32, 992)),
    ],
)
def test_comparison_that_does_not_hold_is_broken(comparison: str, values: tuple[int, int]) -> None:
    found = broken(comparison, GIVEN)
    assert found is not None and (found.left.value, found.right.value) == values


@pytest.mark.parametrize(
    "comparison",
    [
        "numel(mean) == 16",  # holds
        "numel(mean) == size(input, 1) if off",  # does not apply
        "numel(mean) == size(input, 1) if missing",
        "numel(mean) == size(input, 7)",  # not known
        "numel(missing) == size(input, 1)",
        "size(few, 0) == 1",
        "max(mean) < 1",
        "numel(mean) == axes",
    ],
)
def test_what_holds_or_is_not_known_is_not_broken(comparison: str) -> None:
    assert broken(comparison, GIVEN) is None


def test_every_stored_comparison_is_of_arguments_of_its_operator() -> None:
    """And is one that can be evaluated."""
    for name, entry in preconditions().items():
        known = entry.arguments.split()
        for text in entry.must:
            comparison, _, condition = text.partition(" if ")
            names = {item.id for item in ast.walk(ast.parse(comparison)) if isinstance(item, ast.Name)}
            assert names - {"size", "numel", "min", "max", "least_sum"} <= set(known), (name, text)
            assert not condition or condition in known, (name, text)
            all_known = {argument: tensor(2, 3, 4, 5, least=1, most=2) for argument in known}
            numbers = {argument: Given(argument, value=1) for argument in known}
            broken(comparison, all_known)
            broken(comparison, numbers)


@pytest.mark.parametrize(
    ("comparison", "code"),
    [
        ("max(targets) < size(log_probs, -1)", "ids[keep].max() < self.out.size(-1)"),
        ("numel(weight) == size(log_probs, dim)", "w.numel() == self.out.size(0)"),
        ("least_sum(targets) <= size(log_probs, 0)", "ids[keep].sum() <= self.out.size(0)"),
        ("max(targets) < size(missing, 0)", None),
        ("max(targets) < size(empty, 0)", None),
        ("numel(weight) == 1 if dim", None),
    ],
)
def test_comparison_is_written_as_the_program_would(comparison: str, code: str | None) -> None:
    texts = {"targets": "ids[keep]", "log_probs": "self.out", "weight": "w", "dim": "0", "empty": "None"}
    assert as_code(comparison, texts) == code


def test_comparison_is_decided_where_all_of_it_is_known() -> None:
    assert is_decided("numel(mean) == 16", GIVEN) and is_decided("numel(mean) == 4", GIVEN)
    assert not is_decided("max(mean) < 1", GIVEN) and not is_decided("numel(mean) == 16 if off", GIVEN)
