"""Loops that end only by the answer of an object, by syntax alone."""

from __future__ import annotations

import ast
import textwrap

import pytest

from pytracer.analyze.evidence.syntax.polling import polling_loop

PENDING = "while pending:\n    pending = [w for w in pending if not w.is_completed()]"
REMOVED = "while len(works) > 0:\n    for w in works[:]:\n        if w.is_completed():\n            works.remove(w)"
POPPED = "while works:\n    if works[0].is_completed():\n        works.pop(0)\n    sleep(1)"
DONE = "while True:\n    done = [w for w in works if w.is_completed()]\n    if done:\n        return done\n    sleep(1)"


@pytest.mark.parametrize(
    ("loop", "objects"),
    [
        ("while not work.is_completed():\n    sleep(1)", ["work"]),
        ("while not all(w.is_completed() for w in works):\n    step()", ["w"]),
        ("while any(not w.is_completed() for w in works):\n    step()", ["w"]),
        ("while not self.sent.is_completed() or not self.got.is_completed():\n    step()", ["self.sent", "self.got"]),
        ("while True:\n    if work.is_completed():\n        break\n    step()", ["work"]),
        ("while True:\n    if not work.is_completed():\n        continue\n    else:\n        return 1", ["work"]),
        ("for n in itertools.count():\n    if work.is_completed() and n:\n        break", ["work"]),
        (PENDING, ["w"]),
        (REMOVED, ["w"]),
        (POPPED, ["works[0]"]),
        (DONE, ["w"]),
    ],
)
def test_loop_that_only_an_answer_ends_is_found(loop: str, objects: list[str]) -> None:
    """By its head, the `if` around what leaves it, or what is taken out of its list."""
    found = _found(loop)
    assert found == objects


@pytest.mark.parametrize(
    "loop",
    [
        "while not work.is_completed() and time() < end:\n    sleep(1)",
        "while not work.is_completed():\n    if late():\n        break",
        "while not work.is_completed():\n    if late():\n        raise TimeoutError",
        "while not any([work.is_completed(), late()]):\n    sleep(1)",
        "while True:\n    if work.is_completed() or late():\n        break",
        "while True:\n    work.is_completed()\n    sleep(1)",
        "while running:\n    print(work.is_completed())",
        "while works:\n    if works[0].is_completed():\n        done()\n    works.pop(0)",
        "while works:\n    works = [w for w in works if not w.is_completed() and not late()]",
        "while works:\n    works = more()\n    work.is_completed()",
        "for w in works:\n    if w.is_completed():\n        break",
        "while not work.done():\n    sleep(1)",
    ],
)
def test_loop_that_may_end_otherwise_is_not_found(loop: str) -> None:
    """The look-alikes: a deadline, a list that is used up, another method."""
    assert _found(loop) is None


def _found(loop: str) -> list[str] | None:
    tree = ast.parse(f"def run(works, work, pending):\n{textwrap.indent(loop, '    ')}\n")
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    found = polling_loop(function, 2, "is_completed")
    return [ast.unparse(item) for item in found.objects] if found is not None else None
