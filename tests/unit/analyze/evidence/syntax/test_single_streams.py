"""A data set whose `__iter__` gives back one iterator each time, and others that make a new one."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.single_streams import single_stream, stream_of_loader

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


LOADED = FRAMES.format(made="map(load, paths)", given="self.stream")


@pytest.mark.parametrize(
    ("loader", "named"),
    [
        ("DataLoader(Frames(paths), batch_size=8)", True),
        ("DataLoader(Frames(paths), num_workers=2, persistent_workers=True)", True),
        ("DataLoader(Frames(paths), num_workers=2)", False),
        ("DataLoader(Frames(paths), num_workers=args.workers)", False),
        ("DataLoader(TensorDataset(rows), batch_size=8)", False),
        ("DataLoader(frames, batch_size=8)", False),
    ],
)
def test_stream_is_that_of_the_loader_and_of_no_workers_that_are_forked_anew(loader: str, named: bool) -> None:
    assert (stream_of_loader(ast.parse(f"{LOADED}loader = {loader}\n"), None) is not None) is named


@pytest.mark.parametrize(
    "more",
    ["loader = DataLoader(Frames(paths))\nframes.stream = read(paths)\n", "DataLoader(Frames(a)); DataLoader(b)\n"],
)
def test_stream_that_is_made_anew_elsewhere_or_one_of_two_is_none(more: str) -> None:
    assert stream_of_loader(ast.parse(LOADED + more), None) is None


@pytest.mark.parametrize("made", ["map(load, itertools.cycle(paths))", "zip(paths, count())"])
def test_endless_iterator_is_not_used_up(made: str) -> None:
    assert single_stream(ast.parse(FRAMES.format(made=made, given="self.stream"))) is None
