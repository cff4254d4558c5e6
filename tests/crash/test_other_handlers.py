"""The program's own handlers: they are called as untraced, and their decisions apply."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_core
from tests.support.crash import Ended, line_of, own_frames, victim

pytestmark = [needs_core, needs_compiler]

WAYS = pytest.mark.parametrize("way", ["preload", "enable"])
DIED, CAUGHT = -signal.SIGABRT, "caught SIGABRT"


def said(done: Ended) -> list[str]:
    """Lines on stderr that are not the recorder's, without addresses."""
    ours = "pytracer: process "
    return [
        line.split("0x")[0]
        for line in done.stderr.splitlines()
        if not line.startswith(ours) and "enabled.py" not in line
    ]


@WAYS
def test_faulthandler_still_prints_and_the_status_stays(way: str, run: Path) -> None:
    """A program that enables faulthandler dies as before, with the same text, and the recording has the Python line."""
    plain = victim("faulthandler_then_null.py", run=run, way="untraced")
    done = victim("faulthandler_then_null.py", run=run, way=way)
    assert done.status == plain.status == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    program = "faulthandler_then_null.py"
    assert f'{program}", line {line_of(program, "library.read_field")} in learning_rate' in done.stderr
    if way == "preload":
        assert said(done) == said(plain)
    assert done.box.state == "CRASHED"
    assert done.box.crash is not None
    frame = own_frames(done.box.crash.python_stack)[0]
    assert frame == ("learning_rate", program, line_of(program, "library.read_field"))


@WAYS
def test_faulthandler_inside_keeps_the_address_of_the_fault(way: str, run: Path) -> None:
    """Ours stays outermost, so that siginfo is that of the fault, not of faulthandler's raise()."""
    crash = victim("faulthandler_then_null.py", run=run, way=way).box.crash
    assert crash is not None
    assert (crash.code, crash.fault_addr) == (1, 24)


@pytest.mark.parametrize(
    "program",
    ["null_dereference.py", "abort.py", "division_by_zero.py", "illegal_instruction.py", "truncated_mapping.py"],
)
def test_faulthandler_of_the_interpreter_stays(program: str, run: Path) -> None:
    """`python -X faulthandler` prints its text once; status unchanged, death recorded."""
    plain = victim(program, run=run, way="untraced", options=("-X", "faulthandler"))
    done = victim(program, run=run, options=("-X", "faulthandler"))
    assert done.status == plain.status
    assert done.status < 0
    assert said(done) == said(plain)
    assert done.stderr.count("Fatal Python error") == 1
    assert done.box.state == "CRASHED"
    assert done.box.crash is not None
    assert done.box.crash.signal == -done.status


def test_faulthandler_before_enable_prints_once_and_the_fault_is_recorded(run: Path) -> None:
    """enable() after faulthandler.enable() records first and then calls it."""
    plain = victim("faulthandler_then_pytracer.py", run=run, way="untraced")
    done = victim("faulthandler_then_pytracer.py", str(run), run=run, way="untraced")
    assert done.status == plain.status == -signal.SIGSEGV
    assert said(done) == said(plain)
    crash = done.box.crash
    assert crash is not None
    assert (crash.code, crash.fault_addr) == (1, 24)
    assert done.box.state == "CRASHED"


def test_handlers_that_raise_again_keep_the_first_fault(run: Path) -> None:
    """Two handlers, one of which restores a mask that it saved: the report is of the fault, not of their raise()."""
    plain = victim("masks_in_handlers.py", "logs", run=run, way="untraced")
    done = victim("masks_in_handlers.py", "logs", run=run)
    assert done.status == plain.status == -signal.SIGSEGV
    assert said(done) == said(plain)
    assert done.box.crash is not None
    assert (done.box.crash.code, done.box.crash.fault_addr) == (1, 24)
    assert done.box.counts["faults_repaired"] == 0


def test_handler_that_was_left_before_the_mask_was_restored_is_over(run: Path) -> None:
    """A jump out of it, the mask put back by hand: the next fault, further down the stack, is a death of its own."""
    plain = victim("masks_in_handlers.py", "probes", run=run, way="untraced")
    done = victim("masks_in_handlers.py", "probes", run=run)
    assert (done.status, done.stdout) == (plain.status, plain.stdout) == (-signal.SIGSEGV, "readable: 0\n")
    assert done.box.crash is not None
    assert (done.box.crash.repaired, done.box.crash.fault_addr) == (False, 24)
    assert done.box.counts["faults_repaired"] == 1


