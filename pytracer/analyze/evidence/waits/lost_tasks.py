"""A worker of a multiprocessing pool that ended inside of a task: the pool never gets a result of that."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import time_words
from pytracer.analyze.evidence.ends.exit_calls import exit_call, printed_before
from pytracer.analyze.evidence.ends.exit_condition import exit_condition
from pytracer.analyze.evidence.ends.signal_senders import noted_evidence
from pytracer.analyze.evidence.syntax.calls import keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.pool_kills import PoolKill, is_dismissed, pool_kill
from pytracer.analyze.evidence.waits.unread_tasks import UnreadTask, unread_task
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of, main_stack, program_stack, wait_of
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_WORKER = Pattern(r"\b\w*PoolWorker-[\d:]+$")
_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")
_BEFORE_NS = 500_000_000  # what ends a whole job meets its processes in any order
_CAUGHT = (
    "the pool hands that to the caller, but catches only Exception: SystemExit and os._exit() end the worker without "
    "a result"
)
_RAISES = (
    "Or use concurrent.futures.ProcessPoolExecutor, whose result() raises when a worker has ended; get(timeout=...) "
    "ends such a wait."
)


class LostTask(msgspec.Struct, frozen=True):
    """`others`: workers of the pool that had ended so, too. `at`: the program's line, and `call` what it called there.

    `unread`: where the worker could not even read the task.

    `first`: whether that was the pool's initializer, so that each worker ends before its first task.
    """

    worker: ProcessView
    parent: ProcessView
    wait: ProcessWait
    others: int
    at: PythonFrame | None
    call: str | None
    first: bool
    left: tuple[ProcessView, ...]
    """Workers of the process that asked for their end, by a status that is not 0, or could not read their task."""
    unread: UnreadTask | None = None
    kill: PoolKill | None = None
    """The line of the program that ended it."""
    working: bool = False
    """Whether another worker was inside of a task: the pool may have waited for that one."""

    @property
    def words(self) -> str:
        """`its worker ForkPoolWorker-2 (pid 8) had ended itself with exit status 1, and a pool never gets ...`."""
        if self.kill is not None:
            return self._killed(self.kill)
        gone = "" if not self.others else f", as {self.others} more had"
        result = (
            "in the initializer of the pool, which starts another one each time"
            if self.first
            else "and a pool never gets the result of a task whose worker has ended"
        )
        if self.unread is not None:
            return f"its worker {self._name} {self._ended}{self._before}{gone}{self.unread.why}"
        return f"its worker {self._name} {self._ended}{self._before}{gone}, {result}"

    def _killed(self, kill: PoolKill) -> str:
        before = f"{self._since} before the end, " if self._since is not None else ""
        gone = "" if not self.others else f", as {self.others} more were"
        lost = (
            "a pool never gets the result of a task whose worker was killed"
            if self.working
            else "its task is lost, and the pool waits for that result for ever"
        )
        return f"its worker {self._name} was killed {before}{kill.words}{gone}: {lost}"

    @property
    def _since(self) -> str | None:
        """`37.8 s`: at most as long it waited in vain."""
        end, ended = end_of(self.parent), self.worker.process.ended_mono_ns
        return time_words(end.mono_ns - ended) if end is not None and ended is not None else None

    @property
    def _before(self) -> str:
        return f", {self._since} before the signal" if self._since is not None else ""

    @property
    def _name(self) -> str:
        return f"{_worker_name(self.worker)} (pid {self.worker.process.snapshot.pid})"

    @property
    def _ended(self) -> str:
        number = self.worker.process.signal
        if self.unread is not None:
            return f"could not read its task ({self.unread.error})"
        at = f" at {place_words(self.at)}" if self.at is not None else ""
        if number is not None:
            return f"had died of {signal_name(number)}{at}"
        by = f" by `{self.call}`" if self.call is not None else ""
        return f"had ended itself with exit status {self.worker.process.exit_code}{by}{at}"

    @property
    def advice(self) -> str:
        """What the task should do in place of that."""
        if self.unread is not None:
            return f"{self.unread.advice} {_RAISES}"
        if self.kill is not None:
            return f"{self.kill.advice} {_RAISES}"
        if self.worker.process.signal is None and self.at is None:
            return (
                "Look for sys.exit(), exit(), quit() or os._exit() in what the function of the pool calls, and raise "
                f"an exception there, such as ValueError: {_CAUGHT}. {_RAISES}"
            )
        if self.worker.process.signal is not None or self.at is None:
            return f"Look for what ended {_worker_name(self.worker)}: its task is lost. {_RAISES}"
        stack = _stack_of(self.worker)
        condition = exit_condition(self.worker.process.snapshot, stack)
        if self.first:
            return (
                f"{f'{condition}. ' if condition else ''}Check that before the pool is made, in the process that makes "
                "it: when an initializer ends its worker, by sys.exit() or by an exception, the pool starts another "
                f"one without end. {_RAISES}"
            )
        here = line_in(self.at.file, self.at.line, _waiting_file(self.parent))
        call = f"`{self.call}`" if self.call is not None else "what ends the process"
        why = f" {condition}: find the input for which it does, and repair or skip that." if condition else ""
        printed = printed_before(self.worker.process.snapshot, self.at)
        why += f" {printed}" if printed is not None else ""
        return f"At {here} raise an exception, such as ValueError, in place of {call}: {_CAUGHT}.{why} {_RAISES}"

    @property
    def evidence(self) -> Evidence:
        """The end of that worker; of one that the program killed what the sender noted."""
        noted = noted_evidence(self.worker) if self.kill is not None else []
        if noted:
            return noted[0]
        return Evidence(
            "rank-state",
            f"{self._name} {self._ended}",
            pid=self.worker.process.snapshot.pid,
            rank=self.worker.process.rank,
            state="ended",
            python=self.at,
        )


def lost_task(job: JobView, view: ProcessView, wait: ProcessWait) -> LostTask | None:
    """Of a process that waits for a pool's task, or for the end of a pool; None where all its workers work or idle."""
    if wait.kind != "pool" and not _joins(view):
        return None
    end = end_of(view)
    until = (end.mono_ns if end is not None else view.process.ended_mono_ns or 0) - _BEFORE_NS
    workers = [item for item in children_of(job, view) if _worker_name(item) is not None]
    gone = [item for item in workers if _ended_before(item, until) and _in_a_task(view, item, workers, until)]
    gone = [item for item in gone if not _is_of_left_pool(item, workers, view, until)]
    if not gone:
        return None
    first = min(gone, key=lambda item: item.process.ended_mono_ns or 0)
    stack = _stack_of(first)
    at = next((frame for frame in stack if not is_library_file(frame.file)), None)
    inside = [*_of_task(stack)]
    at = at if at in inside else None
    unread = unread_task(first, view)
    left = tuple(item for item in workers if _asked_for_its_end(item) or unread_task(item, view) is not None)
    is_first = _is_initializer(view, wait, inside)
    call = exit_call(first.process.snapshot, at)
    working = any(not _ended_before(item, until) and [*_of_task(_stack_of(item))] for item in workers)
    kill = pool_kill(job, view, first)
    return LostTask(first, view, wait, len(gone) - 1, at, call, is_first, left, unread, kill, working)


