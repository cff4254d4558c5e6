"""standing_steps: steps of 0 and other passes that leave a loop's condition as it is, by values, and what may be."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.standing_steps import may_stand, standing_steps
from pytracer.analyze.evidence.syntax.unbounded import Reason, loops_at


def found(body: str, values: dict[str, object], head: str = "while at > low or up > low") -> Reason | None:
    """Of a function with the loop at line 2."""
    text = "def draw(at, up, low, size, height, rows):\n    " + head + ":\n"
    tree = ast.parse(text + "".join(f"        {line}\n" for line in body.splitlines()))
    scope = scope_of(tree, 2)
    known = {name: str(value) for name, value in values.items()}
    return standing_steps(scope, loops_at(scope, 2)[0], lambda node: known.get(ast.unparse(node)))


def possible(body: str, head: str = "while at > low", **values: object) -> Reason | None:
    text = "def draw(at, up, low, size, height, rows):\n    " + head + ":\n"
    tree = ast.parse(text + "".join(f"        {line}\n" for line in body.splitlines()))
    scope = scope_of(tree, 2)
    known = {name: str(value) for name, value in values.items()}
    return may_stand(scope, loops_at(scope, 2)[0], lambda node: known.get(ast.unparse(node)))


FALLS = "at -= 3 * size // height\nup -= 2 * height // size"
AT: dict[str, object] = {"at": 13, "up": -900, "low": -1, "size": 30, "height": 127}


def test_a_step_of_zero_keeps_one_side_of_an_or_true() -> None:
    reason = found(FALLS, AT)
    assert reason is not None and reason.sure and reason.spins
    assert "`at` stays 13, and `at > low` true: line 3 (`at -= 3 * size // height`) takes 0 from it" in reason.words
    assert reason.words.endswith("where `height` is 127 and `size` is 30")
    assert "`at -= max(1, 3 * size // height)`, and line 4 alike" in reason.advice


def test_a_step_that_is_not_zero_is_work() -> None:
    """The look-alike: the same loop, not yet at its end."""
    assert found(FALLS, {**AT, "size": 60}) is None


def test_an_and_needs_all_its_sides() -> None:
    head = "while at > low and up > low"
    assert found(FALLS, {**AT, "up": 900}, head) is None
    assert found("at -= 0 * size", {**AT, "up": 900}, head) is not None


@pytest.mark.parametrize(
    "body",
    [
        "at -= size // height\nat -= 1",
        "at -= size // height\nfor at in rows:\n    pass",
        "size = measure()\nat -= size // height",
        "size += 1\nat -= size // height",
        "at -= size // height\nif stop():\n    break",
        "at -= size // height\nyield at",
        "at -= rows[0] // height",
    ],
)
def test_what_may_end_it_all_the_same_proves_nothing(body: str) -> None:
    assert found(body, {**AT, "up": -900}, "while at > low") is None


def test_a_value_that_is_halved_stays_at_its_end() -> None:
    """`while at != 1` with 0; a float that is too large for its step."""
    reason = found("at = at // 2", {"at": 0}, "while at != 1")
    assert reason is not None and "gives that value again" in reason.words and "max(1" not in reason.advice
    reason = found("at += 1e-9", {"at": "100000000.0", "low": "2e8"}, "while at < low")
    assert reason is not None and "adds 1e-09 to it, too little to change a float of that size" in reason.words
    assert found("at = at // 2", {"at": 9}, "while at != 1") is None


def test_the_only_exit_of_an_endless_while_is_a_condition_as_well() -> None:
    assert found("at += size // height\nif at >= up:\n    break", {**AT, "up": 90}, "while True") is not None
    assert found("at += size // height\nif at >= up:\n    break", {**AT, "up": 9}, "while True") is None


def test_a_list_that_stays_as_long_is_not_known_to_stay() -> None:
    """The look-alike: a method may change its items."""
    assert found("at -= 0\nrows.pop()", {**AT, "rows": "list of 4"}, "while rows") is None


def test_without_values_a_rounded_step_may_be_zero() -> None:
    reason = possible("at -= size // height")
    assert reason is not None and not reason.sure and not reason.spins
    assert "which is nothing where `size` is less than `height`" in reason.words
    assert "`at -= max(1, size // height)`" in reason.advice


@pytest.mark.parametrize(
    "body", ["at -= 1", "at -= max(1, size // height)", "at -= size", "at -= size // height\nat -= 1"]
)
def test_steps_that_are_not_rounded_are_not_suspected(body: str) -> None:
    assert possible(body) is None


def test_a_rounded_step_that_is_known_is_not_suspected() -> None:
    assert possible("at -= size // height", size=300, height=127) is None
    assert possible("at -= size // height", size=30, height=127) is not None
