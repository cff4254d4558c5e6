"""Offsets that count elements or bytes are named with the line that counts; a factor that may be chance is not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary
from tests.support.synth import Box

OFFSETS, ROWS, DATA, WILD = 0x5581_0000_1000, 0x5581_0010_0000, 0x5581_0020_0000, 0x1357_9BDF_0240
STACK = [
    (s.TORCH_CPU, "at::native::_segment_reduce_offsets_cpu_kernel(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::segment_reduce::call(at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
HEAD = """import numpy as np
import torch


def pool(h, hits, ends):
    return torch.segment_reduce(h, "mean", offsets=ends, axis=0)


"""
SAVED = """class Writer:
    def __init__(self, base):
        self.base = base

    def write(self, events):
        sizes = [0]
        for event in events:
            sizes.append({counts})
        np.save(self.base + ".{name}", np.cumsum(sizes))


def load(base):
    return torch.from_numpy(np.load(base + ".ends.npy"))


def main(base, h, hits):
    ends = load(base)
    return pool(h, hits, ends)
"""
MADE = """def main(events, h, hits):
    ends = torch.tensor([0] + [{counts} for event in events]).cumsum(0)
    return pool(h, hits, ends)
"""


def tensor(base: int, *sizes: int) -> Argument:
    elements = 1
    for size in sizes:
        elements *= size
    return Argument(
        base ^ 0xFF, base, elements, 0, sizes, len(sizes), "float32", "cpu", minimum=None, maximum=None, frame=0,
        outer_frame=2, register=None, how="reference",
    )  # fmt: skip


def report_of(run: Path, text: str, highest: int, columns: int = 48) -> Report:
    """Of 1000 rows."""
    script = run / "train.py"
    script.write_text(HEAD + text, encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    last = len((HEAD + text).splitlines())
    frames = [("pool", str(script), 6), ("main", str(script), last)]
    frame = PythonFrame("pool", str(script), 6)
    held = [("h", ROWS, 64000), ("hits", DATA, 1000 * columns), ("ends", OFFSETS, 21)]
    holders = tuple(Holder("local", name, base, frame, True, elements=elements) for name, base, elements in held)
    ends = replace(tensor(OFFSETS, 21), dtype="int64", minimum=0, maximum=highest)
    box = Box(pid=101).alloc(OFFSETS, 168).alloc(ROWS, 256000).alloc(DATA, 4000 * columns)
    return died(
        run, box=box, python=frames, holders=holders,
        arguments=(tensor(ROWS, 1000, 64), tensor(DATA, 1000, columns), ends), addr=WILD, registers={"rdx": WILD},
        mappings=[PROGRAM], stack_of=STACK,
    )  # fmt: skip


def test_offsets_that_count_elements_are_followed_through_the_file_that_the_program_saved(run: Path) -> None:
    """The line that counts, the line that saves them, and the line that reads them."""
    report = report_of(run, SAVED.format(counts="event.size", name="ends"), 48000)
    assert "it counts the elements of `hits` [1000, 48], 48 for each row, where rows are meant" in summary(report)
    assert "line 16 in Writer.write counts elements (`event.size`, where `len(event)` is its rows)" in advice(report)
    assert "line 17 saves them, and line 21 in load reads them. Else pass `ends // 48` at line 6" in advice(report)


def test_line_that_saves_another_file_is_not_followed(run: Path) -> None:
    report = report_of(run, SAVED.format(counts="event.size", name="begins"), 48000)
    assert "it counts the elements of `hits`" in summary(report)
    assert "event.size" not in advice(report) and "Count rows where `ends` is made" in advice(report)


@pytest.mark.parametrize(
    ("counts", "factor", "unit", "words"),
    [
        ("event.numel()", 48, "elements", "(`event.numel()`, where `len(event)` is its rows)"),
        ("np.prod(event.shape)", 48, "elements", "(`np.prod(event.shape)`, where `len(event)` is its rows)"),
        ("event.nbytes", 192, "bytes", "(`event.nbytes`, where `len(event)` is its rows)"),
    ],
)
def test_what_counts_is_named(counts: str, factor: int, unit: str, words: str, run: Path) -> None:
    report = report_of(run, MADE.format(counts=counts), factor * 1000)
    assert f"it counts the {unit} of `hits` [1000, 48], {factor} for each row, where rows" in summary(report)
    assert words in advice(report)


def test_bytes_are_not_laid_to_a_line_that_counts_elements(run: Path) -> None:
    report = report_of(run, MADE.format(counts="event.numel()"), 192000)
    assert "it counts the bytes of `hits`" in summary(report) and "numel" not in advice(report)


@pytest.mark.parametrize(
    ("highest", "columns"),
    [
        (2000, 48),  # twice as many, and no tensor has two in a row
        (48001, 48),  # no multiple
        (4000, 4),  # the offsets of all of 4 shares, perhaps
        (4000, 3),  # bytes of nothing
    ],
)
def test_factor_that_may_be_chance_is_not_taken_for_elements(highest: int, columns: int, run: Path) -> None:
    report = report_of(run, MADE.format(counts="len(event)"), highest, columns)
    assert "where rows are meant" not in summary(report) and "`ends` [21] holds" in summary(report)
    assert ("see whether it counts these" in advice(report)) == (columns == 4)


def test_small_factor_counts_where_a_line_is_seen_to_count(run: Path) -> None:
    report = report_of(run, MADE.format(counts="event.numel()"), 4000, 4)
    assert "it counts the elements of `hits` [1000, 4], 4 for each row" in summary(report)


@pytest.mark.parametrize(
    ("counts", "highest", "named"),
    [
        ("event.numel()", 1200, True),  # of the first of several batches, which ends below the last row
        ("len(event)", 1200, False),  # a multiple by chance
        ("event.numel()", 1201, False),
        ("event.numel()", 48048, False),  # more rows than there are
    ],
)
def test_part_of_the_offsets_counts_where_a_line_is_seen_to_count(
    counts: str, highest: int, named: bool, run: Path
) -> None:
    report = report_of(run, MADE.format(counts=counts), highest)
    assert ("it counts the elements of `hits` [1000, 48], 48 for each row" in summary(report)) == named
    assert ("Count rows: line 10 in main counts elements" in advice(report)) == named


DERIVED = """class Writer:
    def __init__(self, base):
        self.base = base
        self.file = open(base + ".f32", "wb")
        self.ends = [0]

    def add(self, event):
        self.ends.append(self.ends[-1] + len(event))

    def close(self):
        np.save(self.base + ".ends.npy", np.array(self.ends))


class Stream(Writer):
    def finish(self):
        self.ends.append(self.file.tell())


def load(base):
    return torch.from_numpy(np.load(base + ".ends.npy"))


def main(base, h, hits):
    ends = load(base)
    return pool(h, hits, ends)
"""


def test_place_in_a_file_that_a_derived_class_takes_for_rows(run: Path) -> None:
    """The other lines count rows: the one that is passed them must not divide."""
    report = report_of(run, DERIVED, 192 * 7)
    assert "it counts the bytes of `hits` [1000, 48], 192 for each row, where rows are meant" in summary(report)
    assert "line 24 in Stream.finish counts bytes (`self.file.tell()`), line 19 saves them" in advice(report)
    assert "Else pass" not in advice(report)


def test_derived_class_that_counts_rows_is_not_blamed(run: Path) -> None:
    report = report_of(run, DERIVED.replace("self.file.tell()", "self.ends[-1] + 20"), 192 * 7)
    assert "where rows are meant" not in summary(report)
