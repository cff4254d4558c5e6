"""A thread of a ThreadPoolExecutor that whoever shuts the executor down waits for: asyncio.run() at its end, a `with`.

cancel() of a task ends the task and its Future. A thread that runs a function already goes on until that returns.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.parts import python_frame
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import PythonFrame

_POOL = Pattern(r"/concurrent/futures/thread\.py$")
_EVENT_LOOP = Pattern(r"/asyncio/base_events\.py$")
# CPython: what waits for the threads of an executor, of a loop in a thread of its own, and the loop of such a thread.
_SHUTDOWN, _OF_LOOP, _WORKER = "shutdown", "_do_shutdown", "_worker"
_NEAR = 5
# What a thread waits in for somebody else: nothing ends that when the program is done.
_BLOCKS = Pattern(r"/(queue|threading|multiprocess(?:ing)?/\w+|socket|ssl|selectors|subprocess)\.py$")


class UnfinishedTask(msgspec.Struct, frozen=True):
    """The program's line in a thread of an executor, and the function of a library that this line called."""

    at: PythonFrame
    within: str | None
    blocked: bool


def ends_executor(stack: Sequence[PythonFrame], end: Crash | None) -> bool:
    """Whether the main thread waits for the threads of an executor: in shutdown(), or in the loop that does it."""
    if any(_is(frame, _POOL, _SHUTDOWN) for frame in stack[:_NEAR]):
        return True
    loops = _EVENT_LOOP.search(stack[1].file or "") if len(stack) > 1 else None
    threads = end.python_threads if end is not None else ()
    return loops is not None and any(
        _EVENT_LOOP.search(frame.file) and (frame.function or "").endswith(_OF_LOOP)
        for _, frames in threads
        for frame in frames
    )


def unfinished_task(end: Crash | None) -> UnfinishedTask | None:
    """The first thread of an executor that was in a function of the program."""
    for _, frames in end.python_threads if end is not None else ():
        if not any(_POOL.search(item.file) and (item.function or "").endswith(_WORKER) for item in frames):
            continue
        at = next((number for number, item in enumerate(frames) if not is_library_file(item.file)), None)
        if at is None:
            continue
        within = frames[at - 1] if at else None
        blocked = within is not None and _BLOCKS.search(within.file) is not None
        return UnfinishedTask(python_frame(frames[at]), within.function if within is not None else None, blocked)
    return None


def _is(frame: PythonFrame, file: Pattern, name: str) -> bool:
    return file.search(frame.file or "") is not None and (frame.function or "").rpartition(".")[2] == name
