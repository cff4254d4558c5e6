"""A generator without end over a loader each of whose batches is left out, when a time limit ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box

SKIPS = """\
def cycle(loader, longest):
    while True:
        for x, lengths in loader:
            if lengths.max() > longest:
                continue
            yield x, lengths
"""


def report(run: Path, program: str, *, step_ms: float | None = 8_000) -> Report:
    """Ended at 60 s, at the test; its last step was at `step_ms`."""
    where = str(s.program_in(run, program))
    box: Box = parent()
    if step_ms is not None:
        box.at(step_ms).step(1)
    for number in range(50):
        box.at(59_000 + number).alloc(0x1000 + 0x1000000 * number, 1 << 12)
    return ended(run, stopped(box, [("cycle", where, 4), ("train", "/gone/train.py", 70)]))


def test_loop_whose_items_may_all_be_skipped(run: Path) -> None:
    """After the last step nothing passes the test any more."""
    found = report(run, SKIPS)
    assert verdict(found) == ("hang", "possible")
    assert "it yields only where `lengths.max() > longest` (line 4) is false" in summary(found)
    assert "where no item of `loader` is so, it goes round for ever" in summary(found)
    assert advice(found).startswith("Count how many items of `loader` one pass of line 3 skips")


def test_program_without_a_step_may_be_at_work(run: Path) -> None:
    """It is ended by the limit; what may go round is said all the same."""
    found = report(run, SKIPS, step_ms=None)
    assert verdict(found)[0] == "external-kill"
    assert "If it only takes long, raise the time limit." in advice(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [("lengths\n", "lengths\n        yield None\n"), ("while True", "while more()")],
    ids=["an item behind each pass", "an end"],
)
def test_other_loops_come_to_an_end(old: str, new: str, run: Path) -> None:
    source = SKIPS[: SKIPS.rindex(old)] + SKIPS[SKIPS.rindex(old) :].replace(old, new)
    assert "goes round for ever" not in summary(report(run, source))


def test_loop_that_had_just_done_a_step_is_at_work(run: Path) -> None:
    assert "goes round for ever" not in summary(report(run, SKIPS, step_ms=58_000))


def test_count_of_the_rounds_comes_out_otherwise_some_time(run: Path) -> None:
    """A warm-up is skipped, not each item."""
    counts = SKIPS.replace("lengths.max() > longest", "seen < longest")
    counts = counts.replace("                continue", "                seen += 1\n                continue")
    assert "goes round for ever" not in summary(report(run, counts))
