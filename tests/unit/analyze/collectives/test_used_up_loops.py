"""A loop ended for want of items only where nothing else can have ended it. tests/corpus: v106_fsdpval."""

from __future__ import annotations

import ast

import pytest

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
