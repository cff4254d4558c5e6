"""Terminals and job control: a job and its shell behave under the launcher as without it.

Each test runs in a real terminal, once without and once with the launcher, and expects the same result.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conditions import needs_core
from tests.support.cli import clean_environment
from tests.support.crash import PROGRAMS
from tests.support.terminal import SHELL, Terminal

pytestmark = [
    needs_core,
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed"),
    pytest.mark.parametrize("traced", [pytest.param(False, marks=pytest.mark.slow), True], ids=["untraced", "traced"]),
]

LISTENER = f"{sys.executable} {PROGRAMS / 'hears_signals.py'}"
LAUNCHER = f"{sys.executable} -m pytracer run --quiet --no-report --"


def command(traced: bool, words: str) -> str:
    """The command line for the shell."""
    return f"{LAUNCHER} {words}" if traced else words


def shell(cwd: Path, **variables: str) -> Terminal:
    """An interactive shell with job control."""
    terminal = Terminal(SHELL, clean_environment(**variables), cwd)
    terminal.expect("prompt> ")
    return terminal


def state(pid: int) -> str:
    """The letter of /proc/PID/stat; "" when the process has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def eventually(check: Callable[[], bool]) -> bool:
    """Whether `check` becomes true within the time limit."""
    until = time.monotonic() + 20
    while not check():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def start_listener(terminal: Terminal, traced: bool, signals: str) -> int:
    """Starts the listener in the foreground; returns its pid."""
    terminal.type(command(traced, f"{LISTENER} {signals}\n"))
    terminal.expect("[ready ")
    return int(terminal.expect("]"))


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_key_reaches_the_job_once(traced: bool, key: str, name: str, tmp_path: Path) -> None:
    """Ctrl-C and Ctrl-\\ reach the whole process group from the terminal; the launcher does not send them again."""
    with shell(tmp_path) as terminal:
        start_listener(terminal, traced, "SIGINT SIGQUIT")
        terminal.type(key)
        terminal.expect(f"[{name}]")
        terminal.type("end\n")
        assert "[SIG" not in terminal.expect("[ending]")


def test_suspended_job_goes_on_in_the_foreground(traced: bool, tmp_path: Path) -> None:
    """Ctrl-Z gives the shell the terminal; fg continues the job, once, and its status is the shell's."""
    with shell(tmp_path) as terminal:
        job = start_listener(terminal, traced, "SIGCONT SIGTERM")
        for _ in range(3):
            terminal.type("\x1a")
            terminal.expect("Stopped")
            terminal.expect("prompt> ")
            assert eventually(lambda: state(job) == "T")
            time.sleep(0.1)  # longer than the launcher's polling interval
            terminal.type("fg\n")
            terminal.expect("[SIGCONT]")
        terminal.type("end\n")
        assert "[SIG" not in terminal.expect("[ending]")
        terminal.expect("prompt> ")
        terminal.type("echo status=$?\n")
        terminal.expect("status=0")


def test_suspended_launcher_waits_longer_than_its_look(traced: bool, tmp_path: Path) -> None:
    """A stop longer than the polling interval changes neither the launcher nor the job; the status is kept."""
    with shell(tmp_path) as terminal:
        job = start_listener(terminal, traced, "SIGTERM")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        time.sleep(2.5)
        terminal.type("fg\n")
        terminal.type("hello\n")
        terminal.expect("[read hello]")
        os.kill(job, signal.SIGTERM)
        terminal.expect("prompt> ")
        terminal.type("echo status=$?\n")
        terminal.expect("status=5")


