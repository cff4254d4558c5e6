"""The end of a pool of processes: what joins a thread of it waits until its workers have done all tasks."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import of_multiprocessing
from pytracer._patterns import Pattern
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import PythonFrame

_THREADING = Pattern(r"/threading\.py$")
_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")
_EXECUTOR = Pattern(r"/(concurrent/futures/process|loky/process_executor)\.py$")
# CPython: `with` and shutdown(wait=True) of an executor, and the end of a program that has one.
_ENDS = ("shutdown", "_python_exit")
_JOIN, _WORKER, _PUT = "join", "worker", "put"
_QUEUES = of_multiprocessing("queues")
_NEAR = 5


def joins_pool(stack: Sequence[PythonFrame], end: Crash | None) -> bool:
    """Whether join() of a thread waits for the processes of a pool; not for a ThreadPool, whose workers are threads.

    Args:
        stack: Of the main thread, innermost first.
        end: What was recorded at the end of the process.
    """
    inner = [frame for frame in stack if _THREADING.search(frame.file or "")]
    if not inner or inner[0] is not stack[0] or not any(_last_word(frame.function) == _JOIN for frame in inner):
        return False
    caller = next((frame for frame in stack if not _THREADING.search(frame.file or "")), stack[0])
    if _EXECUTOR.search(caller.file or ""):
        return _last_word(caller.function) in _ENDS
    is_join = _POOL.search(caller.file or "") is not None and _last_word(caller.function) == _JOIN
    return is_join and not _has_own_workers(end)


def _has_own_workers(end: Crash | None) -> bool:
    frames = [item for _, stack in (end.python_threads if end is not None else ()) for item in stack]
    return any(_POOL.search(item.file) and _last_word(item.function) == _WORKER for item in frames)


def _last_word(function: str | None) -> str:
    return (function or "").rpartition(".")[2]


def hands_over(stack: Sequence[PythonFrame]) -> bool:
    """Whether a worker of a multiprocessing pool puts a result: into a pipe, and its put() takes no time limit."""
    near = stack[:_NEAR]
    puts = any(_last_word(item.function) == _PUT and (item.file or "").endswith(_QUEUES) for item in near)
    return puts and any(_last_word(item.function) == _WORKER and _POOL.search(item.file or "") for item in near)
