"""Comparisons of what operators take for granted, for recorded arguments: broken, holds, or not decided."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.preconditions.terms import (
    Given,
    as_code,
    broken,
    holds,
    is_decided,
    left_number,
    unfit_numbers,
)
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
        ("max(lengths) < size(input, 0) if dim(lengths) == 1", (5, 4)),
        ("max(lengths) < size(input, 0) if max(lengths) != axis", (5, 4)),
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
        "max(lengths) < size(input, 0) if dim(lengths) == 2",
        "max(lengths) < size(input, 0) if max(lengths) != missing",
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
        known = [name for one in entry.arguments.split() for name in (one, *(f"{one}{at}" for at in entry.items(one)))]
        assert {*entry.why, *entry.fix} <= {*entry.must}, name
        assert {*entry.needs, *(flag.removeprefix("not ") for flag in entry.needs.values() if flag)} <= {*known}, name
        for text in entry.must:
            comparison, _, condition = text.partition(" if ")
            sides = [ast.parse(part) for part in (comparison, condition)]
            names = {item.id for side in sides for item in ast.walk(side) if isinstance(item, ast.Name)}
            assert names - {"size", "numel", "min", "max", "least_sum", "dim"} <= set(known), (name, text)
            all_known = {argument: tensor(2, 3, 4, 5, least=1, most=2) for argument in known}
            numbers = {argument: Given(argument, value=1) for argument in known}
            broken(text, all_known)
            broken(text, numbers)


PIXELS = {"self": tensor(2, 19, 8, 8), "ignore_index": Given("255", value=255)}


@pytest.mark.parametrize(
    ("operator", "given"),
    [
        ("nll_loss2d_backward", {**PIXELS, "target": tensor(2, 8, 8, least=0, most=255)}),
        ("_ctc_loss", {"log_probs": tensor(50, 4, 20), "targets": tensor(4, 30, least=-1, most=19)}),
        ("_scaled_dot_product_flash_attention_for_cpu", {"key": tensor(2, 4, 9, 16), "attn_mask": tensor(2, 1, 8, 1)}),
        (
            "scaled_dot_product_attention",
            {"query": tensor(2, 4, 8, 16), "key": tensor(1, 1, 9, 16), "value": tensor(2, 1, 9, 32)},
        ),
        ("native_batch_norm_backward", {"input": tensor(4, 32), "running_mean": tensor(1), "train": GIVEN["on"]}),
    ],
    ids=[
        *("ignored pixels", "padded targets", "a mask that is broadcast", "heads that are broadcast"),
        "statistics that are not used",
    ],
)
def test_what_operators_do_allow_is_not_broken(operator: str, given: dict[str, Given]) -> None:
    assert [text for text in preconditions()[operator].must if broken(text, given) is not None] == []


def test_values_without_a_key_each_are_broken() -> None:
    given = {"query": tensor(1, 4, 8, 16), "key": tensor(1, 4, 9, 16), "value": tensor(1, 4, 10, 16)}
    must = preconditions()["scaled_dot_product_attention"].must
    assert [text for text in must if broken(text, given)] == ["size(key, -2) == size(value, -2)"]


def test_class_beyond_the_last_is_broken() -> None:
    """The look-alike of ignored pixels."""
    given = {**PIXELS, "target": tensor(2, 8, 8, least=0, most=19)}
    found = [text for text in preconditions()["nll_loss2d_backward"].must if broken(text, given)]
    assert found == ["max(target) < size(self, 1) if max(target) != ignore_index"]


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


def test_comparison_is_judged_without_its_condition() -> None:
    """What holds needs no condition, and of what does not hold the numbers are known."""
    assert holds("max(lengths) < 9 if numel(unknown) == 1", GIVEN)
    assert not holds("max(lengths) < 5 if numel(unknown) == 1", GIVEN)
    assert unfit_numbers("max(lengths) < 5 if numel(unknown) == 1", GIVEN) == (5, 5)
    assert unfit_numbers("max(lengths) < 9 if numel(unknown) == 1", GIVEN) is None
    assert left_number("max(lengths) < size(unknown, 1)", GIVEN) == 5
    assert left_number("max(unknown) < size(input, 1)", GIVEN) is None


def test_what_is_implied_is_a_comparison() -> None:
    for entry in preconditions().values():
        for text in entry.implied:
            assert broken(text, {}) is None
