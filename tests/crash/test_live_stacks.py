"""A running process records the stacks of all its threads on request, and continues."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytracer.blackbox.schema import REQUEST_SIGNAL, REQUEST_VALUE
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Snapshot
from tests.conditions import needs_core
from tests.support.crash import environment, preloaded

pytestmark = needs_core
PROGRAM = """
import sys, threading, time
def load(): time.sleep(60)
threading.Thread(target=load, daemon=True).start()
print("ready", flush=True)
print("read", sys.stdin.readline().strip(), flush=True)
"""


def ask(pid: int, value: int = REQUEST_VALUE) -> None:
    """sigqueue(3)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    assert libc.sigqueue(pid, REQUEST_SIGNAL, value) == 0, os.strerror(ctypes.get_errno())


def answered(run: Path, count: int) -> Snapshot:
    """The recording, once it has answered `count` requests."""
    end = time.monotonic() + 20
    while True:
        (path,) = (run / "boxes").iterdir()
        box = read_box(path)
        if box.counts["live_reports"] >= count:
            return box
        assert time.monotonic() < end, "no answer"
        time.sleep(0.02)


@pytest.fixture
def process(run: Path) -> object:
    """A traced program that waits for a line."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=preloaded(run), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        yield child
        child.kill()


def test_running_process_shows_all_stacks_and_goes_on(process: subprocess.Popen[str], run: Path) -> None:
    """Twice: both threads with both stacks; the recording has no crash, and the program continues to read its line."""
    for count in (1, 2):
        ask(process.pid)
        box = answered(run, count)
        assert (box.state, box.crash) == ("RECORDING", None)
        assert box.live is not None
        assert box.live.steps_faulted == ()
        functions = {frame.function for _, frames in box.live.python_threads for frame in frames}
        assert {"<module>", "load"} <= functions
        (other,) = box.live.threads
        assert (other.state, other.complete) == ("done", True)
    out, _ = process.communicate("hello\n", timeout=20)
    assert (out, process.returncode) == ("read hello\n", 0)
    assert answered(run, 2).state == "EXITING"


def test_crash_after_a_request_is_reported_as_ever(process: subprocess.Popen[str], run: Path) -> None:
    """The crash replaces the stacks recorded before."""
    ask(process.pid)
    answered(run, 1)
    process.send_signal(signal.SIGSEGV)
    assert process.wait(20) == -signal.SIGSEGV
    box = answered(run, 1)
    assert box.live is None
    assert box.crash is not None and box.crash.complete and box.crash.signal == signal.SIGSEGV


def test_same_signal_for_another_purpose_acts_as_without_us(process: subprocess.Popen[str]) -> None:
    """Its default action ends the program, as it would untraced."""
    ask(process.pid, 7)
    assert process.wait(20) == -REQUEST_SIGNAL


def test_program_that_uses_the_signal_itself_keeps_it(run: Path) -> None:
    """A handler that the program installs is called."""
    code = f"import os, signal; signal.signal({REQUEST_SIGNAL}, lambda *_: print('mine'))"
    code += f"; os.kill(os.getpid(), {REQUEST_SIGNAL})"
    for env in (preloaded(run), environment()):
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("mine\n", "")
