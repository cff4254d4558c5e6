"""The launcher's helper: a small process beside the job that stops the threads of a dying one by ptrace.

It is a child of the launcher, not of the job, so nothing in the job ever waits for it. It serves only processes that
descend from the launcher, run as its user and make the request for themselves. Without it, each thread is signalled
instead, and the report notes that. Its program is csrc/helper/, built with the core.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

from pytracer._private_files import made_directory, private_directory
from pytracer.launcher.run_directory import Run

PROGRAM = Path(__file__).resolve().parents[1] / "_helper"
SOCKET = "helper.sock"
_READY_SECONDS = 2.0


@contextlib.contextmanager
def helper(run: Run) -> Iterator[str]:
    """Runs the helper for the duration of the block.

    Yields:
        A note for the user when it could not be started, else "".
    """
    pid, note = _start(run)
    descriptor = _hold(pid)
    try:
        yield note
    finally:
        if pid:
            _end(pid, descriptor)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        (run.helper / SOCKET).unlink(missing_ok=True)
        if run.helper != run.recording:
            run.helper.rmdir()


def _hold(pid: int) -> int:
    """A descriptor of the process: as a subreaper the launcher may reap it early, and its pid may be reused."""
    try:
        return os.pidfd_open(pid) if pid else -1
    except OSError:
        return -1


def _end(pid: int, descriptor: int) -> None:
    """By SIGKILL: it has nothing to clean up, and a stopped one would block the launcher."""
    with contextlib.suppress(ProcessLookupError):
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    if descriptor >= 0:
        os.close(descriptor)


def _start(run: Run) -> tuple[int, str]:
    """Its pid, or 0 and the reason. Returns once it listens, so that no death is missed."""
    if not PROGRAM.is_file():
        return 0, f"{PROGRAM} is not built: stacks of other threads are taken by a signal instead of ptrace"
    if run.helper != run.recording:
        with private_directory(run.recording) as opened, made_directory(run.helper.name, opened):
            pass
    read_end, write_end = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, write_end, 1),
            (os.POSIX_SPAWN_DUP2, write_end, 2),
        ]
        pid = os.posix_spawn(
            PROGRAM, [PROGRAM.name, str(run.helper)], {}, file_actions=actions, setsigmask=(),
            setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE),
        )  # fmt: skip
    except OSError as error:
        os.close(read_end)
        return 0, f"the helper cannot be started ({error.strerror}): stacks of other threads are taken by a signal"
    finally:
        os.close(write_end)
    with open(read_end, "rb") as pipe:
        ready = select.select([pipe], [], [], _READY_SECONDS)[0]
        says = pipe.read().decode("utf-8", "replace").strip() if ready else "it does not answer"
    return pid, says.removeprefix("pytracer: ")
