"""Which installed packages are the program itself: those that a process was started from, and whose lines it ran.

Where its stacks have files of the user's, these are the program, and a package that runs them is a library.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytracer._started_package import is_file_of_user, started_package
from pytracer.decode.types.snapshot import Job, Process


def program_packages(job: Job) -> tuple[str, ...]:
    """Their top names, sorted. Console scripts that the command lines name are read."""
    found: dict[str, bool] = {}
    for process in job.processes:
        name = started_package(process.snapshot.argv) if process.role != "child" else None  # which a library starts
        if name is not None:
            found[name] = found.get(name, True) and not any(map(is_file_of_user, _files(process)))
    return tuple(sorted(name for name, is_program in found.items() if is_program))


def _files(process: Process) -> Iterator[str]:
    """Of all frames of its end, as far as they were recorded."""
    snapshot = process.snapshot
    for end in (snapshot.crash, snapshot.ending, snapshot.live):
        if end is not None:
            yield from (frame.file for frame in end.python_stack)
            yield from (frame.file for _, stack in end.python_threads for frame in stack)
    if process.exception is not None:
        yield from (frame.file for frame in process.exception.python_stack)
