"""A std::thread that is set anew before it was joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.own_code.replaced_threads import replaced_thread
from pytracer.report.job import NativeFrame, SourceLine
from tests.unit.analyze.evidence.own_code.test_freed_pointer import view_of

POOL = """struct Pool {
  std::thread filler;
  void start(unsigned seed) {
    filler = std::thread(&Pool::fill, this, seed);
  }
  void stop() { running = false; if (filler.joinable()) filler.join(); }
};
"""


def test_line_that_sets_it_anew_is_named_with_what_joins_it(tmp_path: Path) -> None:
    """It was not destroyed at an exit: the function ran a second time."""
    found = replaced_thread(view_of(tmp_path, POOL, "filler = "))
    assert found is not None
    assert found.what.startswith("ops.cpp:4 sets `filler` anew, a std::thread whose thread of before was not joined")
    assert found.advice == (
        "End the thread that `filler` has and join it (stop() does that) before start() runs a second time, or let "
        "start() return early where `filler.joinable()`."
    )


@pytest.mark.parametrize("source", [POOL.replace("std::thread(&Pool::fill, this, seed)", "make(seed)")])
def test_call_that_returns_one_is_told_by_what_was_inlined(source: str, tmp_path: Path) -> None:
    view = view_of(tmp_path, source, "filler = ")
    assert replaced_thread(view) is None
    own = view.native_stack[-1]
    inner = SourceLine(function="std::thread::operator=(std::thread&&)", file="/usr/include/c++/12/thread", line=9)
    view.native_stack = [NativeFrame(image=own.image, function=own.function, lines=[inner, *own.lines])]
    assert replaced_thread(view) is not None


@pytest.mark.parametrize("line", ["std::thread filler;", "void stop()"])
def test_other_lines_set_none(line: str, tmp_path: Path) -> None:
    assert replaced_thread(view_of(tmp_path, POOL, line)) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("int seed = 7; filler = std::thread(&Pool::fill, this, seed);", "filler"),
        ("workers = std::move(fresh);", None),  # of which the type is not known
        ("filler = std::jthread(&Pool::fill, this, seed);", None),  # which is joined
        ("filler = std::thread([n] { std::thread inner(fill, n); });", None),  # the thread itself may have ended it
        ("reader = std::thread(read); filler = std::thread(write);", None),  # either
        ("auto next = make(); next->filler = std::thread(read); now = move(next);", None),
        ("filler = std::thread(fill, seed); now = std::move(next);", None),
    ],
)
def test_only_a_thread_that_alone_is_set_is_named(line: str, name: str | None, tmp_path: Path) -> None:
    """An optimized function calls std::terminate() at one place for all of them, which has the line of any."""
    source = POOL.replace("filler = std::thread(&Pool::fill, this, seed);", line)
    view = view_of(tmp_path, source, line)
    for inner in ([], [SourceLine(function="std::thread::operator=", file="/usr/include/c++/12/thread", line=9)]):
        own = view.native_stack[-1]
        view.native_stack = [NativeFrame(image=own.image, function=own.function, lines=[*inner, *own.lines])]
        found = replaced_thread(view)
        if not inner or ("workers" not in line and "jthread" not in line):
            assert (found.name if found is not None else None) == name


def test_what_another_class_joins_is_not_said_to_join_it(tmp_path: Path) -> None:
    source = POOL + "struct Other { std::thread filler; void end() { filler.join(); } };\n"
    found = replaced_thread(view_of(tmp_path, source, "filler = "))
    assert found is not None and found.joiners == ()
