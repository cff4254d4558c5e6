"""Timers of the program: an unhandled one is recorded with its line; a handled one is the program's, as untraced."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import traced_run

pytestmark = needs_native

LEFT_ON = """import signal, time
def limited():
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.{0}
    signal.signal(signal.SIGALRM, before)
limited()
while True:
    sum(range(1000))
"""
HANDLED = """import signal, time
seen = []
assert signal.getsignal(signal.{0}) is signal.SIG_DFL
signal.signal(signal.{0}, lambda *_: seen.append(1))
signal.setitimer(signal.{1}, 0.01, 0.01)
until = time.monotonic() + 20
while len(seen) < 3 and time.monotonic() < until:
    sum(range(1000))
signal.setitimer(signal.{1}, 0)
assert signal.signal(signal.{0}, signal.SIG_IGN) is not signal.SIG_DFL
assert signal.signal(signal.{0}, signal.SIG_DFL) is signal.SIG_IGN
print(len(seen) >= 3)
"""


@pytest.mark.parametrize("call", ["alarm(1)", "setitimer(signal.ITIMER_REAL, 0.5)"])
@pytest.mark.quick(1)
def test_timer_that_is_left_on_is_the_cause_with_the_line_that_sets_it(call: str, tmp_path: Path) -> None:
    """It ends the process by its default action, after the handler was taken back."""
    program = tmp_path / "limit.py"
    program.write_text(LEFT_ON.format(call), encoding="utf-8")
    done = traced_run("python", program, run=tmp_path / "run")
    assert done.status == 128 + signal.SIGALRM
    verdict = done.report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == ("timer", "certain")
    assert "limit.py:" in (verdict.summary or "") and "no handler was installed when it came" in (verdict.summary or "")
    assert f"Line 4 (`signal.{call}`) sets a timer, and no line of that file takes it back" in (verdict.advice or "")


@pytest.mark.parametrize(
    ("name", "timer"), [("SIGALRM", "ITIMER_REAL"), ("SIGVTALRM", "ITIMER_VIRTUAL"), ("SIGPROF", "ITIMER_PROF")]
)
def test_handled_timer_stays_the_program_s(name: str, timer: str, tmp_path: Path) -> None:
    """The look-alike: its handler is called each time, and what it asks for is what it had installed."""
    program = tmp_path / "profiled.py"
    program.write_text(HANDLED.format(name, timer), encoding="utf-8")
    done = traced_run("python", program, run=tmp_path / "run")
    assert done.status == 0, done.stderr


@pytest.mark.slow
def test_parent_of_a_forked_child_is_the_one_that_forked_it(tmp_path: Path) -> None:
    """Also where that one ends at once, so that getppid() is 1 before the child can ask."""
    program = tmp_path / "forks.py"
    program.write_text(
        "import os, sys, time\nfor _ in range(20):\n    first = os.fork()\n    if first == 0:\n"
        "        if os.fork() == 0:\n            os.kill(os.getpid(), 11)\n        os._exit(0)\n"
        "    os.waitpid(first, 0)\ntime.sleep(2)\n",
        encoding="utf-8",
    )
    done = traced_run("python", program, run=tmp_path / "run")
    died = [item for item in done.report.processes or () if item.signal is not None]
    assert len(died) >= 5
    assert all(item.ppid not in (None, 1) for item in died)
