"""The launcher's helper against callers that lie: it serves the caller, for its own threads, and no other process.

Here the test is the launcher, and its children are the job. They speak the protocol of
csrc/crashsafe/threads/helper_protocol.h in bytes of their own.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conditions import needs_core
from tests.native.harness import PACKAGE

pytestmark = needs_core

CALLER = """
import array, os, random, signal, socket, struct, sys, threading, time
MAGIC = 0x32706C6568727470
def ring():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(5)
    s.connect("helper.sock")
    return s
def hello(s):
    magic, number = struct.unpack("<QQ", s.recv(1000))
    assert magic == MAGIC
    return number
def ask(s, number, tid): s.send(struct.pack("<QQiI", MAGIC, number, tid, 0))
def answer(s):
    "errno, or the tids, states and names of the threads that were stopped."
    got = s.recv(1000)
    if not got: return "closed"
    magic, error, total, count, _ = struct.unpack("<QiIII", got)
    assert magic == MAGIC
    if error: return error
    threads = [struct.unpack("<iiII8x16s", s.recv(1000)[:40]) for _ in range(count)]
    assert total == count
    return [(tid, stopped) for tid, _, stopped, _, _ in threads]
def state(tid): return open(f"/proc/self/task/{tid}/stat").read().rpartition(")")[2].split()[0]
def child(function):
    "Runs it in a forked child, and waits for its end."
    pid = os.fork()
    if pid == 0:
        function()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
def counter():
    ticks.append(threading.get_native_id())
    while True:
        ticks[0] += 1
        time.sleep(0.001)
ticks = [0]
threading.Thread(target=counter, daemon=True).start()
while len(ticks) < 2: time.sleep(0.001)
other, own = ticks[1], threading.get_native_id()
def runs():
    before = ticks[0]
    time.sleep(0.2)
    return ticks[0] > before + 2
"""

SERVED = """
s = ring()
ask(s, hello(s), own)
print(answer(s) == [(other, 1)], state(other), runs())
s.shutdown(socket.SHUT_WR)
print(s.recv(1000), state(other) != "t", runs())
"""

REFUSED = {
    # a thread of another process: all of the caller's would be stopped, with none left to release them
    "foreign thread": (errno.ESRCH, "s = ring(); ask(s, hello(s), os.getppid()); print(answer(s), runs())"),
    "no thread": (errno.ESRCH, "s = ring(); ask(s, hello(s), -1); print(answer(s), runs())"),
    # a process that holds another one's socket calls on its behalf
    "another process": (
        errno.EPERM,
        "s = ring(); number = hello(s); child(lambda: ask(s, number, own)); print(answer(s), runs())",
    ),
    # the process that connected may have ended, and another one may have its pid
    "an answer before the question": (errno.EPROTO, "s = ring(); ask(s, 0, own); hello(s); print(answer(s), runs())"),
    "another number": (errno.EPROTO, "s = ring(); ask(s, hello(s) ^ 1, own); print(answer(s), runs())"),
    "garbage": (errno.EPROTO, "s = ring(); hello(s); s.send(os.urandom(24)); print(answer(s), runs())"),
    "too long": (errno.EPROTO, "s = ring(); hello(s); s.send(bytes(60_000)); print(answer(s), runs())"),
    "empty": (errno.EPROTO, "s = ring(); hello(s); s.send(b''); print(answer(s), runs())"),
    "descriptors": (
        errno.EPROTO,
        """
s = ring()
message = struct.pack("<QQiI", MAGIC, hello(s), own, 0)
s.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 200))])
print(answer(s), runs())""",
    ),
    # its parent has ended and init is its parent: its job is unknown
    "not of the job": (
        errno.EPERM,
        """
r, w = os.pipe()
def orphan():
    if os.fork() == 0:
        while os.getppid() == parent: time.sleep(0.001)
        threading.Thread(target=counter, daemon=True).start()
        s = ring(); ask(s, hello(s), threading.get_native_id()); os.write(w, f"{answer(s)} {runs()}".encode())
        os._exit(0)
parent = 0
def parent_and_orphan():
    global parent
    parent = os.getpid()
    orphan()
