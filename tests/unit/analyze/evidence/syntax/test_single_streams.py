"""A data set whose `__iter__` gives back one iterator each time, and others that make a new one."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.single_streams import single_stream

FRAMES = """class Frames(IterableDataset):
    def __init__(self, paths):
        self.paths = paths
        self.stream = {made}
    def __iter__(self):
        return {given}
def read(paths):
    for path in paths:
        yield load(path)
"""


@pytest.mark.parametrize("made", ["(load(p) for p in paths)", "map(load, paths)", "iter(paths)", "read(paths)"])
@pytest.mark.parametrize("given", ["self.stream", "iter(self.stream)"])
def test_iterator_that_is_made_once_is_named(made: str, given: str) -> None:
    """Found by a twin: the loader was said to have too few samples from the beginning."""
    found = single_stream(ast.parse(FRAMES.format(made=made, given=given)))
    assert found is not None
    assert found.words.startswith("Frames.__iter__ gives back `self.stream` (line 6), an iterator that line 4 makes")
    assert found.advice.startswith("Make what line 4 makes in Frames.__iter__ (line 6), anew for each pass")


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("list(paths)", "iter(self.stream)"),
        ("[load(p) for p in paths]", "iter(self.stream)"),
        ("map(load, paths)", "map(load, self.paths)"),
        ("map(load, paths)", "read(self.paths)"),
    ],
)
def test_what_can_be_gone_through_again_is_none(made: str, given: str) -> None:
    assert single_stream(ast.parse(FRAMES.format(made=made, given=given))) is None
