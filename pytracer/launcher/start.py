"""Starts the job's first process with exactly the signal state that the launcher was started with.

By fork and exec: glibc's posix_spawn leaves its own signals 32 and 33 ignored in the child (2.24 to 2.37,
sysdeps/unix/sysv/linux/spawni.c), and cannot restore an ignored signal.
"""

from __future__ import annotations

import mmap
import os
import signal
from pathlib import Path

# Programs that ignore SIGPIPE for themselves and reset it for their children.
_RESTORE_IN_CHILDREN = ("python", "sshd", "node")


class StartError(Exception):
    """The program could not be executed, because of `error`; nothing of the job has run."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Job:
    """The job's first process, from its fork on."""

    def __init__(self, program: str, arguments: tuple[str, ...], environment: dict[str, str], mask: set[int]) -> None:
        """Forks; all signals must be blocked. Resets SIGCHLD: while it is ignored, exit statuses are discarded.

        Args:
            program: path of the executable.
            arguments: `argv[0]` first.
            environment: all of it.
            mask: signals that the job finds blocked.

        Raises:
            StartError: there is no process to be had.
        """
        # Shared memory, not a pipe: it needs no descriptor, of which there may be none left.
        self._error = mmap.mmap(-1, 4)
        # Our handlers would run between unblocking and exec, which resets them to the default anyway.
        defaults = {number for number in signal.valid_signals() if callable(signal.getsignal(number))} | {*to_reset()}
        children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            self.pid = os.fork()
        except OSError as error:
            raise StartError(error) from error
        if self.pid == 0:
            try:
                for number in defaults:
                    signal.signal(number, signal.SIG_DFL)
                if children is signal.SIG_IGN:
                    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                os.execve(program, arguments, environment)
            except OSError as error:
                self._error[:] = (error.errno or 0).to_bytes(4, "little")
            finally:
                os._exit(127)

    def check_started(self) -> None:
        """To be called when the process has ended.

        Raises:
            StartError: it ended because the program could not be executed.
        """
        error = int.from_bytes(self._error[:], "little")
        if error:
            raise StartError(OSError(error, os.strerror(error)))


def to_reset() -> list[signal.Signals]:
    """The signals that Python ignores on its own and that the job must find at their default.

    CPython sets SIGPIPE and SIGXFSZ to ignored before any of our code runs (Modules/signalmodule.c,
    signal_install_handlers), so the launcher's original disposition is lost. Its parent still shows it: a shell after
    `trap '' PIPE`, or a service manager, ignores the signal itself. A parent that resets it for its children, as
    Python's subprocess does, proves nothing.
    """
    own = (signal.SIGPIPE, signal.SIGXFSZ)
    try:
        parent = Path("/proc", str(os.getppid()))
        status = (parent / "status").read_text(encoding="utf-8", errors="replace")
        ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
        if any(word in os.path.basename(os.readlink(parent / "exe")) for word in _RESTORE_IN_CHILDREN):
            ignored = 0
    except (OSError, StopIteration, ValueError, IndexError):
        ignored = 0
    return [signum for signum in own if not ignored >> (signum - 1) & 1]
