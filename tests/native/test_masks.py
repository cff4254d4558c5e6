"""Signal masks under preload: a fault is reported whatever is blocked, and the program sees the mask that it set."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_core
from tests.native.harness import Native
from tests.support.crash import ended, environment

pytestmark = needs_core

MASKS = """
import ctypes, os, signal, sys, threading
WORDS = ctypes.c_uint64 * 16
def on_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
libc = ctypes.CDLL(None)
S = signal
FAULTS = {S.SIGSEGV, S.SIGBUS, S.SIGILL, S.SIGFPE, S.SIGTRAP, S.SIGSYS}
def block(*wanted): return S.pthread_sigmask(S.SIG_BLOCK, wanted)
def mask(): return sorted(S.pthread_sigmask(S.SIG_BLOCK, ()))
def in_kernel():
    status = open(f"/proc/self/task/{threading.get_native_id()}/status").read()
    bits = int(status.split("SigBlk:")[1].split()[0], 16)
    return {s for s in FAULTS if bits >> s - 1 & 1}
def raw_block():
    every, number = ctypes.c_uint64(2**64 - 1), 14 if os.uname().machine == "x86_64" else 135
    libc.syscall(number, S.SIG_BLOCK, ctypes.byref(every), None, ctypes.c_size_t(8))
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", WORDS), ("flags", ctypes.c_int), ("none", ctypes.c_void_p)]
def on(number, function, bits=2**64 - 1):
    action = Action(ctypes.cast(function, ctypes.c_void_p), WORDS(bits), 0, None)
    assert libc.sigaction(int(number), ctypes.byref(action), None) == 0
def mask_of(number):
    action = Action()
    assert libc.sigaction(int(number), None, ctypes.byref(action)) == 0
    return {s for s in S.valid_signals() if action.mask[0] >> s - 1 & 1}
"""

SAME = {
    "set, add, remove": """
print(block(*S.valid_signals()), mask())
print(S.pthread_sigmask(S.SIG_UNBLOCK, {S.SIGSEGV, S.SIGINT}), mask())
print(S.pthread_sigmask(S.SIG_SETMASK, {S.SIGBUS, S.SIGHUP}), mask())""",
    "sigprocmask": """
a, b = WORDS(1 << 10 | 1 << 1), WORDS()
print(libc.sigprocmask(0, a, b), b[0], libc.sigprocmask(7, a, b), libc.sigprocmask(0, None, b), b[0])
print(libc.sigprocmask(0, b, b), b[0])""",
    "a new thread": "block(S.SIGSEGV, S.SIGUSR1); on_thread(lambda: print(mask()))",
    "a forked child": """
block(S.SIGSEGV, S.SIGUSR1)
if os.fork() == 0:
    print(mask(), flush=True)
    os._exit(0)
os.wait()""",
    "a raw mask in a new thread": "raw_block(); on_thread(lambda: print(mask()))",
    "a raw mask at exec": """
raw_block()
code = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))"
os.execv(sys.executable, [sys.executable, "-c", code])""",
    "a subprocess between": """
import subprocess
block(*FAULTS)
print(subprocess.run(["true"]).returncode, mask())
S.pthread_sigmask(S.SIG_SETMASK, ())
print(subprocess.run(["true"]).returncode, mask())""",
    "raise() is pending": """
block(S.SIGSEGV)
S.raise_signal(S.SIGSEGV)
print(S.sigpending(), mask())
i = S.sigwaitinfo({S.SIGSEGV})
print(i.si_signo, i.si_code, i.si_pid == os.getpid(), S.sigpending(), mask())""",
    "kill is pending": """
block(S.SIGBUS)
os.kill(os.getpid(), S.SIGBUS)
print(S.sigpending())
i = S.sigtimedwait({S.SIGBUS}, 5)
print(i.si_signo, i.si_code, i.si_pid == os.getpid(), S.sigpending())
print(S.sigtimedwait({S.SIGBUS}, 0), mask())""",
    "sigwait while it is sent": """
block(S.SIGFPE)
timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), S.SIGFPE))
timer.start()
print(S.sigwait({S.SIGFPE}))
timer.join()""",
    "a thread that waits": """
block(S.SIGILL, S.SIGUSR1)
for i in range(50):
    thread = threading.Thread(target=lambda: print(S.sigwait({S.SIGILL, S.SIGUSR1})))
    thread.start()
    os.kill(os.getpid(), S.SIGILL)
    thread.join()
print(S.sigpending())""",
    "a pending signal meets its handler when unblocked": """
S.signal(S.SIGSEGV, lambda *_: print("handled"))
block(S.SIGSEGV)
S.raise_signal(S.SIGSEGV)
print("blocked")
S.pthread_sigmask(S.SIG_UNBLOCK, {S.SIGSEGV})
print("end")""",
    "a pending signal that is ignored": """
S.signal(S.SIGSEGV, S.SIG_IGN)
block(S.SIGSEGV)
S.raise_signal(S.SIGSEGV)
print(S.sigpending())
S.pthread_sigmask(S.SIG_UNBLOCK, {S.SIGSEGV})
print(S.sigpending())""",
    "sigsuspend lets it through": """
S.signal(S.SIGSEGV, lambda *_: print("handled"))
block(S.SIGSEGV)
S.raise_signal(S.SIGSEGV)
print("waits")
libc.sigsuspend(WORDS())
print("end", mask())""",
    "the mask of a handler": """
