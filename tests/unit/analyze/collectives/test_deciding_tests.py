"""What is said of the `if` that one rank passed by: whose clock, generator or data it asks."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.collectives.deciding_tests import DECIDE, change_of_test

SOURCE = """import time, random
from datetime import datetime
def save(self, step, items):
    {above}
    if {test}:
        pass
"""


def said(test: str, above: str = "pass") -> str:
    """Of the only `if` of the program."""
    tree = ast.parse(SOURCE.format(test=test, above=above))
    return change_of_test(next(item for item in ast.walk(tree) if isinstance(item, ast.If)), tree)


@pytest.mark.parametrize(
    ("test", "above", "clock"),
    [
        ("time.monotonic() - self.last > self.every", "pass", "time.monotonic()"),
        ("passed > 60", "passed = time.time() - self.last", "time.time()"),
        ("(datetime.now() - self.begun).seconds > 60", "pass", "datetime.now()"),
    ],
)
def test_clock_of_each_rank(test: str, above: str, clock: str) -> None:
    """Not files, options or data."""
    assert said(test, above).startswith(f"each rank reads its own clock (`{clock}`)")


@pytest.mark.parametrize(
    ("test", "above"),
    [
        ("passed > 60", "passed = shared(time.time() - self.last)"),
        ("stop[0]", "stop = [time.time() - self.last > 60]; dist.broadcast_object_list(stop)"),
        ("batch is None", "batch = take(until=time.time() + 5)"),
    ],
)
def test_clock_that_is_handed_on_is_not_blamed(test: str, above: str) -> None:
    """What takes it may make it the same on all ranks, or give something else."""
    assert said(test, above) == DECIDE


@pytest.mark.parametrize("test", ["step % 10 == 0", "self.time() > 3", "self.clock.now() > 3"])
def test_other_conditions_read_no_clock(test: str) -> None:
    """A count, methods of the program's objects."""
    assert said(test) == DECIDE
