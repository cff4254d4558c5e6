"""The lock of a torch extension whose build the program killed: who waits for it is the verdict, and not the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

BATON = "/usr/lib/python3.11/site-packages/torch/utils/file_baton.py"
LOADS: list[Frame] = [("FileBaton.wait", BATON, 50), ("load_op", s.SCRIPT, 38), ("main", s.SCRIPT, 60)]
OTHER: list[Frame] = [("Event.wait", "/usr/lib/python3.11/threading.py", 629), ("main", s.SCRIPT, 12)]
KILL = 9


def job(run: Path, stack: list[Frame] = LOADS, *, built: bool = False, sender: int = 101) -> Report:
    """Process 101 had started 102, which ran ninja (103), and ended both after 12 s, or was let wait for their end."""
    main = parent().at(100).doing("stage", "warm-up")
    helper = Box(pid=102, ppid=101, argv=["python", "train.py", "--prebuild"]).versions(python="3.11.7").at(200)
    ninja = Box(pid=103, ppid=102, argv=["ninja", "-v"]).at(300)
    if built:
        ninja.at(12_000).exit(0)
        helper.at(12_000).exit(0)
        main.at(12_100).wait(102, exit_code=0)
    else:
        for box in (helper, ninja):
            box.at(12_000).signal_seen(15, sender, ["python", "train.py"])
            box.crash(signal=15, code=0, sender_pid=sender, python=(), native=())
        main.at(12_100).wait(102, signal=15)
    return ended(run, stopped(main, stack), helper, ninja)


def test_build_that_the_program_killed_left_its_lock(run: Path) -> None:
    """The helper of a helper, too, was ended by the program itself, which went on."""
    report = job(run)
    assert verdict(report)[0] == "hang"
    assert "waited for a lock file at train.py:38 in load_op: its builder, process 102 (train.py), had" in summary(
        report
    )
    assert "Delete `lock` in the build folder of that extension" in advice(report)


@pytest.mark.parametrize(("stack", "built"), [(LOADS, True), (OTHER, False)])
def test_lock_of_a_build_that_ended_well_and_other_waits_are_not_told_so(
    stack: list[Frame], built: bool, run: Path
) -> None:
    """Another job may hold it; and who waits for something else."""
    assert "its builder" not in summary(job(run, stack, built=built))


def test_build_that_somebody_else_killed_leads(run: Path) -> None:
    """The look-alike: it may have been what the program needed."""
    assert verdict(job(run, sender=77))[0] == "external-kill"


@pytest.mark.parametrize("builder", ["the time limit's", "itself"])
def test_build_that_ended_with_the_one_that_waits_was_going_on(builder: str, run: Path) -> None:
    """One rank builds, and all others wait: nothing is left behind before the same signal ends them."""
    main, helper = (
        parent().at(100),
        Box(pid=102, ppid=90, argv=["python", "train.py"]).versions(python="3.11.7").at(200),
    )
    ninja = Box(pid=103, ppid=101 if builder == "itself" else 102, argv=["ninja", "-v"]).at(300)
    if builder == "itself":
        ninja.at(3_000).exit(0)
    else:
        ninja.at(60_000).signal_seen(15, 90, ["timeout"]).crash(signal=15, code=0, sender_pid=90, python=(), native=())
    report = ended(run, stopped(main, LOADS), stopped(helper, OTHER), ninja)
    assert "its builder" not in summary(report)
