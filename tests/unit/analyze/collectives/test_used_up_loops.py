"""A loop ended for want of items only where nothing else can have ended it. tests/corpus: v106_fsdpval."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives import used_up_loops
from pytracer.analyze.collectives.used_up_loops import _ends_by
from pytracer.analyze.evidence.syntax.loops import loops_around


def ends(source: str) -> bool:
    """Whether the `if` statements with a `break` of the loop around line 4 are all that may end it early."""
    tree = ast.parse(source)
    loop = loops_around(tree, 4)[0]
    tests = [
        item
        for item in ast.walk(loop)
        if isinstance(item, ast.If) and any(isinstance(part, ast.Break) for part in item.body)
    ]
    return _ends_by(tree, loop, tests)


HEAD = "def validate(loader, most):\n    for i, x in enumerate(loader):\n"


@pytest.mark.parametrize(
    "body",
    [
        "        if i >= most:\n            break\n        step(x)\n",
        "        if i >= most:\n            print(i)\n            break\n        for part in x:\n            break\n",
    ],
)
def test_conditions_are_all_that_ends_the_loop(body: str) -> None:
    """A `break` of a loop inside ends that one."""
    assert ends(HEAD + body)


@pytest.mark.parametrize(
    "body",
    [
        "        if i >= most:\n            break\n        else:\n            break\n",
        (
            "        if i >= most:\n            break\n        try:\n            step(x)\n"
            "        except ValueError:\n            break\n"
        ),
        (
            "        if i >= most:\n            break\n        for part in x:\n            step(part)\n"
            "        else:\n            break\n"
        ),
    ],
)
def test_other_breaks_may_have_ended_it(body: str) -> None:
    """In an `else`, in a handler, and behind a loop inside."""
    assert not ends(HEAD + body)


def test_handler_around_the_loop_may_have_ended_it() -> None:
    """An exception leaves it as well, and the rank goes on behind the `try`."""
    loop = "        for i, x in enumerate(loader):\n            if i >= most:\n                break\n"
    assert not ends(f"def validate(loader, most):\n    try:\n{loop}    except OSError:\n        pass\n")
    assert not ends(f"def validate(loader, most):\n    with suppress(OSError):\n{loop}")
    assert ends(f"def validate(loader, most):\n    with torch.no_grad():\n{loop}")


@pytest.mark.parametrize(("head", "first"), [("range(1, n + 1)", 1), ("range(n)", 0), ("enumerate(loader)", 0)])
def test_rounds_are_counted_from_the_first_number(head: str, first: int) -> None:
    """`for i in range(1, n + 1)` has had three when `i` is 3."""
    tree = ast.parse(f"def fit(loader, n):\n    for i in {head}:\n        step()\n")
    assert used_up_loops._first(loops_around(tree, 3)[0]) == first


def compared_loop(head: str, pairs: dict[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A side, and the loop `for epoch in head`; `pairs`: what both ranks have of an expression."""
    tree = ast.parse(
        f"def fit(self):\n    for epoch in {head}:\n        step()\n        if stop(): break\n    save()\n"
    )
    compared = SimpleNamespace(
        slice=SimpleNamespace(spot=lambda depth: "spot"), pair=lambda node, spot: pairs.get(ast.unparse(node))
    )
    monkeypatch.setattr(used_up_loops, "Compared", lambda *sides: compared)
    monkeypatch.setattr(used_up_loops, "may_have_changed", lambda *given: False)
    side: Any = SimpleNamespace(view=None, call=None, way=[SimpleNamespace(line=5)])
    return side, loops_around(tree, 3)[0]


@pytest.mark.parametrize(
    ("head", "pairs", "more"),
    [
        ("range(self.max_epochs)", {"epoch": ("4", "3"), "self.max_epochs": ("40", "40")}, True),
        ("range(5)", {"epoch": ("4", "3")}, True),
        ("range(self.max_epochs)", {"epoch": ("4", "3"), "self.max_epochs": ("9", "4")}, False),
        ("range(self.max_epochs)", {"epoch": ("4", "3")}, False),
        ("range(self.max_epochs)", {"self.max_epochs": ("40", "40")}, False),
        ("range(0, 40, 5)", {"epoch": ("4", "3")}, False),
        ("enumerate(loader)", {"epoch": ("4", "3")}, False),
    ],
    ids=["many left", "a number", "its last", "end not known", "round not known", "steps", "no range"],
)
def test_loop_over_a_range_was_left_before_its_end(
    head: str, pairs: dict[str, tuple[str, str]], more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where the last round of the rank behind it, and how many it has, are recorded."""
    side, loop = compared_loop(head, pairs, monkeypatch)
    assert used_up_loops.has_more_rounds(side, side, 0, loop) == more


@pytest.mark.parametrize(
    ("head", "pairs", "later"),
    [
        ("range(self.max_epochs)", {"epoch": ("4", "3")}, True),
        ("range(start, self.max_epochs)", {"epoch": ("4", "3")}, False),
        ("range(self.max_epochs)", {"epoch": ("4", "4")}, False),
        ("range(self.max_epochs)", {}, False),
        ("range(self.max_epochs, 0, -1)", {"epoch": ("4", "3")}, False),
        ("enumerate(loader)", {"epoch": ("4", "3")}, False),
    ],
    ids=["later", "begins elsewhere", "same round", "not known", "downwards", "no range"],
)
def test_rank_in_a_loop_is_in_a_later_round_than_the_other_had(
    head: str, pairs: dict[str, tuple[str, str]], later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a range of the same end had not ended for that one, whatever the end is."""
    side, loop = compared_loop(head, pairs, monkeypatch)
    assert used_up_loops.is_in_later_round(side, side, 0, loop) == later
