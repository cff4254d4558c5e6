"""The file that COMMAND names, and what is wrong where it cannot be executed: as a shell would say it."""

from __future__ import annotations

import errno
import os

from pytracer._errors import PytracerError
from pytracer._printable import shell_command


def find_program(word: str) -> str:
    """The file that a shell would execute for `word`.

    Raises:
        CommandError: there is none (127), or it may not be executed (126).
    """
    candidates = [word] if "/" in word else [os.path.join(path or ".", word) for path in os.get_exec_path()]
    found = [path for path in candidates if os.path.exists(path)]
    for path in found:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    if found:
        raise command_error(found[0], PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    raise command_error(word, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


class CommandError(PytracerError):
    """The command could not be started; `exit_code` is the shell's 126 or 127."""

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def command_error(word: str, error: OSError) -> CommandError:
    """The error of exec for `word`, with the next step and a shell's exit code."""
    if isinstance(error, FileNotFoundError):
        if "/" in word and os.path.exists(word):
            return CommandError(f"cannot execute {word}: its interpreter does not exist", "look at its first line", 127)
        hint = "check the path" if "/" in word else "check the spelling and PATH"
        return CommandError(f"there is no command {word!r}", hint, 127)
    if error.errno == errno.ENOEXEC:
        return CommandError(
            f"cannot execute {word}: it is no program and has no interpreter line",
            f"try `{shell_command('sh', word)}`",
            126,
        )
    if os.path.isdir(word):
        return CommandError(f"cannot execute {word}: it is a directory", "name a command", 126)
    if isinstance(error, PermissionError):
        return CommandError(
            f"cannot execute {word}: permission denied",
            f"`chmod +x`, or name its interpreter: `{shell_command('python', word)}`",
            126,
        )
    return CommandError(f"cannot execute {word}: {error.strerror}", "run `pytracer doctor`", 126)
