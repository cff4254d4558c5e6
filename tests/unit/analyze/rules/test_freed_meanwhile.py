"""freed-meanwhile: memory freed and allocated again by other threads while one used it; look-alikes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import Report
from tests.support.deaths import PID, PROGRAM, advice, died, finding, summary, verdict
from tests.support.synth import Box

RULE = "freed-meanwhile"
BASE, NBYTES = 0x7F50_0000_0000, 1 << 20
OTHER = 202
MAPERR, ACCERR = 1, 2
THERE = (BASE - 64, BASE + NBYTES, "rw-p", 0, "")
FREED, AGAIN = ("drop", "train.py", 12), ("take", "train.py", 13)


def report_of(run: Path, *, freed_in: int = OTHER, again_in: int = OTHER, again: bool = True, **crash: Any) -> Report:
    box = Box(pid=PID, ppid=99).thread(OTHER, "loader")
    box.at(10).alloc(BASE, NBYTES, ("make", "train.py", 5), tid=freed_in)
    box.at(20).free(BASE, FREED, tid=freed_in)
    if again:
        box.at(30).alloc(BASE, NBYTES, AGAIN, tid=again_in)
    how = {"addr": BASE + 512, "code": MAPERR, "mappings": [PROGRAM, THERE], **crash}
    return died(run, box=box, **how)


def test_three_lines_are_named(run: Path) -> None:
    """The line that used the memory is that of the crash; the other two are those of the other thread."""
    report = report_of(run)
    assert finding(report, RULE) is not None and verdict(report) == ("use-after-free", "likely")
    assert "that another thread freed at train.py:12 in drop meanwhile" in summary(report)
    assert "whose memory was allocated again at train.py:13 in take" in summary(report)
    assert "let train.py:12 in drop wait for it" in advice(report)


def test_race_that_went_on_is_the_same(run: Path) -> None:
    """When the handler read the map of memory, the hole was there again: not a tensor whose owner unmapped it."""
    report = report_of(run, mappings=[PROGRAM])
    assert finding(report, RULE) is not None and finding(report, "unmapped-storage") is None


@pytest.mark.parametrize(
    "other",
    [
        {"code": ACCERR},  # the memory was there: somebody has protected it
        {"freed_in": PID},  # the crashed thread freed it itself
        {"again_in": PID},
        {"mappings": [PROGRAM, (BASE - 64, BASE + NBYTES, "---p", 0, "")]},
    ],
)
def test_look_alikes_are_no_race(run: Path, other: dict[str, Any]) -> None:
    """Memory that is refused and not gone, and a thread that cannot have raced with itself."""
    assert finding(report_of(run, **other), RULE) is None


def test_memory_that_nobody_took_again_is_plainly_freed(run: Path) -> None:
    """use-after-free is certain of that."""
    report = report_of(run, again=False, mappings=[PROGRAM])
    assert finding(report, RULE) is None and finding(report, "use-after-free") is not None