def test_job_in_the_background_runs_and_stops_when_it_reads(traced: bool, tmp_path: Path) -> None:
    """bg continues it; a read of the terminal stops it by SIGTTIN, which the shell reports; fg lets it read."""
    with shell(tmp_path) as terminal:
        job = start_listener(terminal, traced, "SIGCONT")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.type("bg\n")
        terminal.expect("[SIGCONT]")
        assert eventually(lambda: state(job) == "T")
        assert eventually(lambda: not traced or state(_parent(job)) == "T")
        terminal.type("jobs -l\n")
        terminal.expect("Stopped (tty input)")
        terminal.type("fg\n")
        terminal.expect("[SIGCONT]")
        terminal.type("hello\n")
        terminal.expect("[read hello]")
        terminal.type("end\n")
        terminal.expect("[ending]")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def test_write_from_the_background_stops_the_job_when_the_terminal_says_so(traced: bool, tmp_path: Path) -> None:
    """`stty tostop`: the job is stopped by SIGTTOU before it writes, and writes when it is in the foreground."""
    with shell(tmp_path) as terminal:
        terminal.type("stty tostop -echo\n")
        terminal.expect("prompt> ")
        terminal.type(command(traced, "sh -c 'echo written; exit 3' &\n"))
        terminal.expect("prompt> ")
        until = time.monotonic() + 20
        while "Stopped (tty output)" not in terminal.screen.decode() and time.monotonic() < until:
            terminal.type("jobs -l\n")
            terminal.expect("prompt> ")
            time.sleep(0.1)
        assert "written" not in terminal.screen.decode().replace("echo written", "")
        terminal.type("fg\n")
        terminal.expect("\nwritten")
        terminal.expect("prompt> ")
        terminal.type("echo status=$?\n")
        terminal.expect("status=3")


def test_job_that_handles_the_stop_keeps_the_terminal(traced: bool, tmp_path: Path) -> None:
    """An editor handles SIGTSTP: until it stops itself, the shell must not get the terminal."""
    with shell(tmp_path) as terminal:
        job = start_listener(terminal, traced, "SIGTSTP")
        child_of_the_shell = _parent(job) if traced else job
        terminal.type("\x1a")
        terminal.expect("[SIGTSTP]")
        time.sleep(0.2)
        assert state(child_of_the_shell) != "T"  # it sleeps, or is just at work
        terminal.type("hello\n")
        assert "Stopped" not in terminal.expect("[read hello]")
        terminal.type("end\n")
        terminal.expect("[ending]")


def _jobs(terminal: Terminal) -> str:
    """What the shell says of its jobs now."""
    terminal.type("jobs; echo end of jobs\n")
    terminal.expect("echo end of jobs")
    return terminal.expect("end of jobs")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
def test_job_that_is_stopped_and_continued_by_its_number_goes_on(
    traced: bool, number: signal.Signals, tmp_path: Path
) -> None:
    """The job alone is stopped and continued by pid: the shell reports the stop, and no process stays stopped."""
    with shell(tmp_path) as terminal:
        terminal.type(command(traced, f"{LISTENER} SIGTERM <<< ''\n"))
        terminal.expect("[ready ")
        job = int(terminal.expect("]"))
        child_of_the_shell = _parent(job) if traced else job
        os.kill(job, number)
        terminal.expect("Stopped")
        assert state(child_of_the_shell) == "T"
        os.kill(job, signal.SIGCONT)
        assert eventually(lambda: state(child_of_the_shell) != "T")
        # Until the shell has heard that the job goes on, `wait` does not wait for it, and a job that ends meanwhile is
        # reported and forgotten.
        assert eventually(lambda: "Running" in _jobs(terminal))
        terminal.type("echo waits; wait %1; echo status=$?\n")  # first: an ended job is forgotten at the next prompt
        terminal.expect("waits; wait %1")
        terminal.expect("waits")
        os.kill(job, signal.SIGTERM)
        terminal.expect("[SIGTERM]")
        terminal.expect("status=5")


def test_change_of_the_window_reaches_the_job_once(traced: bool, tmp_path: Path) -> None:
    """SIGWINCH goes to the foreground process group."""
    with shell(tmp_path) as terminal:
        start_listener(terminal, traced, "SIGWINCH")
        terminal.resize(33, 77)
        terminal.expect("[SIGWINCH]")
        terminal.type("end\n")
        assert "[SIG" not in terminal.expect("[ending]")


