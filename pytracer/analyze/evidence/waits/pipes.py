"""Waits at a pipe of multiprocessing, and the line that forked a child: by the Python frames of a stack."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from pytracer._library_files import installed_package, is_library_file
from pytracer._patterns import Pattern
from pytracer.report.job import PythonFrame

_CONNECTION = Pattern(r"/(multiprocess(?:ing)?/connection|torch/multiprocessing/queue)\.py$")
# What uses pipes of its own: its waits have names of their own, or are those of an idle worker.
_OWN_PIPES = Pattern(
    r"/(multiprocess(?:ing)?/\w+|concurrent/futures/process|loky/\w+|torch/utils/data/_utils/\w+"
    r"|torch/_inductor/compile_worker/\w+)\.py$"
)
Starter = Literal["Process", "Pool", "ProcessPoolExecutor", "DataLoader"]
_STARTERS: tuple[tuple[str, Starter], ...] = (
    ("/torch/utils/data/dataloader.py", "DataLoader"),
    ("/concurrent/futures/process.py", "ProcessPoolExecutor"),
    ("/multiprocessing/pool.py", "Pool"),
    ("/multiprocess/pool.py", "Pool"),
)
_MANAGERS = Pattern(r"/multiprocess(?:ing)?/managers\.py$")
_NEAR = 5  # frames
_PROCESS = Pattern(r"/multiprocess(?:ing)?/process\.py$")
_FORK = Pattern(r"/multiprocess(?:ing)?/popen_fork\.py$")


def pipe_wait(stack: Sequence[PythonFrame]) -> Literal["message", "full-pipe"] | None:
    """Whether it reads a message that has not come, or writes one that the other end has not read.

    Not poll(), which may have a limit. A pipe of a queue, a pool or a manager is theirs.
    """
    inner = (stack[0].function or "").rpartition(".")[2] if stack and _CONNECTION.search(stack[0].file or "") else ""
    if inner not in ("_recv", "_send"):
        return None
    asked = next((frame for frame in stack if not _CONNECTION.search(frame.file or "")), None)
    if asked is None or _OWN_PIPES.search(asked.file or ""):
        return None
    return "message" if inner == "_recv" else "full-pipe"


def asks_manager(stack: Sequence[PythonFrame]) -> bool:
    """Whether it waits for the answer of a manager's process, such as of a queue, which it may ask again and again."""
    near = stack[:_NEAR]
    is_read = bool(near) and _CONNECTION.search(near[0].file or "") is not None
    return is_read and any(
        _MANAGERS.search(frame.file or "") and (frame.function or "").endswith("_callmethod") for frame in near
    )


def forked_at(stack: Sequence[PythonFrame]) -> tuple[PythonFrame, Starter] | None:
    """The line of the program that forked a process, and what it started, by the copied frames of its own stack."""
    at = max((place for place, frame in enumerate(stack) if _FORK.search(frame.file or "")), default=None)
    outer = stack[at + 1 :] if at is not None else ()
    line = next((place for place, frame in enumerate(outer) if not is_library_file(frame.file)), None)
    if line is None:
        return None
    for end, starter in _STARTERS:
        if any((frame.file or "").endswith(end) for frame in outer[:line]):
            return outer[line], starter
    return outer[line], "Process"


def is_bootstrap(frame: PythonFrame) -> bool:
    """Whether it is where multiprocessing begins to run a child; of one that was forked, copied frames are above."""
    return (frame.function or "").endswith("_bootstrap") and _PROCESS.search(frame.file or "") is not None


def fork_file(stack: Sequence[PythonFrame]) -> str | None:
    """Of multiprocessing, or of the package multiprocess: which of both forked this process."""
    return next((frame.file for frame in reversed(stack) if _FORK.search(frame.file or "")), None)


def forked_inside(stack: Sequence[PythonFrame]) -> tuple[str, PythonFrame | None] | None:
    """The installed package that forked by itself, called by the program, and the child's first line of the program."""
    at = max((place for place, frame in enumerate(stack) if _FORK.search(frame.file or "")), default=None)
    if at is None:
        return None
    between = takewhile(lambda frame: is_library_file(frame.file), stack[at + 1 :])
    package = next((name for frame in between if (name := installed_package(frame.file)) is not None), None)
    own = [frame for frame in stack[:at] if not is_library_file(frame.file)]
    return (package, own[-1] if own else None) if package is not None else None


def is_process_class(node: ast.ClassDef) -> bool:
    """Whether it is derived from multiprocessing's Process, by that name."""
    return any(ast.unparse(base).endswith("Process") for base in node.bases)


def has_copied_frames_only(stack: Sequence[PythonFrame]) -> bool:
    """Whether a forked child runs no line of the program: those on its stack are its parent's, up to the fork."""
    at = max((place for place, frame in enumerate(stack) if _FORK.search(frame.file or "")), default=0)
    return at > 0 and all(is_library_file(frame.file) for frame in stack[:at])