on(S.SIGUSR1, libc.abs)
print(sorted(mask_of(S.SIGUSR1) - {32, 33}))
S.signal(S.SIGUSR1, S.SIG_IGN)
print(mask_of(S.SIGUSR1))
on(S.SIGUSR1, libc.abs, 1 << 10)
libc.signal(10, None)
print(mask_of(10))""",
}


@pytest.mark.parametrize("code", SAME.values(), ids=SAME)
def test_program_sees_the_mask_that_it_set(native: Native, run: Path, code: str) -> None:
    """The output is the same as untraced, line by line; only a signal that the program then handles is reported."""
    run.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-S", "-c", MASKS + code]
    plain = ended(words, environment(), run)
    done = ended(words, native.env(), run)
    assert (plain.status, plain.stderr) == (0, "")
    assert (done.status, done.stdout, done.stderr) == (0, plain.stdout, "")
    assert plain.stdout
    assert all(box.crash is None or box.crash.repaired for box in done.boxes)


def test_signal_that_was_held_back_ends_the_process_when_unblocked(native: Native) -> None:
    """The status is that of the sent signal, and its sender is in the report."""
    code = "block(S.SIGBUS); S.raise_signal(S.SIGBUS); S.pthread_sigmask(S.SIG_UNBLOCK, {S.SIGBUS})"
    done = native.child(MASKS + code)
    assert done.status == -signal.SIGBUS
    crash = done.box.crash
    assert crash is not None and crash.complete
    assert (crash.signal, crash.code, crash.sender_pid) == (signal.SIGBUS, -6, done.pid)


FAULTING = {
    "all blocked": "t.testing_crash_blocked()",
    "by sigprocmask": "libc.sigprocmask(2, WORDS(*[2**64 - 1] * 16), None); t.testing_null()",
    "on a new thread": "block(*S.valid_signals()); on_thread(t.testing_null)",
    "by a raw call, on a new thread": "raw_block(); on_thread(t.testing_null)",
    "by the attributes of a thread": """
attributes, thread = WORDS(), ctypes.c_ulong()
libc.pthread_attr_init(attributes)
if hasattr(libc, "pthread_attr_setsigmask_np"):  # new in glibc 2.32
    assert libc.pthread_attr_setsigmask_np(attributes, WORDS(*[2**64 - 1] * 16)) == 0
libc.pthread_create(ctypes.byref(thread), attributes, t.testing_null, None)
libc.pthread_join(thread, None)""",
    "after sigtimedwait": "block(*FAULTS); S.sigtimedwait(FAULTS, 0); t.testing_null()",
    "after one was pending": "block(*FAULTS); S.raise_signal(S.SIGSEGV); S.sigwait({S.SIGSEGV}); t.testing_null()",
    "after a new thread": "block(*FAULTS); on_thread(lambda: None); t.testing_null()",
    "after a subprocess": "import subprocess; block(*FAULTS); subprocess.run(['true']); t.testing_null()",
    "in a handler that blocks all": "on(S.SIGUSR1, t.testing_null); S.raise_signal(S.SIGUSR1)",
}


@pytest.mark.parametrize("code", FAULTING.values(), ids=FAULTING)
def test_fault_is_reported_whatever_is_blocked(native: Native, code: str) -> None:
    """The kernel would end the process without a handler: under preload the report is whole, the status the same."""
    done = native.child(MASKS + code)
    assert done.status == -signal.SIGSEGV, done.stderr
    crash = done.box.crash
    assert crash is not None and crash.complete
    assert crash.fault_addr == 0 and crash.code > 0


def test_process_that_starts_with_all_signals_blocked_is_reported(native: Native, run: Path) -> None:
    """A mask passes exec, below a daemon that blocked everything too."""
    run.parent.mkdir(parents=True, exist_ok=True)
    start = (
        "import os, signal, sys; signal.pthread_sigmask(0, signal.valid_signals()); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [sys.executable, "-S", "-c", start, *native.command("t.testing_null()")]
    variables = [f"{name}={value}" for name, value in native.env().items() if name in ("LD_PRELOAD", "PYTRACER_DIR")]
    words[4:4] = ["/usr/bin/env", *variables]
    done = ended(words, environment(PYTRACER_LAUNCHER="1"), run)
    assert done.status == -signal.SIGSEGV
    assert done.box.crash is not None and done.box.crash.complete


def test_vfork_child_leaves_its_parents_belief_alone(native: Native) -> None:
    """It unblocks everything and crashes: its parent's view of its own mask is unchanged."""
    code = "block(*FAULTS); print(t.testing_crash_in_vfork_child() & 127); print(FAULTS <= set(mask()), in_kernel())"
    done = native.child(MASKS + code)
    assert (done.status, done.stdout) == (0, "11\nTrue set()\n")
    assert done.box.crash is None


def test_masks_are_the_kernels_without_preload(run: Path) -> None:
    """After enable() alone nothing is interposed: the known limit in docs/reference/crash-safety.md."""
    run.parent.mkdir(parents=True, exist_ok=True)
    code = f"import pytracer; pytracer.enable({str(run)!r})\n{MASKS}\nblock(*FAULTS); print(in_kernel() == FAULTS)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
