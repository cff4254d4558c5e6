"""SIGALRM and its like, by which a process's own timer ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.synth import Box


def ended(run: Path, code: int | None, sender: int = 0) -> Report:
    """A process that SIGALRM ended; `code`: of its siginfo, where that was recorded."""
    parent = Box(pid=90, ppid=80, argv=["sh"]).at(900).wait(91, signal=14).exit(142)
    box = Box(pid=91, ppid=90, argv=["python", "train.py"]).versions(torch="2.13.0").at(500).mark("step 3")
    if code is not None:
        box.at(890).signal_seen(14, sender, ["kill"], code=code)
    return build_report(s.load(run, parent, box))


@pytest.mark.parametrize(
    ("code", "sender", "class_", "confidence"),
    [
        (128, 0, "timer", "certain"),
        (-2, 0, "timer", "certain"),
        (None, 0, "timer", "likely"),
        (0, 77, "external-kill", "certain"),
    ],
)
def test_signal_of_the_kernel_is_the_timer_s(
    code: int | None, sender: int, class_: str, confidence: str, run: Path
) -> None:
    """By its siginfo (SI_KERNEL, SI_TIMER); unknown where it was not recorded. The look-alike: kill() sent it."""
    verdict = ended(run, code, sender).verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == (class_, confidence), verdict.summary
    assert ("when it came" in (verdict.summary or "")) == (class_ == "timer")
