"""Uncaught C++ exceptions: their journal entries, and that the exit status is unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pytracer.decode.types.journal import CppException, select
from tests.conditions import needs_compiler, needs_core, needs_native, needs_torch
from tests.support.crash import PROGRAMS, Ended, victim

pytestmark = [needs_core, needs_compiler, needs_torch, needs_native]

PROGRAM = "uncaught_cpp_exception.py"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """terminate.cpp, compiled."""
    path = tmp_path_factory.mktemp("terminate") / "libterminate.so"
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-o", str(path)]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no C++ compiler ({command[0]})")
    subprocess.run([*command, str(PROGRAMS / "terminate.cpp")], check=True, env={**os.environ, "LD_PRELOAD": ""})
    return str(path)


def entries(done: Ended) -> list[tuple[int, str, str]]:
    """Each CPP_EXCEPTION of the victim's recording: thread, type, what()."""
    return [(fact.data.tid, fact.data.type, fact.data.what) for fact in select(done.box.facts, CppException)]


@pytest.mark.parametrize(
    ("way", "type_name", "what"),
    [
        ("runtime_error", "jobs::ShardError", "shard 3 has 12 bytes, expected 4096"),
        ("noexcept", "std::out_of_range", "bucket 7 of 4"),
        ("inside catch", "std::logic_error", "in hand"),
        ("number", "int", ""),
        ("long", "std::runtime_error", "x" * 4096),
        ("no exception", "", ""),
        ("pthread_exit", "", ""),
    ],
)
@pytest.mark.quick(2)
def test_uncaught_exception_is_in_the_box(way: str, type_name: str, what: str, library: str, run: Path) -> None:
    """Type and message, cut to 4 KiB, of the aborting thread; status and stderr are those of the untraced program."""
    plain = victim(PROGRAM, way, run=run, way="untraced", TERMINATE_LIBRARY=library)
    done = victim(PROGRAM, way, run=run, TERMINATE_LIBRARY=library)
    assert done.status == plain.status == -6
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    crash = done.box.crash
    assert crash is not None and crash.complete
    assert entries(done) == [(crash.tid, type_name, what)]
    assert crash.tid != done.pid


def test_failed_check_of_torch_is_in_the_box(library: str, run: Path) -> None:
    """TORCH_CHECK on a thread of C++: c10::Error with its message, as gloo's and NCCL's watchdogs throw."""
    done = victim(PROGRAM, "torch", run=run, TERMINATE_LIBRARY=library)
    assert done.status == -6
    ((_, type_name, what),) = entries(done)
    assert type_name == "c10::Error"
    assert what.startswith("expected 4 ranks, got 3")
    assert "terminate called after throwing an instance of 'c10::Error'" in done.stderr
    assert "expected 4 ranks, got 3" in done.stderr


def test_words_that_terminate_themselves_do_not_go_round(library: str, run: Path) -> None:
    """A what() that throws: the second terminate calls the previous handler, and the process ends at once."""
    done = victim(PROGRAM, "bad words", run=run, TERMINATE_LIBRARY=library)
    assert done.status == -6
    assert "terminate called" in done.stderr
    assert done.box.crash is not None


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("handler that passes on", 1),
        ("handler that passes on, then enabled again", 1),
        ("handler that aborts", 0),
        ("disabled", 0),
    ],
)
@pytest.mark.quick(1)
def test_handler_of_the_program_is_respected(before: str, expected: int, library: str, run: Path) -> None:
    """A later one stays outermost, and decides whether ours is called; disable() removes ours."""
    way = "runtime_error"
    plain_before = "" if before == "disabled" else before.split(",")[0]
    plain = victim(PROGRAM, way, plain_before, run=run, way="untraced", TERMINATE_LIBRARY=library)
    done = victim(PROGRAM, way, before, run=run, TERMINATE_LIBRARY=library)
    assert done.status == plain.status == -6
    assert done.stderr == plain.stderr
    assert done.stderr.count("the program's own handler") == (0 if before == "disabled" else 1)
    assert len(entries(done)) == expected


def test_exceptions_that_are_caught_leave_nothing(library: str, run: Path) -> None:
    """No terminate, no entry."""
    done = victim(PROGRAM, "nothing", run=run, TERMINATE_LIBRARY=library)
    assert (done.status, done.stdout) == (0, "still here\n")
    assert entries(done) == []
