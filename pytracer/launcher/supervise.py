"""Starts a command and waits for its end, unnoticed by the command.

It keeps the process group, the terminal, the descriptors, the signal mask and the signal dispositions that it would
have without a launcher. Signals to the launcher reach the command; when the command is stopped, so is the launcher
(`job_control.py`), and the shell above sees what it would see without it. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from pytracer.launcher.group_signals import Bystander
from pytracer.launcher.job_control import stop_as_well
from pytracer.launcher.json_object import JsonObject
from pytracer.launcher.signal_wait import EVERY, SI_KERNEL, Received, next_signal
from pytracer.launcher.start import Job

# Signals that would end the launcher while it reports.
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Ending:
    """How the command ended: exactly one of `exit_code` and `signal` is set.

    `interrupted`: Ctrl-C was pressed. `usage`: what the command and its reaped descendants used
    (docs/reference/launcher.md).
    """

    pid: int
    exit_code: int | None
    signal: int | None
    interrupted: bool
    usage: JsonObject = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The status that a shell would show."""
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
    mask: set[int] | None = None,
) -> Ending:
    """Starts `program`, forwards signals, and waits for its end.

    All signals are blocked here and taken one by one with their origin, so none is lost between start and wait, and
    what the terminal sent to the whole process group is not sent a second time. The child gets the mask and the
    dispositions that this process was started with. Signals ignored here, as below nohup, are forwarded too: blocked,
    they are not thrown away, and a job may have its own handler for them.

    Args:
        program: path of the executable.
        job: its arguments, `argv[0]` first.
        environment: all of it.
        started: called with the child's pid; must not raise.
        pause: called before each wait; returns after how many seconds it wants to be called again, None for never;
            must not raise.
        mask: the signals that the child finds blocked; None for those that are blocked here.
        adopted: called with the child's pid when any child may have ended; reaps others (see `subreaper.py`).

    Raises:
        StartError: it could not be executed.
    """
    interrupted = False
    lookout = -1
    with held(EVERY) as before:
        ignores_interrupts = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        child = Job(program, job, environment, before if mask is None else mask)
        bystander = Bystander()  # after the job, which must get the last process that a limit allows
        try:
            started(child.pid)
            while True:
                if adopted is not None:
                    adopted(child.pid)
                ended, status, usage = os.wait4(child.pid, os.WNOHANG | os.WUNTRACED)
                if ended and os.WIFSTOPPED(status):
                    lookout = stop_as_well(child.pid, os.WSTOPSIG(status))
                    continue
                if ended:
                    break
                received = next_signal(EVERY, pause())
                if received is None:
                    continue
                interrupted = interrupted or (received.number == signal.SIGINT and not ignores_interrupts)
                if _is_for_job(received, bystander, lookout):
                    with contextlib.suppress(OSError):  # it has ended, or its process has another user by now
                        os.kill(child.pid, received.number)
        finally:
            bystander.end()
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm set before exec was the job's
    child.check_started()
    if os.WIFSIGNALED(status):
        return Ending(child.pid, None, os.WTERMSIG(status), interrupted, _usage(usage, bool(os.WCOREDUMP(status))))
    return Ending(child.pid, os.WEXITSTATUS(status), None, interrupted, _usage(usage))


def _is_for_job(received: Received, bystander: Bystander, lookout: int) -> bool:
    """Whether a signal to the launcher would have reached the job alone, in the launcher's place.

    Signals to the whole process group reach the job themselves. The kernel sends the hangup of a terminal, SIGHUP and
    SIGCONT, to the session leader alone (drivers/tty/tty_jobctrl.c, tty_signal_session_leader), and SIGALRM of an
    alarm(2) set before exec to its process.
    """
    if received.number == signal.SIGCHLD:
        return False
    if received.code > 0:
        hangup = received.number in (signal.SIGHUP, signal.SIGCONT) and os.getsid(0) == os.getpid()
        return received.code == SI_KERNEL and (hangup or received.number == signal.SIGALRM)
    # SIGPIPE and SIGXFSZ of our own writes carry our own pid. A sender outside of our pid namespace has pid 0.
    return received.sender not in (os.getpid(), lookout) and not bystander.heard(received)


def signal_name(number: int) -> str:
    """The name of a signal, or "signal 64"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _usage(used: resource.struct_rusage, core_dumped: bool = False) -> JsonObject:
    return {
        "maxrss": used.ru_maxrss * 1024,  # of the largest process
        "user_seconds": used.ru_utime,
        "system_seconds": used.ru_stime,
        "major_faults": used.ru_majflt,
        "minor_faults": used.ru_minflt,
        "core_dumped": core_dumped,
    }


@contextlib.contextmanager
def held(signals: Collection[int]) -> Iterator[set[int]]:
    """Blocks `signals` and yields the previous mask; signals that are not taken meanwhile are dropped at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield set(before)
    finally:
        while signal.sigtimedwait(signals, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
