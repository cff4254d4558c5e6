"""standstill: waits for the other end of a socket, or for what a child prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import below, parent, stopped
from tests.support.synth import Frame

LIB = "/usr/lib/python3.11"
SOCKET = "_socket.cpython-311-x86_64-linux-gnu.so"
READS: list[Frame] = [("SocketIO.readinto", f"{LIB}/socket.py", 706), ("urlopen", f"{LIB}/urllib/request.py", 216)]
FETCH = "def fetch(url):\n    with urllib.request.urlopen(url) as answer:\n        return answer.read()\n"


def waits(run: Path, source: str, line: int, calls: list[Frame], native: list[tuple[str, str]]) -> Report:
    script = str(s.program_in(run, source))
    return below(run, stopped(parent(), [*calls, ("fetch", script, line)]), native=native)


def test_answer_without_a_time_limit_is_told_with_the_call(run: Path) -> None:
    found = waits(run, FETCH, 2, READS, [("__libc_recv", "libc.so.6"), ("sock_recv_into", SOCKET)])
    assert verdict(found) == ("hang", "possible")
    assert "waited for data from a socket, without a time limit, at program.py:2 in fetch" in summary(found)
    assert advice(found).startswith("Line 2 (`urllib.request.urlopen(url)`) has no time limit: give it one")


def test_socket_of_the_program_gets_a_settimeout(run: Path) -> None:
    found = waits(
        run, "def fetch(sock):\n    return sock.recv(4)\n", 2, [], [("recv", "libc.so.6"), ("sock_recv", SOCKET)]
    )
    assert advice(found).startswith("The socket has no time limit: settimeout()")


def test_nobody_that_connects_is_told(run: Path) -> None:
    native = [("accept4", "libc.so.6"), ("sock_accept", SOCKET)]
    found = waits(run, "def fetch(sock):\n    return sock.accept()\n", 2, [], native)
    assert "waited in accept() for somebody to connect at program.py:2" in summary(found)
    assert advice(found).startswith("Nobody has connected: start the other side")


@pytest.mark.parametrize(
    ("calls", "native"),
    [
        (READS, [("__poll", "libc.so.6"), ("sock_recv_into", SOCKET)]),  # with a time limit
        (READS, [("read", "libc.so.6"), ("_io_FileIO_readinto", "libpython3.11.so")]),
        ([("accept", f"{LIB}/multiprocessing/connection.py", 614)], [("recv", "libc.so.6"), ("sock_recv", SOCKET)]),
    ],
)
def test_other_waits_are_none_for_a_socket(calls: list[Frame], native: list[tuple[str, str]], run: Path) -> None:
    """The look-alikes."""
    found = waits(run, FETCH, 2, calls, native)
    assert "without a time limit" not in summary(found) and "has no time limit" not in advice(found)


ENGINE = """\
class Engine:
    def __init__(self):
        self.child = subprocess.Popen(["engine"], stdin=PIPE, stdout=PIPE, text=True)

    def fetch(self, position):
        self.child.stdin.write(position + "\\n")
        return self.child.stdout.readline()
"""
READ = [("read", "libc.so.6"), ("_io_FileIO_readinto", "libpython3.11.so")]


def test_question_that_stays_in_the_buffer_is_told(run: Path) -> None:
    found = waits(run, ENGINE, 7, [], READ)
    assert verdict(found) == ("hang", "likely")
    assert "writes to the child is still in the buffer of `self.child.stdin`: nothing flushes it" in summary(found)
    assert advice(found).startswith("Call `self.child.stdin.flush()` behind line 6")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("text=True", "text=True, bufsize=1"),
        ("        return", "        self.child.stdin.flush()\n        return"),
        (
            '        self.child.stdin.write(position + "\\n")\n',
            "        print(position, file=self.child.stdin, flush=True)\n",
        ),
    ],
)
def test_question_that_was_flushed_leaves_the_child_to_look_at(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    source = ENGINE.replace(old, new)
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if "readline" in text)
    found = waits(run, source, line, [], READ)
    assert verdict(found) == ("hang", "possible")
    assert "waited for what a child prints" in summary(found) and "buffer of `self" not in summary(found)
    assert advice(found).startswith("See whether the child prints at all, and flushes")


CLIP = """\
def frames(clip):
    process = subprocess.Popen(["decode", clip], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in process.stdout:
        yield line
    if process.wait():
        raise OSError(process.stderr.read())
"""


def test_errors_of_a_child_that_nothing_reads_meanwhile_are_told(run: Path) -> None:
    found = waits(run, CLIP, 3, [], [("read", "libc.so.6"), ("_io_FileIO_readinto", s.PYTHON)])
    assert verdict(found) == ("hang", "possible")
    assert "line 2 makes the child's stderr a pipe, too, which nothing reads meanwhile" in summary(found)
    assert advice(found).startswith("If the child writes much to stderr (warnings, a progress bar), let line 2 pass")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", stderr=subprocess.PIPE", ""),
        ("    for line", "    start(read, process.stderr)\n    for line"),
        ("stderr=subprocess.PIPE", "stderr=subprocess.STDOUT"),
    ],
)
def test_errors_of_a_child_that_go_elsewhere_are_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    source = CLIP.replace(old, new)
    line = source.splitlines().index("    for line in process.stdout:") + 1
    found = waits(run, source, line, [], [("read", "libc.so.6"), ("_io_FileIO_readinto", s.PYTHON)])
    assert "stderr a pipe" not in summary(found)
    assert advice(found).startswith("See whether the child prints at all")
