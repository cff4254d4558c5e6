"""`pytracer doctor` about other handlers of a crash: real states where possible, else real texts."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytracer.cli.checks import faults
from pytracer.cli.checks.answer import LIMITED, WORKS
from tests.conditions import needs_core
from tests.support.cli import clean_environment

# Lines as Linux 6.18 writes them.
STATUS = (
    "Name:\tpython\nTracerPid:\t0\nSigPnd:\t0000000000000000\nSigBlk:\t0000000000000000\nSigIgn:\t0000000001001000\n"
)
MAPS = "7f2f4c200000-7f2f4c226000 r--p 00000000 fe:00 1573 /usr/lib/x86_64-linux-gnu/libc.so.6\n"


def look(check: str, *flags: str, **options: Any) -> str:
    """The answer of a check in an interpreter with these flags and options of Popen."""
    environment = clean_environment(**{"PYTHONFAULTHANDLER": "", **options.pop("extra", {})})
    command = [sys.executable, *flags, "-c", f"from pytracer.cli.checks import faults; print(faults.{check}().detail)"]
    return str(subprocess.run(command, env=environment, capture_output=True, text=True, check=True, **options).stdout)


@needs_core
def test_core_that_takes_the_loaders_lock_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core is asked, because a wheel has a way of its own before glibc 2.35; another C library is not known."""
    assert faults.check_c_library().result == WORKS
    monkeypatch.setattr(faults, "finds_images", lambda: False)
    assert "takes the loader's lock" in faults.check_c_library().detail
    monkeypatch.setattr(os, "confstr", lambda _: None)
    assert "not glibc" in faults.check_c_library().detail


def test_faulthandler_is_named_with_what_enables_it() -> None:
    """By variable, by option, by development mode, and disabled: in real interpreters."""
    assert "by PYTHONFAULTHANDLER" in look("check_signal_handlers", extra={"PYTHONFAULTHANDLER": "1"})
    assert "by -X faulthandler" in look("check_signal_handlers", "-X", "faulthandler")
    assert "development mode" in look("check_signal_handlers", "-X", "dev")
    assert "no others" in look("check_signal_handlers")


def test_signals_that_the_parent_blocks_or_ignores_are_named() -> None:
    """Both pass exec: a real child that was started so sees them."""

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSEGV, signal.SIGTERM])

    def ignore() -> None:
        signal.signal(signal.SIGABRT, signal.SIG_IGN)

    assert "SIGSEGV blocked by the parent" in look("check_signal_handlers", preexec_fn=block)
    assert "SIGABRT ignored by the parent" in look("check_signal_handlers", preexec_fn=ignore)
    assert faults.signal_handlers(STATUS, "").detail == "no others at start"


@pytest.mark.parametrize(
    ("loaded", "word", "following"),
    [
        ("/usr/lib/gcc/x86_64-linux-gnu/12/libasan.so", "AddressSanitizer", "ASAN_OPTIONS=handle_segv=0"),
        ("/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-x86_64.so", "AddressSanitizer", "ASAN_OPTIONS"),
        ("/lib/x86_64-linux-gnu/libtsan.so.2", "ThreadSanitizer", "TSAN_OPTIONS"),
        ("/usr/libexec/valgrind/vgpreload_core-amd64-linux.so", "valgrind", "leave valgrind out"),
    ],
)
def test_sanitizers_and_valgrind_are_named(loaded: str, word: str, following: str) -> None:
    """By LD_PRELOAD, and by the memory map when they were linked."""
    for check in (
        faults.tools({"LD_PRELOAD": loaded}, MAPS, STATUS),
        faults.tools({}, MAPS + MAPS.replace("/usr/lib/x86_64-linux-gnu/libc.so.6", loaded), STATUS),
    ):
        assert check.result == LIMITED
        assert word in check.detail
        assert following in check.next


def test_debugger_is_named() -> None:
    """TracerPid leads to its name; a process that has ended meanwhile is shown by its pid."""
    me = faults.tools({}, MAPS, STATUS.replace("TracerPid:\t0", f"TracerPid:\t{os.getpid()}"))
    assert me.result == LIMITED
    assert f"(pid {os.getpid()}) traces this process" in me.detail
    assert (
        "process 4194304 traces"
        in faults.tools({}, MAPS, STATUS.replace("TracerPid:\t0", "TracerPid:\t4194304")).detail
    )
    assert faults.tools({}, MAPS, STATUS).result == WORKS


NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("pattern", "uses_pid", "limit", "expected"),
    [
        ("core", False, 0, "none will be written to {}/core: `ulimit -c` is 0"),
        ("core", True, NONE, "a core will be written to {}/core.%p, as large"),
        ("core.%p", True, NONE, "a core will be written to {}/core.%p, as large"),
        ("core", False, 4096, "cut off after 4096 bytes"),
        ("/nowhere/cores/core.%e", False, NONE, "none will be written: /nowhere/cores cannot be written"),
        ("|/lib/systemd/systemd-coredump %P %u", False, 0, "piped to /lib/systemd/systemd-coredump"),
        ("|/usr/share/apport/apport -p%p", False, 0, "not in this container"),
        ("", False, NONE, "core_pattern is empty"),
    ],
)
def test_core_dumps_says_whether_and_where(
    tmp_path: Path, pattern: str, uses_pid: bool, limit: int, expected: str
) -> None:
    """As core(5): pipes ignore the limit, an empty pattern writes nothing, relative names are relative to the job."""
    check = faults.core_dumps(pattern, uses_pid, limit, tmp_path)
    assert expected.format(tmp_path) in check.detail
    assert check.result == WORKS  # pytracer needs none


def test_real_core_limit_is_read(tmp_path: Path) -> None:
    """A child with its own limit reports that one."""

    def forbid() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    detail = look("check_core_dumps", cwd=tmp_path, preexec_fn=forbid)
    assert "none" in detail or "piped" in detail