def lost_tasks(job: JobView, views: Sequence[ProcessView]) -> list[LostTask]:
    """Of those of these processes that waited for a task that is lost."""
    waits = [(view, wait) for view in views if (wait := wait_of(view)) is not None]
    return [lost for view, wait in waits if (lost := lost_task(job, view, wait)) is not None]


def is_pool_worker(view: ProcessView) -> bool:
    """Whether a multiprocessing pool has started it."""
    return _worker_name(view) is not None


def _worker_name(view: ProcessView) -> str | None:
    found = _WORKER.search(view.work.name) if view.work is not None else None
    return found[0] if found is not None else None


def _stack_of(view: ProcessView) -> Sequence[PythonFrame]:
    """Of its end; also of an exit with status 0."""
    request = view.exit_request
    return view.python_stack or (request.python_stack if request is not None else None) or ()


def _waiting_file(view: ProcessView) -> str | None:
    frame = next(iter(program_stack(view)), None)
    return frame.file if frame is not None else None


def _joins(view: ProcessView) -> bool:
    """Whether it waits in join() of a pool, which does not return while a result is missing."""
    return any(_POOL.search(frame.file or "") and (frame.function or "").endswith("join") for frame in main_stack(view))


def _ended_before(view: ProcessView, until: int) -> bool:
    ended = view.process.ended_mono_ns
    return ended is not None and ended < until


def _in_a_task(parent: ProcessView, view: ProcessView, workers: Sequence[ProcessView], until: int) -> bool:
    """Whether it ended by itself or was killed: workers of a pool end with 0, or by SIGTERM of their pool."""
    process = view.process
    if process.signal is not None:
        return not is_dismissed(parent, view, workers, until)
    if unread_task(view, parent) is not None:
        return True
    return process.status_kind == "exited" and (bool(process.exit_code) or bool([*_of_task(_stack_of(view))]))


def _asked_for_its_end(view: ProcessView) -> bool:
    return view.process.status_kind == "exited" and bool(view.process.exit_code)


def _is_of_left_pool(view: ProcessView, workers: Sequence[ProcessView], parent: ProcessView, until: int) -> bool:
    """Whether the workers that ran beside it were ended by their parent before: it has left that pool."""
    ended = view.process.ended_mono_ns or 0
    beside = [
        item
        for item in workers
        if item is not view and item.process.snapshot.created_mono_ns < ended
        if (item.process.ended_mono_ns or ended + 1) > ended
    ]
    return bool(beside) and all(
        _ended_before(item, until) and not _in_a_task(parent, item, workers, until) for item in beside
    )


def _of_task(stack: Sequence[PythonFrame]) -> Iterator[PythonFrame]:
    """The program's frames that the loop of a pool's worker had called, innermost first; none outside of a task."""
    loop = [
        place
        for place, frame in enumerate(stack)
        if (frame.function or "").endswith("worker") and _POOL.search(frame.file or "")
    ]
    yield from (frame for frame in stack[: loop[0] if loop else 0] if not is_library_file(frame.file))


def _is_initializer(view: ProcessView, wait: ProcessWait, inside: Sequence[PythonFrame]) -> bool:
    """Whether the function that the worker's loop had called is what the program gives as `initializer=`."""
    tree = syntax_tree(view.process.snapshot, wait.at)
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)] if tree is not None else []
    given = [value for item in calls if (value := keyword_value(item, "initializer")) is not None]
    names = {(variable(item) or "").rpartition(".")[2] for item in given}
    return bool(inside) and (inside[-1].function or "").rpartition(".")[2] in names
