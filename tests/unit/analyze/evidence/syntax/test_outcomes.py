"""A condition with recorded values: held, did not, or cannot be told."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.outcomes import outcome

VALUES = {
    "step": "20",
    "best": "0.25",
    "loss": "nan",
    "done": "True",
    "self.bad": "4",
    "queue": "list of 3",
    "nothing": "list of 0",
    "resume": "None",
    "state['epoch']": "-2",
    "x": "[2, 3] float32",
}


@pytest.mark.parametrize(
    ("test", "held"),
    [
        ("step % 10 == 0", True),
        ("step // 7 > 3", False),
        ("self.bad > 3", True),
        ("best < 0.1", False),
        ("loss < 1.0", False),
        ("loss == loss", False),
        ("done", True),
        ("not done", False),
        ("queue", True),
        ("not nothing", True),
        ("len(queue) == 3", True),
        ("resume is None", True),
        ("resume is not None", False),
        ("resume", False),
        ("queue is not None", True),
        ("state['epoch'] < 0", True),
        ("0 < step < 30", True),
        ("0 < step < 10 < unknown", False),
        ("-step < 0", True),
        ("done and step > 30", False),
        ("unknown and step > 30", False),
        ("unknown or done", True),
        ("bool(nothing)", False),
    ],
)
def test_condition_comes_out_by_its_values(test: str, held: bool) -> None:
    """Lengths, numbers, truth values and None."""
    assert _outcome(test) is held


@pytest.mark.parametrize(
    "test",
    [
        "unknown",
        "unknown and done",
        "x",
        "x.mean() > 0",
        "step % unknown == 0",
        "step / nothing > 1",
        "step % 0 == 0",
        "resume > 3",
        "done is True",
        "queue == other",
        "len(step) == 3",
        "step in queue",
        "'a' == 'a'",
        "f(step)",
    ],
)
def test_what_is_not_recorded_is_not_guessed(test: str) -> None:
    """Nor what would raise."""
    assert _outcome(test) is None


def _outcome(test: str) -> bool | None:
    node = ast.parse(test, mode="eval").body
    return outcome(node, lambda item: VALUES.get(ast.unparse(item)))
