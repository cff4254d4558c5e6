"""Which lines end a wait: not those of another object that functions call alike."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.waits.waited_object import _are_several

PROGRAM = """def worker(q):
    q.get()
def feed(q):
    q.put(1)
def main():
    {made}
    Process(target=worker, args=(jobs,)).start()
    Process(target=feed, args=(results,)).start()
"""


@pytest.mark.parametrize(
    ("made", "several"),
    [
        ("jobs = mp.Queue(); results = mp.Queue()", True),
        ("jobs, results = mp.Queue(), mp.Queue()", True),
        ("jobs: mp.Queue = mp.Queue(); results: mp.Queue = mp.SimpleQueue()", True),
        ("jobs = results = mp.Queue()", True),
        ("jobs = mp.Queue(); results = jobs", False),
        ("jobs = mp.Queue(); results = []", False),
    ],
    ids=["two", "in one line", "with types", "one of two names", "passed on", "no queue"],
)
def test_queues_that_two_functions_call_alike_are_told_apart(made: str, several: bool) -> None:
    """Both are `q`: which of them a line of `feed` fills is not known, so that none is said to end the wait."""
    tree = ast.parse(PROGRAM.format(made=made))
    assert _are_several(tree, names_of_object(tree, "q"), "queue") == several
