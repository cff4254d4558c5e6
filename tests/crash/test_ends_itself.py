"""Processes that exit in the middle of work: the status is unchanged, and the report has the caller of the exit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_core
from tests.support.crash import line_of, own_frames, victim

pytestmark = [needs_core, needs_compiler]

PROGRAM = "ends_itself.py"
OS_EXIT = line_of(PROGRAM, "os._exit(code)")
CALL = line_of(PROGRAM, "library.open_device(0)")
GIVE_UP = line_of(PROGRAM, "give_up(3)")
BECAUSE = f"Line {GIVE_UP} leads there where `how == 'os_exit'` holds (line {GIVE_UP - 1})"


@pytest.mark.parametrize(
    ("how", "status", "says", "because"),
    [
        ("os_exit", 3, f"os._exit() was called at {PROGRAM}:{OS_EXIT} in give_up", BECAUSE),
        ("thread", 4, f"os._exit() was called at {PROGRAM}:{OS_EXIT} in give_up", ""),
        ("library", 7, f"exit() was called in open_device (libfaults.so), below {PROGRAM}:{CALL} in train", ""),
        ("watchdog", 8, "exit() was called in watch (libfaults.so)", ""),
    ],
)
def test_who_asked_for_the_end_is_named(how: str, status: int, says: str, because: str, run: Path) -> None:
    """Under preload, on any thread and in any language; with the condition around a line of the program."""
    plain = victim(PROGRAM, how, run=run, way="untraced")
    done = victim(PROGRAM, how, run=run)
    assert (done.status, done.stdout, done.stderr) == (plain.status, plain.stdout, plain.stderr)
    assert done.status == status
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("exit", "certain")
    assert report.verdict.summary == f"Process {done.pid} ({PROGRAM}) ended itself with exit status {status}: {says}."
    assert because in (report.verdict.advice or "") and ("leads there" in (report.verdict.advice or "")) == bool(
        because
    )
    assert done.box.crash is None and done.box.ending is not None
    assert done.box.exit_code == status


def test_worker_that_ends_itself_is_told_from_its_parent(run: Path) -> None:
    """The parent only passes its status on."""
    done = victim(PROGRAM, "worker", run=run)
    assert done.status == 5
    (worker,) = (box for box in done.boxes if box.ppid == done.pid)
    assert worker.ending is not None
    assert own_frames(worker.ending.python_stack)[0] == ("give_up", PROGRAM, OS_EXIT)
    verdict = done.report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.pid) == ("exit", worker.pid)


def test_worker_whose_work_has_ended_did_not_ask_for_it(run: Path) -> None:
    """multiprocessing ends a forked child by os._exit(), under the frames of its parent's start()."""
    done = victim(PROGRAM, "worker_in_order", run=run)
    assert done.status == 5
    report = done.report
    assert all(item.id != "ended-itself" for item in report.findings or [])
    assert report.verdict is not None
    assert report.verdict.class_ == "exit"
    assert "SystemExit was raised" in (report.verdict.summary or "")


@pytest.mark.parametrize("way", ["preload", "enable"])
def test_orderly_end_has_the_line_of_its_request(way: str, run: Path) -> None:
    """sys.exit() has unwound all frames when the process ends; its line was recorded before."""
    done = victim(PROGRAM, "in_order", run=run, way=way)
    assert done.status == 6
    assert done.box.ending is None
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "exit"
    assert "exit status 6: SystemExit was raised at" in (done.report.verdict.summary or "")


def test_end_of_a_ray_actor_is_known_by_its_function(run: Path) -> None:
    """ray::QuickExit() calls _exit(1) in healthy jobs; the look-alike is any other library (above)."""
    done = victim(PROGRAM, "actor", run=run)
    assert done.status == 1
    assert done.box.ending is not None
    report = done.report
    assert report.verdict is not None
    assert report.verdict.class_ == "clean"
    assert "1 of them ended by ray::QuickExit(), as its framework does" in (report.verdict.summary or "")
    assert "died" not in done.stderr


def test_library_that_exits_is_named_after_enable(run: Path) -> None:
    """Without preload exit() is recorded, and Python's os._exit(); that of a library is not."""
    done = victim(PROGRAM, "library", run=run, way="enable")
    assert done.status == 7
    assert done.report.verdict is not None
    assert "open_device (libfaults.so)" in (done.report.verdict.summary or "")
    done = victim(PROGRAM, "os_exit", run=run.with_name("second"), way="enable")
    assert done.status == 3
    assert done.report.verdict is not None
    assert f"os._exit() was called at {PROGRAM}:{OS_EXIT} in give_up" in (done.report.verdict.summary or "")
