"""Starts a command and waits for its end, so that the command does not notice.

It keeps the process group, the terminal, the descriptors, the signal mask and the signal dispositions that it would
have without a launcher. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SI_KERNEL = 0x80  # siginfo.si_code of what a terminal sends (asm-generic/siginfo.h): the job got it, too


@dataclass(frozen=True)
class Ending:
    """How the command ended: exactly one of `exit_code` and `signal` is set.

    `interrupted`: Ctrl-C was pressed. `usage`: what the command and its reaped descendants used (docs/witness.md).
    """

    pid: int
    exit_code: int | None
    signal: int | None
    interrupted: bool
    usage: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """What a shell would show."""
        return self.exit_code if self.exit_code is not None else 128 + (self.signal or 0)

    @property
    def words(self) -> str:
        """For a sentence about the job."""
        if self.exit_code is not None:
            return f"exited with status {self.exit_code}"
        return f"was ended by {signal_name(self.signal or 0)}"


def supervise(
    program: str,
    job: tuple[str, ...],
    environment: dict[str, str],
    started: Callable[[int], None],
    pause: Callable[[], float | None] = lambda: None,
    adopted: Callable[[int], None] | None = None,
) -> Ending:
    """Starts `program`, forwards signals, and waits for its end.

    Signals are blocked here and taken one by one with their origin, so none is lost between start and wait, and an
    interrupt that the terminal sent to the whole process group is not sent a second time. The child gets the mask
    and the dispositions that this process was started with. Signals ignored here, as below nohup, are forwarded
    too: blocked, they are not thrown away, and a job may have its own handler for them.

    Args:
        program: path of the executable.
        job: its arguments, `argv[0]` first.
        environment: all of it.
        started: called with the child's pid.
        pause: called before each wait; returns after how many seconds it wants to be called again, None for never.
        adopted: called with the child's pid when any child may have ended; reaps others (see `orphans.py`).

    Raises:
        OSError: it could not be executed.
    """
    watched = {*FORWARDED, signal.SIGINT, signal.SIGCHLD}
    ignores_interrupts = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would throw the status away
    interrupted = False
    with held(watched) as before:
        pid = os.posix_spawn(program, job, environment, setsigmask=before, setsigdef=to_reset())
        started(pid)
        while True:
            if adopted is not None:
                adopted(pid)
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                break
            seconds = pause()
            info = signal.sigwaitinfo(watched) if seconds is None else signal.sigtimedwait(watched, seconds)
            if info is None:
                continue
            interrupted = interrupted or (info.si_signo == signal.SIGINT and not ignores_interrupts)
            if info.si_signo != signal.SIGCHLD and info.si_code != _SI_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, info.si_signo)
    if os.WIFSIGNALED(status):
        return Ending(pid, None, os.WTERMSIG(status), interrupted, _usage(usage, bool(os.WCOREDUMP(status))))
    return Ending(pid, os.WEXITSTATUS(status), None, interrupted, _usage(usage))


def signal_name(number: int) -> str:
    """The name of a signal, or "signal 64"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _usage(used: resource.struct_rusage, core_dumped: bool = False) -> dict[str, Any]:
    return {
        "maxrss": used.ru_maxrss * 1024,  # of the largest process
        "user_seconds": used.ru_utime,
        "system_seconds": used.ru_stime,
        "major_faults": used.ru_majflt,
        "minor_faults": used.ru_minflt,
        "core_dumped": core_dumped,
    }


def to_reset() -> list[signal.Signals]:
    """The signals that Python ignores on its own and that the job must find at their default.

    CPython sets SIGPIPE and SIGXFSZ to ignored before any code of ours runs (Modules/signalmodule.c,
    signal_install_handlers), so what the launcher was started with is gone. Its parent still shows it: a shell
    after `trap '' PIPE`, or a service manager, ignores the signal itself. A Python parent proves nothing, because
    subprocess gives its children the default back.
    """
    own = (signal.SIGPIPE, signal.SIGXFSZ)
    try:
        parent = Path("/proc", str(os.getppid()))
        status = (parent / "status").read_text(encoding="utf-8", errors="replace")
        ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
        if "python" in os.path.basename(os.readlink(parent / "exe")):
            ignored = 0
    except (OSError, StopIteration, ValueError, IndexError):
        ignored = 0
    return [signum for signum in own if not ignored >> (signum - 1) & 1]


@contextlib.contextmanager
def held(signals: Collection[int]) -> Iterator[set[int]]:
    """Blocks `signals` and yields the mask before; what comes meanwhile and is not taken is dropped at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield set(before)
    finally:
        while signal.sigtimedwait(signals, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