@WAYS
@pytest.mark.parametrize("how", ["barrier", "jump"])
def test_repaired_fault_is_no_death(how: str, way: str, run: Path) -> None:
    """A handler that repairs the fault, or jumps out of it, leaves no report, and the program continues."""
    plain = victim("repaired_fault.py", how, run=run, way="untraced")
    done = victim("repaired_fault.py", how, run=run, way=way)
    assert (
        (done.status, done.stdout, done.stderr) == (plain.status, plain.stdout, plain.stderr) == (0, plain.stdout, "")
    )
    assert done.stdout.endswith("done\n")
    box = done.box
    assert box.state == "EXITING"
    assert box.crash is None or box.crash.repaired
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "clean"
    if way == "preload":
        assert box.counts["faults_repaired"] == (40 if how == "barrier" else 3)


@WAYS
def test_death_after_repairs_is_recorded(way: str, run: Path) -> None:
    """A program that repairs faults routinely, and then dies of one that it does not repair, has its report."""
    plain = victim("repaired_fault.py", "barrier", "--then-die", run=run, way="untraced")
    done = victim("repaired_fault.py", "barrier", "--then-die", run=run, way=way)
    assert done.status == plain.status == -signal.SIGSEGV
    if way == "preload":
        assert done.box.state == "CRASHED"
        assert done.box.crash is not None
        assert not done.box.crash.repaired
        assert done.box.crash.fault_addr == 24


def test_handler_that_leaves_by_itself_is_followed(run: Path) -> None:
    """The handler's message is printed, the status is its own, and the fault is still in the recording."""
    plain = victim("last_words.py", run=run, way="untraced")
    done = victim("last_words.py", run=run)
    assert (done.status, done.stdout) == (plain.status, plain.stdout) == (42, "last words\n")
    assert done.box.crash is not None
    assert done.box.crash.fault_addr == 24
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "null-dereference"


@WAYS
@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGFPE"])
@pytest.mark.parametrize("how", ["kill", "raise"])
def test_sent_signal_that_python_handles_is_no_death(name: str, how: str, way: str, run: Path) -> None:
    """signal.signal(SIGABRT, ...) and a sent signal: the Python handler runs, the program continues."""
    plain = victim("signal_handled_in_python.py", name, how, run=run, way="untraced")
    done = victim("signal_handled_in_python.py", name, how, run=run, way=way)
    assert (done.status, done.stdout) == (plain.status, plain.stdout) == (0, f"caught {name}\ngoes on\n")
    assert done.box.state == "EXITING"
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "clean"


def test_abort_is_a_death_even_when_python_handles_its_signal(run: Path) -> None:
    """abort() does not return, whatever the handler of SIGABRT does; the recording has it."""
    plain = victim("signal_handled_in_python.py", "SIGABRT", "abort", run=run, way="untraced")
    done = victim("signal_handled_in_python.py", "SIGABRT", "abort", run=run)
    assert done.status == plain.status == -signal.SIGABRT
    assert done.stdout == plain.stdout
    assert done.box.crash is not None
    assert done.box.crash.signal == signal.SIGABRT
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "abort"


@WAYS
def test_ignored_signal_is_ignored(way: str, run: Path) -> None:
    """A SIGSEGV sent to a program that ignores it has no effect and is not reported."""
    done = victim("ignored_signal.py", run=run, way=way)
    assert (done.status, done.stdout, done.stderr) == (0, "goes on\n", "")
    assert done.box.crash is None
    assert done.box.state == "EXITING"


@WAYS
def test_fault_kills_even_when_its_signal_is_ignored(way: str, run: Path) -> None:
    """The kernel kills for a real fault, ignored or not. The signal is really ignored, also over exec: no report."""
    plain = victim("ignored_signal.py", "fault", run=run, way="untraced")
    done = victim("ignored_signal.py", "fault", run=run, way=way)
    assert done.status == plain.status == -signal.SIGSEGV
    assert done.box.crash is None
