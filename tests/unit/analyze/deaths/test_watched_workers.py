"""Workers that a thread of their parent's ended one after the other: the first of them is the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.synth import Box
from tests.unit.analyze.deaths.test_raising_parents import PARENT, send, sending

FIRST, SECOND = 101, 102
GUARD = [("Guard.run", s.SCRIPT, 53)]
LOST = f"DataLoader worker (pid(s) {FIRST}) exited unexpectedly"


@pytest.mark.parametrize("watched", [True, False])
def test_workers_that_one_watcher_killed_are_not_each_others_consequence(watched: bool, run: Path) -> None:
    """When each was ended is known only as far as its parent looked: neither death explains the other. The look-alike:
    one died by itself, and the parent ended the other one.
    """
    parent = Box(pid=PARENT, ppid=99, argv=["python", "train.py"]).at(990).wait(FIRST, signal=9)
    parent.at(1000).exception("RuntimeError", LOST, [("epoch", s.SCRIPT, 72)]).at(1100).wait(SECOND, signal=9).exit(1)
    one = Box(pid=FIRST, ppid=PARENT).at(800).mark("step")
    two = Box(pid=SECOND, ppid=PARENT).at(800).mark("step")
    sends = [send(parent, two, 950, GUARD, number=9), *([send(parent, one, 900, GUARD, number=9)] if watched else [])]
    report = build_report(sending(s.load(run, parent, one, two), *sends))
    primary = {item.pid: item.primary for item in report.processes or []}
    assert report.verdict is not None and report.verdict.pid == FIRST, primary
    assert report.verdict.class_ == "external-kill" or not watched
