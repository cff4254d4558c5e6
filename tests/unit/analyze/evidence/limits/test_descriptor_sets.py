"""Descriptors that select() has no room for: who passed one, what keeps so many open, and what else may be."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.limits.descriptor_sets import beyond_set
from pytracer.report.job import NativeFrame, PythonFrame, SourceLine

SOURCE = """#include <sys/select.h>
static int wait_for(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, 0, 0, 0);
}
int ask(int fd) {
    if (fd < 0)
        return -1;
    return wait_for(fd);
}
"""
UNTESTED = SOURCE.replace("    if (fd < 0)\n        return -1;\n", "    /* fd < 0 */\n\n")
KEEPS = """class Scenes:
    def __init__(self):
        self.handles = []
    def add(self, path):
        self.handles.append(open(path, "rb"))
    def ask(self, lib, fd):
        return lib.ask(fd)
"""
CLOSES = KEEPS.replace('        self.handles.append(open(path, "rb"))', '        open(path, "rb").close()\n')
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
TEXT = "*** bit out of range 0 - FD_SETSIZE on fd_set ***: terminated"


def view_of(
    folder: Path,
    *,
    program: str = KEEPS,
    check: str = "__fdelt_warn",
    library: str | None = None,
    text: str | None = TEXT,
    lines: bool = True,
    source: str = SOURCE,
) -> Any:
    """A process that glibc stopped in FD_SET(), below line 7 of its program."""
    file, built, script = folder / "ask.c", folder / "libask.so", folder / "train.py"
    file.write_text(source, encoding="utf-8")
    built.write_bytes(b"")
    script.write_text(program, encoding="utf-8")
    os.utime(file, (1000, 1000))
    at = [SourceLine(function="wait_for", file=str(file), line=5), SourceLine(function="ask", file=str(file), line=11)]
    own = NativeFrame(function="ask", image=library or str(built), lines=at if lines and library is None else None)
    inner = [NativeFrame(function=name, image=LIBC) for name in ("raise", "abort", "__fortify_fail", check)]
    stack = (PythonFrame(function="Scenes.ask", file=str(script), line=7),)
    crash = SimpleNamespace(
        abort_text=text, python_stack=stack, python_threads=(), holders=(), arguments=(), numbers=(), registers={},
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[*inner, own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_own_line_is_named_with_the_line_that_keeps_files_open(tmp_path: Path) -> None:
    """And poll(), which has no such limit."""
    found = beyond_set(view_of(tmp_path))
    assert found is not None
    assert found.what == (
        "wait_for() gave FD_SET() a descriptor that an fd_set has no room for (`FD_SET(fd, &set)` at ask.c:5): 1024 "
        "(FD_SETSIZE) or more, most likely since line 5 keeps each file in `self.handles`"
    )
    assert found.advice.startswith(
        "Wait by poll() or epoll in wait_for(), in place of select(): an fd_set has room for the descriptors 0 to 1023 "
        "only, and a higher limit of open files (`ulimit -n`) does not change that. Or have fewer files open. Keep no "
        "open file for each item in `self.handles` (line 5)"
    )


def test_descriptor_below_0_is_another_reason_where_nothing_keeps_files(tmp_path: Path) -> None:
    """The check of glibc compares without a sign."""
    found = beyond_set(view_of(tmp_path, program=CLOSES, source=UNTESTED))
    assert found is not None and found.what.endswith(": 1024 (FD_SETSIZE) or more, or below 0")
    assert found.advice.startswith("Check that the descriptor is not -1, of what was closed or of a call that failed.")


def test_file_that_was_closed_comes_first_where_c_does_not_test_the_descriptor(tmp_path: Path) -> None:
    """A few files that are kept open are no reason to say that there are 1024."""
    program = KEEPS.replace("lib.ask(fd)", "lib.ask(fd.fileno())")
    found = beyond_set(view_of(tmp_path, program=program, source=UNTESTED))
    assert found is not None
    assert found.what.endswith(": below 0, or 1024 (FD_SETSIZE) or more (line 5 keeps each file in `self.handles`)")
    assert found.advice.startswith(
        "Check that `fd.fileno()` at train.py:7 in Scenes.ask is not -1: it is once that was closed. If it is not: "
    )


def test_message_of_older_versions_says_nothing_of_the_set(tmp_path: Path) -> None:
    """The function does."""
    found = beyond_set(view_of(tmp_path, check="__fdelt_chk", text="*** buffer overflow detected ***: terminated"))
    assert found is not None and found.what.startswith("wait_for() gave FD_SET() a descriptor")


def test_library_of_others_is_not_to_be_changed(tmp_path: Path) -> None:
    """There only the number of files can be."""
    found = beyond_set(view_of(tmp_path, program=CLOSES, library="/usr/lib/x86_64-linux-gnu/libc.so.6"))
    assert found is not None and found.what.startswith("ask() of libc.so.6 gave FD_SET(), FD_CLR() or FD_ISSET() a ")
    assert found.advice.startswith("Keep fewer than 1000 files open in this process, which waits by select() in ask()")


def test_function_without_lines_is_named_alone(tmp_path: Path) -> None:
    """As of a library without debug information."""
    found = beyond_set(view_of(tmp_path, lines=False))
    assert found is not None and found.what.startswith(
        "ask() gave FD_SET(), FD_CLR() or FD_ISSET() a descriptor that an fd_set has no room for:"
    )


@pytest.mark.parametrize(
    ("line", "macro"),
    [
        ("if (FD_ISSET(fd, &set)) return 0;", "FD_ISSET()"),
        ("FD_CLR(fd, &set);", "FD_CLR()"),
        ("if (FD_ISSET(fd, &set)) FD_CLR(fd, &set);", "FD_SET(), FD_CLR() or FD_ISSET()"),
    ],
)
def test_macro_of_the_line_is_named(line: str, macro: str, tmp_path: Path) -> None:
    """All where it has several of them."""
    found = beyond_set(view_of(tmp_path, source=SOURCE.replace("FD_SET(fd, &set);", line)))
    assert found is not None and found.what.startswith(f"wait_for() gave {macro} a descriptor")


@pytest.mark.parametrize("text", ["*** buffer overflow detected ***: terminated", None])
def test_other_checks_of_the_c_library_are_none(text: str | None, tmp_path: Path) -> None:
    """Of a buffer, as of read()."""
    assert beyond_set(view_of(tmp_path, check="__read_chk", text=text)) is None