def _commands() -> list[bytes]:
    """The command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


def test_interrupt_ends_a_loop_of_the_shell(traced: bool, tmp_path: Path) -> None:
    """A shell continues its loop when a command handled Ctrl-C, and ends it when the command died of it."""
    seconds = f"60.{os.getpid()}{int(traced)}"  # unique: other tests sleep, too
    with shell(tmp_path) as terminal:
        line = command(traced, f"sh -c 'echo [run]; sleep {seconds}'")
        terminal.type(f"for i in 1 2 3; do {line}; done\n")
        terminal.expect("\n[run]")
        # Any earlier the shell may get Ctrl-C between two of its steps and continue waiting, traced or not.
        assert eventually(lambda: f"sleep\0{seconds}\0".encode() in _commands())
        terminal.type("\x03")
        assert "[run]" not in terminal.expect("prompt> ")
        terminal.type("echo status=$?\n")
        terminal.expect("status=130")


@pytest.mark.parametrize("leader", [False, True], ids=["below a shell", "session leader"])
@pytest.mark.parametrize("handled", [False, True], ids=["default", "handled"])
def test_closed_terminal_hangs_the_job_up(traced: bool, leader: bool, handled: bool, tmp_path: Path) -> None:
    """SIGHUP reaches the job for any session leader, as under `ssh -t` or tmux; a job that handles it continues."""
    heard = tmp_path / "heard"
    signals = "SIGHUP SIGTERM" if handled else "SIGTERM"
    if leader:
        words = command(traced, f"{LISTENER} {signals}").split()
        terminal = Terminal(words, clean_environment(HEARD=str(heard)), tmp_path)
    else:
        terminal = shell(tmp_path, HEARD=str(heard))
        terminal.type(command(traced, f"{LISTENER} {signals}\n"))
    with terminal:
        assert eventually(lambda: heard.exists() and "]" in heard.read_text())
        job = int(heard.read_text().split()[1].rstrip("]"))
        terminal.close()
        if handled:
            assert eventually(lambda: "[SIGHUP]" in heard.read_text())
            assert state(job) in ("S", "R")
            os.kill(job, signal.SIGTERM)
        assert eventually(lambda: state(job) in ("", "Z"))
        ended = terminal.wait()
        if leader:
            expected = 5 if handled else 128 + signal.SIGHUP if traced else -signal.SIGHUP
            assert ended == expected


def test_stopped_job_of_a_closed_terminal_is_continued_and_hung_up(traced: bool, tmp_path: Path) -> None:
    """The kernel sends SIGCONT after SIGHUP, so that a stopped job can end."""
    heard = tmp_path / "heard"
    with Terminal(command(traced, LISTENER).split(), clean_environment(HEARD=str(heard)), tmp_path) as terminal:
        assert eventually(lambda: heard.exists() and "]" in heard.read_text())
        job = int(heard.read_text().split()[1].rstrip("]"))
        os.kill(job, signal.SIGSTOP)
        assert eventually(lambda: state(terminal.pid) == "T")
        terminal.close()
        assert eventually(lambda: state(job) in ("", "Z"))
        terminal.wait()


def test_launcher_that_is_stopped_and_continued_keeps_the_job(traced: bool, tmp_path: Path) -> None:
    """SIGSTOP and SIGCONT to the launcher alone, for longer than its polling interval, do not change the status."""
    words = command(traced, f"{LISTENER} SIGTERM").split()
    process = subprocess.Popen(
        words, cwd=tmp_path, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    job = int(process.stdout.readline().split()[1].rstrip("]\n"))
    for seconds in (0.0, 0.3, 2.2):
        process.send_signal(signal.SIGSTOP)
        assert eventually(lambda: state(process.pid) == "T")
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        assert eventually(lambda: state(process.pid) == "S")
        assert eventually(lambda: state(job) == "S")  # not stopped; on a busy machine it may be about to run
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0] == "[SIGTERM]\n"
    assert process.returncode == 5
