"""Decisions about signals that reach our handler: csrc/crashsafe/signals/decision.h, and real programs."""

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
IGNORE, DEFER, HANDLER, DIES = range(4)
NONE, RUNS_HERE, RUNS_ELSEWHERE, LEFT = range(4)
REPORT, LINE, NOTHING, REPAIR = range(4)
REPORT_AFTER_REPAIR, KEEP, KEEP_WITH_LINE = range(1, 4)
ABORT_GOES_ON, REPAIRED, ENDS_SOON, ENDS_NOW = range(4)
KERNEL, TRANSLATED, TERMINATION, FAULT = range(4)


@pytest.fixture(scope="module")
def decisions(built: Path) -> ctypes.CDLL:
    """The functions of decision.h."""
    return ctypes.CDLL(str(built / "libpytracer_testing.so"))


def kernels(installed: int, fault: bool, blocked: bool, is_init: bool) -> int:
    """The kernel's rules, restated: signal(7), pid_namespaces(7), kernel/signal.c: force_sig_info_to_task()."""
    if fault and (blocked or installed == IGNORED):
        return DIES
    if blocked:
        return DEFER
    if installed == FUNCTION:
        return HANDLER
    if installed == IGNORED or (is_init and not fault):
        return IGNORE
    return DIES


def test_signal_is_decided_as_by_the_kernel(decisions: ctypes.CDLL) -> None:
    """All 24 cases."""
    cases = list(itertools.product((DEFAULT, IGNORED, FUNCTION), (False, True), (False, True), (False, True)))
    assert {case: decisions.testing_decide(*map(int, case)) for case in cases} == {
        case: kernels(*case) for case in cases
    }


@pytest.mark.parametrize(
    ("handler", "may_be_abort", "expected"),
    [
        (NONE, 0, REPORT),
        (NONE, 1, REPORT),
        (RUNS_HERE, 0, NOTHING),
        (RUNS_HERE, 1, NOTHING),
        (RUNS_ELSEWHERE, 0, LINE),
        (RUNS_ELSEWHERE, 1, LINE),
        (LEFT, 0, REPAIR),
        (LEFT, 1, REPORT),
    ],
)
def test_handled_signal_is_reported_once(
    decisions: ctypes.CDLL, handler: int, may_be_abort: int, expected: int
) -> None:
    """A running handler keeps its report; one left by a jump has repaired its signal, unless abort() continues."""
    assert decisions.testing_report_of_handled(handler, may_be_abort) == expected


@pytest.mark.parametrize(
    ("handler", "expected"),
    [(NONE, REPORT), (RUNS_HERE, KEEP), (RUNS_ELSEWHERE, KEEP_WITH_LINE), (LEFT, REPORT_AFTER_REPAIR)],
)
def test_death_keeps_the_report_of_its_cause(decisions: ctypes.CDLL, handler: int, expected: int) -> None:
    """A death while a handler runs is a consequence of the signal that the handler got."""
    assert decisions.testing_report_of_death(handler) == expected


@pytest.mark.parametrize(
    ("preloaded", "is_default", "fault", "raised", "expected"),
    [
        # Preloaded, the program's own sigaction is seen: only the default action ends the process.
        (1, 0, 0, 0, REPAIRED),
        (1, 0, 0, 1, REPAIRED),
        (1, 0, 1, 0, REPAIRED),
        (1, 0, 1, 1, REPAIRED),
        (1, 1, 0, 0, REPAIRED),
        (1, 1, 0, 1, ENDS_SOON),
        (1, 1, 1, 0, ENDS_SOON),
        (1, 1, 1, 1, ENDS_SOON),
        # Otherwise the action that the program restored may be ours: a raised signal ends the process.
        (0, 0, 0, 0, REPAIRED),
        (0, 0, 0, 1, ENDS_NOW),
        (0, 0, 1, 0, REPAIRED),
        (0, 0, 1, 1, ENDS_NOW),
        (0, 1, 0, 0, REPAIRED),
        (0, 1, 0, 1, ENDS_NOW),
        (0, 1, 1, 0, ENDS_NOW),
        (0, 1, 1, 1, ENDS_NOW),
    ],
)
def test_return_of_a_handler(
    decisions: ctypes.CDLL, preloaded: int, is_default: int, fault: int, raised: int, expected: int
) -> None:
    """The process continues, or the signal is raised again; abort() ends the process in every case."""
    assert decisions.testing_after_handler(0, preloaded, is_default, fault, raised) == expected
    assert decisions.testing_after_handler(1, preloaded, is_default, fault, raised) == ABORT_GOES_ON


def test_action_goes_where_the_program_sees_no_difference(decisions: ctypes.CDLL) -> None:
    """All 24 calls of sigaction: our handler stays only where it is installed, in our own process, under preload."""
    kinds = {(0, 0): TRANSLATED, (0, 1): TERMINATION, (1, 0): FAULT}
    for (kind, kept), flags in itertools.product(kinds.items(), itertools.product((0, 1), repeat=3)):
        preloaded, installed, own_process = flags
        if kind == (0, 0):
            expected = kept if preloaded else KERNEL
        else:
            expected = kept if preloaded and installed and own_process else KERNEL
        assert decisions.testing_route_of(*kind, *flags) == expected


def test_interrupted_call_restarts_as_without_us(decisions: ctypes.CDLL) -> None:
    """The default action interrupts no system call; a handler does, unless it was installed with SA_RESTART."""
    cases = itertools.product((DEFAULT, FUNCTION), (0, 1))
    assert [decisions.testing_restarts_calls(*case) for case in cases] == [1, 1, 0, 1]


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
    """They are blocked, pending and handled as untraced."""
    run.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-S", "-c", OWN.format(signal=number)]
    plain = ended(words, environment(), run)
    done = ended(words, native.env(), run)
    assert "mine" in plain.stdout
    assert (done.status, done.stdout) == (plain.status, plain.stdout)


@pytest.mark.parametrize("how", ["trap", "null", "raised"])
def test_first_process_of_a_namespace_dies_as_untraced(run: Path, native: Native, tmp_path: Path, how: str) -> None:
    """PID 1 of a container: the kernel drops signals that init sends to itself, and forces those of faults."""
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
