"""`pytracer doctor` about other threads: real trials, and answers for states that are not possible here."""

from __future__ import annotations

import ctypes
import errno
import json
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.cli.checks import threads, trials
from pytracer.cli.checks.answer import LIMITED, WORKS
from tests.conditions import needs_core
from tests.support.cli import clean_environment

needs_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter knows system calls of x86-64 only")
EVERYWHERE = {"main": True, "python": True, "raw": True}


def test_threads_without_a_handler_have_no_alternate_stack() -> None:
    """The trial prints the kernel's values: nothing was set up in a plain process."""
    command = [sys.executable, "-I", trials.__file__, "stacks"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"main": False, "python": False, "raw": False}


@needs_core
def test_preload_gives_every_thread_an_alternate_stack() -> None:
    """Tried in children: under preload also on raw pthreads; the sentence states the limits of enable() alone."""
    check = threads.check_thread_stacks()
    assert check.result == WORKS, check.detail
    assert "every thread; enable() alone: " in check.detail


def test_threads_without_an_alternate_stack_are_named() -> None:
    """enable() alone is no defect, a preload without effect is one."""
    check = threads.thread_stacks(EVERYWHERE, {**EVERYWHERE, "raw": False})
    assert check.result == WORKS
    assert "not OpenMP workers and raw pthreads" in check.detail
    assert "pytracer run" in check.next
    assert threads.thread_stacks({**EVERYWHERE, "raw": False}, EVERYWHERE).result == LIMITED


def test_ptrace_is_tried_on_a_sibling() -> None:
    """There is always an answer, and it is positive where Yama and seccomp are absent."""
    check = threads.check_ptrace()
    assert check.result in (WORKS, LIMITED)
    filtered = "Seccomp:\t0" not in Path("/proc/self/status").read_text(encoding="utf-8")
    if not threads._YAMA.exists() and not filtered:
        assert check.detail == "a process may stop its sibling"


def forbid_ptrace() -> None:
    """A seccomp filter as in containers: ptrace (101 on x86-64) fails with EPERM, all else is allowed."""
    load_number, equal_101, refuse, allow = (
        (0x20, 0, 0, 0),
        (0x15, 0, 1, 101),
        (6, 0, 0, 0x50001),
        (6, 0, 0, 0x7FFF0000),
    )
    program = b"".join(struct.pack("HBBI", *line) for line in (load_number, equal_101, refuse, allow))
    kept = ctypes.create_string_buffer(program)
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(kept)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if libc.prctl(22, 2, filter_, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "no filter")


def filtered(check: str) -> str:
    """The answer of a check in a process that may not use ptrace, and whose children may not."""
    code = f"from pytracer.cli.checks import threads; print(threads.{check}().detail)"
    return subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), preexec_fn=forbid_ptrace, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip


@needs_x86_64
def test_filter_that_forbids_ptrace_is_noticed() -> None:
    """In a real process with a real filter."""
    detail = filtered("check_ptrace")
    if threads._YAMA.exists() and threads._YAMA.read_text(encoding="ascii").strip() in "23":
        assert "forbidden, ptrace_scope" in detail
    else:
        assert "forbidden (EPERM), as by a container's filter" in detail


@needs_core
@needs_x86_64
def test_where_ptrace_is_forbidden_a_signal_takes_the_stacks() -> None:
    """The same filter around launcher, helper and job: the child's recording has the fallback by signal."""
    assert "on a real-time signal" in filtered("check_other_threads")


@pytest.mark.parametrize(
    ("error", "scope", "result", "detail", "following"),
    [
        (0, 1, WORKS, "ptrace_scope is 1", ""),
        (
            errno.EPERM,
            2,
            LIMITED,
            "root only; stacks of other threads are taken by a real-time signal",
            "ptrace_scope=1",
        ),
        (errno.EPERM, 3, LIMITED, "nobody", "until the next boot"),
        (errno.EPERM, 0, LIMITED, "forbidden (EPERM), as by a container's filter", "--cap-add SYS_PTRACE"),
        (errno.ENOSYS, 0, LIMITED, "forbidden (ENOSYS)", "--cap-add SYS_PTRACE"),
        (None, 0, LIMITED, "gave no answer", ""),
    ],
)
def test_forbidden_ptrace_says_what_happens_otherwise(
    error: int | None, scope: int, result: str, detail: str, following: str
) -> None:
    """Yama and a container's filter have different next steps."""
    check = threads.ptrace(error, scope)
    assert check.result == result
    assert detail in check.detail
    assert following in check.next


def test_helper_must_lie_beside_the_core_and_be_executable(tmp_path: Path) -> None:
    """Missing, not executable, good."""
    path = tmp_path / "_helper"
    assert "is not built" in threads.helper(path).detail
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    assert threads.helper(path).next == f"chmod +x {path}"
    path.chmod(0o755)
    assert threads.helper(path).result == WORKS


@pytest.mark.parametrize(
    ("how", "states", "result", "word"),
    [
        ("helper", ["done", "listed"], WORKS, "the helper stopped"),
        ("signal", ["done", "asked"], LIMITED, "on a real-time signal"),
        ("signal", ["asked"], LIMITED, "without stacks (asked)"),
        (None, [], LIMITED, "were not seen"),
    ],
)
def test_other_threads_answers_by_the_box(how: str | None, states: list[str], result: str, word: str) -> None:
    """The recording of a real child decides, not what is expected to work."""
    check = threads.other_threads(how, states)
    assert check.result == result
    assert word in check.detail


@needs_core
def test_child_with_two_threads_leaves_a_crash_header() -> None:
    """A real trial of `pytracer run` on a dying child."""
    assert "no crash report" not in threads.check_other_threads().detail
