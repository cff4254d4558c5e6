"""What becomes of a signal that met our handler: csrc/crashsafe/signals/decision.h, and the same by real programs."""

from __future__ import annotations

import ctypes
import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_core
from tests.native.harness import Native
from tests.support.crash import ended, environment

pytestmark = needs_core

DEFAULT, IGNORED, FUNCTION = range(3)
IGNORE, HOLD_BACK, HANDLER, DIES = range(4)


def kernels(installed: int, fault: bool, blocked: bool, is_init: bool) -> int:
    """The kernel's rules, said once more: signal(7), pid_namespaces(7), force_sig_info_to_task() of kernel/signal.c."""
    if fault and (blocked or installed == IGNORED):
        return DIES
    if blocked:
        return HOLD_BACK
    if installed == FUNCTION:
        return HANDLER
    if installed == IGNORED or (is_init and not fault):
        return IGNORE
    return DIES


def test_signal_is_decided_as_by_the_kernel(built: Path) -> None:
    """All 24 cases."""
    library = ctypes.CDLL(str(built / "libpytracer_testing.so"))
    cases = list(itertools.product((DEFAULT, IGNORED, FUNCTION), (False, True), (False, True), (False, True)))
    assert {case: library.testing_decide(*map(int, case)) for case in cases} == {case: kernels(*case) for case in cases}


SEEN = """
import signal as S, os, sys
for s in (S.SIGABRT, S.SIGTRAP, S.SIGSEGV, S.SIGFPE, S.SIGBUS, S.SIGTERM, S.SIGHUP):
    print(s.name, S.getsignal(s) == S.SIG_IGN)
print(sorted(S.pthread_sigmask(S.SIG_BLOCK, ())))
"""
IGNORING = f"""
import os, signal as S, subprocess, sys
for s in (S.SIGABRT, S.SIGTRAP, S.SIGSEGV, S.SIGBUS, S.SIGHUP): S.signal(s, S.SIG_IGN)
S.pthread_sigmask(S.SIG_BLOCK, {{S.SIGSEGV, S.SIGFPE, S.SIGUSR2}})
word = [sys.executable, "-S", "-c", {SEEN!r}]
print(subprocess.run(word, capture_output=True, text=True).stdout)
print(os.posix_spawn(sys.executable, word, os.environ) > 0 and os.wait()[1], flush=True)
os.execv(sys.executable, word)
"""


def test_ignored_and_blocked_signals_stay_so_over_exec(run: Path, native: Native) -> None:
    """By fork and exec, by posix_spawn, which calls nothing that we interpose, and by exec alone."""
    run.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-S", "-c", IGNORING]
    plain = ended(words, environment(), run)
    done = ended(words, native.env(), run)
    assert "SIGTRAP True" in plain.stdout and "SIGTERM False" in plain.stdout
    assert (done.status, done.stdout) == (plain.status, plain.stdout)


OWN = """
import os, signal as S
S.signal({signal}, lambda *_: print("mine"))
S.pthread_sigmask(S.SIG_BLOCK, {{{signal}}})
S.raise_signal({signal})
print(sorted(S.pthread_sigmask(S.SIG_BLOCK, ())), S.sigpending())
S.pthread_sigmask(S.SIG_UNBLOCK, {{{signal}}})
print(sorted(S.pthread_sigmask(S.SIG_BLOCK, ())))
"""


@pytest.mark.parametrize("number", range(52, 58))
def test_program_may_use_the_signals_that_stand_in_for_faults(run: Path, native: Native, number: int) -> None:
    """Blocked, pending and handled as untraced."""
    run.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-S", "-c", OWN.format(signal=number)]
    plain = ended(words, environment(), run)
    done = ended(words, native.env(), run)
    assert "mine" in plain.stdout
    assert (done.status, done.stdout) == (plain.status, plain.stdout)


@pytest.mark.parametrize("how", ["trap", "null", "raised"])
def test_first_process_of_a_namespace_dies_as_untraced(run: Path, native: Native, tmp_path: Path, how: str) -> None:
    """The kernel drops signals that init sends to itself, and forces those of faults: PID 1 of a container."""
    program = tmp_path / "init"
    source = """#include <signal.h>
    int main(int n, char** words) {
      if (*words[1] == 't') __asm__ volatile("int3");
      else if (*words[1] == 'n') *(volatile int*)8 = 1;
      else raise(SIGTRAP);
      return 42; }"""
    subprocess.run(["cc", "-w", "-xc", "-", "-o", str(program)], input=source, text=True, check=True)
    words = ["unshare", "--fork", "--pid", str(program), how]
    run.parent.mkdir(parents=True, exist_ok=True)
    plain = ended(words, environment(), run)
    if "unshare" in plain.stderr:
        pytest.skip(f"no PID namespace can be made here: {plain.stderr.strip()}")
    assert plain.status == {"trap": -signal.SIGTRAP, "null": -signal.SIGSEGV, "raised": 42}[how]
    assert ended(words, native.env(), run).status == plain.status