child(parent_and_orphan)
print(os.read(r, 100).decode())""",
    ),
}


class Helper:
    """A running helper and its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [PACKAGE / "_helper", directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={}
        )
        assert self.process.stdout is not None
        assert self.process.stdout.read() == b"", "it listens when it closes its output"

    def run(self, code: str, seconds: float = 30, status: int = 0) -> str:
        """The output of a process of the job."""
        done = subprocess.run(
            [sys.executable, "-S", "-c", CALLER + code],
            cwd=self.directory, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        return done.stdout

    def descriptors(self) -> int:
        """The number of its open descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Helper]:
    """A helper whose launcher is this process; it must outlive the test."""
    one = Helper(tmp_path)
    yield one
    alive = one.process.poll() is None
    one.process.kill()
    one.process.communicate()
    assert alive, "the helper has ended"


def test_threads_of_who_asks_are_stopped_and_go_on(helper: Helper) -> None:
    """They are stopped while the caller keeps the connection; it closes when they continue."""
    assert helper.run(SERVED) == "True t False\nb'' True True\n"


@pytest.mark.parametrize(("error", "code"), REFUSED.values(), ids=REFUSED)
def test_caller_that_lies_is_refused(error: int, code: str, helper: Helper) -> None:
    """No thread is stopped, no descriptor stays open, and the next caller is served."""
    before = helper.descriptors()
    assert helper.run(code) == f"{error} True\n"
    assert helper.run(SERVED).startswith("True t False")
    assert helper.descriptors() == before


def test_callers_end_lets_its_threads_go(helper: Helper) -> None:
    """A caller that is killed or hangs while its threads are stopped does not keep them stopped."""
    hangs = "s = ring(); ask(s, hello(s), own); answer(s); t = time.monotonic()\nwhile not runs(): pass\n"
    assert helper.run(hangs + "print(time.monotonic() - t < 4)") == "True\n"
    killed = "child(lambda: (s := ring(), hello(s), os.kill(os.getpid(), signal.SIGKILL)))\nprint(runs())"
    assert helper.run(killed) == "True\n"
    assert helper.run(SERVED).startswith("True t False")


def test_threads_of_who_dies_are_held_until_it_is_gone(helper: Helper) -> None:
    """None of them continues, even when the connection closes; the death is not delayed."""
    held = "s = ring(); ask(s, hello(s), own); answer(s); s.send(b'h')\ns.close()\n"
    dies = "print(runs(), state(other), flush=True)\nos.kill(os.getpid(), 9)"
    start = time.monotonic()
    assert helper.run(held + dies, status=-9) == "False t\n"
    assert time.monotonic() - start < 5
    assert helper.run(SERVED).startswith("True t False")


def test_flood_of_one_process_keeps_nobody_waiting(helper: Helper) -> None:
    """A process is served once at a time: 300 connections of one process take one place."""
    flood = subprocess.Popen(
        [sys.executable, "-S", "-c", CALLER + "kept = [ring() for _ in range(300)]; print(flush=True); time.sleep(60)"],
        cwd=helper.directory, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert flood.stdout is not None
        flood.stdout.readline()
        timed = "t = time.monotonic(); s = ring(); ask(s, hello(s), own); a = answer(s); "
        assert helper.run(timed + "print(len(a), time.monotonic() - t < 0.6)") == "1 True\n"
    finally:
        flood.kill()
        flood.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be")
def test_another_user_is_refused(helper: Helper) -> None:
    """Even where the socket admits it: the connection is closed."""
    helper.directory.chmod(0o755)
    for parent in helper.directory.parents:
        if parent.stat().st_mode & 0o005 != 0o005 and str(parent).startswith("/tmp"):
            parent.chmod(0o755)
    (helper.directory / "helper.sock").chmod(0o666)
    assert helper.run("os.setuid(65534); s = ring(); print(s.recv(100), runs())") == "b'' True\n"


def test_helper_takes_the_place_of_what_was_left(tmp_path: Path) -> None:
    """A socket of a helper that was killed, and a file of another kind, are replaced; the path may be long."""
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    (directory / "helper.sock").write_text("left")
    for _ in range(2):
        one = Helper(directory)
        assert one.run(SERVED).startswith("True t False")
        one.process.send_signal(signal.SIGKILL)
        one.process.communicate()
