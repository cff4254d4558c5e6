"""A real terminal: a pty whose session leader is a program of the test's choice, often an interactive shell."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SHELL = ("bash", "--norc", "--noprofile", "--noediting", "-i")
_SECONDS = 20.0


class Terminal:
    """Runs `command` as the leader of a session on a new terminal; `screen` is all output so far."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        self.screen = b""
        self._at = 0
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                os.execvpe(command[0], list(command), {**environment, "PS1": "prompt> ", "TERM": "dumb"})
            finally:
                os._exit(127)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def type(self, text: str) -> None:
        """Types keys."""
        os.write(self._master, text.encode())

    def expect(self, words: str, seconds: float = _SECONDS) -> str:
        """Reads until `words` appear after the previous match; returns the output up to them."""
        until = time.monotonic() + seconds
        while (found := self.screen.find(words.encode(), self._at)) < 0:
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{words!r} was not shown; the screen is:\n{self.screen.decode(errors='replace')}")
        shown = self.screen[self._at : found]
        self._at = found + len(words.encode())
        return shown.decode(errors="replace")

    def resize(self, rows: int, columns: int) -> None:
        """Resizes, as a terminal emulator does when its window changes."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Hangs up."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def wait(self) -> int:
        """The leader's exit status, or negative signal; reads output meanwhile."""
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if self._master >= 0:
                self._read(0.05)
            else:
                time.sleep(0.02)
        raise AssertionError(f"process {self.pid} goes on; the screen is:\n{self.screen.decode(errors='replace')}")

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: no process has the terminal open
            data = b""
        self.screen += data
        return bool(data)
