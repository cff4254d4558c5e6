"""SIGKILL carries no sender: the recorded process that sends it notes that, with the Python line."""

from __future__ import annotations

import signal
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conditions import needs_core
from tests.support.crash import Ended, ended, preloaded, traced_run
from tests.support.deaths import evidence, summary, verdict

pytestmark = needs_core

PARENT = """
import ctypes, multiprocessing, os, signal, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def sleeper(**how):
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"],
                             stdout=subprocess.PIPE, **how)
    child.stdout.readline()
    return child
def work():
    time.sleep(60)
def reap(child):
    {reap}
child = {child}
{before}
reap(child)
child.join() if hasattr(child, "join") else child.wait()
sys.exit(1)
"""
POPEN, PROCESS = "sleeper()", "multiprocessing.get_context('fork').Process(target=work); child.start(); time.sleep(0.3)"
WAYS = {
    "os.kill": ("os.kill(child.pid, signal.SIGKILL)", POPEN),
    "Popen.kill": ("child.kill()", POPEN),
    "Process.kill": ("child.kill()", PROCESS),
    "pidfd_send_signal": ("signal.pidfd_send_signal(os.pidfd_open(child.pid), signal.SIGKILL)", POPEN),
    "sigqueue": ("libc.sigqueue(child.pid, 9, None)", POPEN),
    "tgkill": ("libc.tgkill(child.pid, child.pid, 9)", POPEN),
    "through a thread": (
        "import threading; t = threading.Thread(target=child.kill, name='reaper'); t.start(); t.join()", POPEN,
    ),
}  # fmt: skip


def program(tmp_path: Path, reap: str, child: str = POPEN, before: str = "") -> Path:
    """The parent, as a file."""
    path = tmp_path / "main.py"
    path.write_text(textwrap.dedent(PARENT).format(reap=reap, child=child, before=before))
    return path


def line_in(path: Path, text: str) -> int:
    """The first line that has the text."""
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def run_parent(tmp_path: Path, *how: str) -> tuple[Ended, Path]:
    """The program below `pytracer run`."""
    path = program(tmp_path, *how)
    return traced_run(sys.executable, path, run=tmp_path / "run"), path


@pytest.mark.parametrize("way", WAYS)
def test_killer_is_named_with_its_line(way: str, tmp_path: Path) -> None:
    """Whatever function sends it: the parent and the line in reap() are certain."""
    reap, child = WAYS[way]
    done, path = run_parent(tmp_path, reap, child)
    report = done.report
    assert verdict(report) == ("external-kill", "certain")
    assert "was ended by SIGKILL, sent by its parent, process " in summary(report)
    if way != "through a thread":
        assert f"(main.py), at main.py:{line_in(path, reap)} in reap." in summary(report)
    assert "it was alive then, and had the same start time" in evidence(report)


def test_process_group_is_likely_only(tmp_path: Path) -> None:
    """Membership of a group changes: killpg() names its line, and is not certain."""
    done, path = run_parent(tmp_path, "os.killpg(child.pid, 9)", "sleeper(start_new_session=True)")
    report = done.report
    assert verdict(report) == ("external-kill", "likely")
    assert f"at main.py:{line_in(path, 'os.killpg')} in reap." in summary(report)
    assert "to process group " in evidence(report)


@pytest.mark.parametrize("call", ["os.kill(os.getpid(), 9)", "signal.raise_signal(9)", "os.killpg(0, 9)"])
def test_self_kill_is_named(call: str, tmp_path: Path) -> None:
    """A process that ends itself by SIGKILL notes its line before."""
    path = tmp_path / "own.py"
    path.write_text(f"import os, signal\nos.setpgid(0, 0)\ndef finish():\n    {call}\nfinish()\n")
    report = traced_run(sys.executable, path, run=tmp_path / "run").report
    assert verdict(report) == ("external-kill", "certain")
    assert "ended itself by SIGKILL at own.py:4 in finish." in summary(report)


def test_child_that_kills_its_parent_is_named_as_its_own(tmp_path: Path) -> None:
    path = tmp_path / "parent.py"
    path.write_text('import os, subprocess\nsubprocess.run(["sh", "-c", f"kill -9 {os.getpid()}; sleep 1"])\n')
    report = traced_run(sys.executable, path, run=tmp_path / "run").report
    assert verdict(report) == ("external-kill", "certain")
    assert "was ended by SIGKILL, sent by its own child, process " in summary(report)


def test_dead_process_is_not_blamed_on_a_later_kill(tmp_path: Path) -> None:
    """The look-alike: the child was killed by a process that is not recorded; that a zombie is killed again explains
    nothing.
    """
    unrecorded = "subprocess.run(['env', '-u', 'LD_PRELOAD', 'sh', '-c', f'kill -9 {child.pid}'])"
    waiting = "os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)"
    done, _ = run_parent(tmp_path, "os.kill(child.pid, 9)", POPEN, f"{unrecorded}\n{waiting}")
    report = done.report
    assert "sent by" not in summary(report)
    assert verdict(report)[1] != "certain"


@pytest.mark.parametrize("call", ["os.kill(child.pid, 0)", "os.kill(child.pid, signal.SIGWINCH)"])
def test_signals_that_end_nothing_are_not_noted(call: str, tmp_path: Path) -> None:
    """Signal 0 asks whether a process exists; others are ignored by default."""
    done, _ = run_parent(tmp_path, f"{call}; child.stdout.close(); child.terminate()")
    assert [send.signal for box in done.boxes for send in box.sends] == [signal.SIGTERM]


def test_result_of_the_call_is_noted(tmp_path: Path) -> None:
    """A call that fails ended nobody."""
    path = tmp_path / "fails.py"
    path.write_text(
        "import os\n"
        "try: os.kill(99999999, 15)\n"
        "except OSError as error: print(error.errno)\n"
        "os.kill(os.getppid(), 10)\n"
    )
    shell = f"trap '' USR1; {sys.executable} {path}; true"
    box = next(b for b in ended(["bash", "-c", shell], preloaded(tmp_path / "run"), tmp_path / "run").boxes if b.sends)
    assert [(send.target, send.result) for send in box.sends] == [(99999999, 3), (box.ppid, 0)]


def test_many_sends_are_bounded(tmp_path: Path) -> None:
    """A program that signals another one all the time fills no journal: 1,000 are noted."""
    path = tmp_path / "many.py"
    path.write_text("import os, signal\nfor _ in range(5000): os.kill(os.getppid(), signal.SIGTERM)\n")
    shell = f"trap '' TERM; {sys.executable} {path}; true"
    done = ended(["bash", "-c", shell], preloaded(tmp_path / "run"), tmp_path / "run")
    box = next(b for b in done.boxes if b.sends)
    assert len(box.sends) == 1000
    assert box.counts["journal_dropped"] == 0
    assert {(f.function, f.line) for send in box.sends for f in send.stack} == {("<module>", 2)}
