"""Workers that ended themselves while their parent waited for what they should have put into a queue or a pipe.

SystemExit ends a process of multiprocessing without a word, by whatever status: only Exception is printed, or caught by
the worker's own `except Exception` (CPython, multiprocessing/process.py, `_bootstrap`). Queue.get() of the parent
notices nothing: no end of a child wakes it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file, of_multiprocessing
from pytracer._text import message_words, shortened
from pytracer.analyze.evidence.ends.exit_calls import PassedHandler, exit_call, passed_handler, printed_before
from pytracer.analyze.evidence.ends.exit_condition import exit_condition, frames_below_condition
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.evidence.waits.lost_tasks import is_pool_worker
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of, is_between_processes, wait_of
from pytracer.analyze.kin import children_of, is_helper
from pytracer.analyze.naming import line_in, name_words, names_words, place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_PROCESS = of_multiprocessing("process")
_BEFORE_NS = 500_000_000  # what ends a whole job meets its processes in any order
_LONGEST = 60
_TAKES = ("get", "recv", "recv_bytes", "join")


class ExitedWorkers(msgspec.Struct, frozen=True):
    """`at`: the line by which the first of `workers` ended, and `call` what it called there. `rest`: that wait, too."""

    parent: ProcessView
    wait: ProcessWait
    workers: tuple[ProcessView, ...]
    rest: int
    at: PythonFrame
    call: str | None
    passed: PassedHandler | None
    asked: str | None
    """The call by which the parent waits."""

    @property
    def words(self) -> str:
        """The subject is the workers: `Process-2 (pid 9) ended itself ...`, with who waits."""
        names = names_words(self.workers)
        itself = "themselves" if len(self.workers) > 1 else "itself"
        codes = sorted({item.process.exit_code or 0 for item in self.workers})
        request = self.workers[0].exit_request
        text = message_words(request.message.splitlines()[0]) if request is not None and request.message else None
        by = f" by `{self.call}`" if self.call is not None else ""
        by += f" ({text})" if text else ""
        passes = f", which {self._handler} does not catch" if self.passed is not None else ""
        return (
            f"{names} ended {itself} with exit status {' and '.join(map(str, codes))}{by} at {place_words(self.at)}"
            f"{passes}; {name_words([self.parent])} still waited{self._asked}"
        )

    @property
    def why(self) -> str:
        """Why nothing comes any more."""
        what = {"message": "send", "undone": "do the rest"}.get(self.wait.kind, "fill the queue")
        return f"no other child was left to {what}" if not self.rest else "its other children only waited, too"

    @property
    def advice(self) -> str:
        """What the worker should do in place of that, and how the parent notices."""
        snapshot, stack = self.workers[0].process.snapshot, _of_target(self.workers[0])
        here = line_in(self.at.file, self.at.line, self._file)
        call = f"`{self.call}`" if self.call is not None else "what ends the process"
        does = "send" if self.wait.kind == "message" else "put into a queue"
        catches = f"that is an Exception, which the worker can catch and {does}"
        catches = f"{self._handler} catches that" if self.passed is not None else catches
        condition = exit_condition(snapshot, stack)
        why = f" {condition}: find the input for which it does, and repair or skip that." if condition else ""
        frames = frames_below_condition(snapshot, stack) or [self.at]
        printed = next((words for item in frames if (words := printed_before(snapshot, item)) is not None), None)
        why += f" {printed}" if printed is not None else ""
        return (
            f"At {here} raise an exception, such as ValueError, in place of {call}: {catches}, where an exit leaves no "
            f"result.{why} {self._notices}"
        )

    @property
    def evidence(self) -> Evidence:
        """The end of the first worker."""
        view = self.workers[0]
        return Evidence(
            "rank-state",
            f"{name_words([view])} had ended itself at {place_words(self.at)}",
            pid=view.process.snapshot.pid,
            rank=view.process.rank,
            state="ended",
            python=self.at,
        )

    @property
    def _file(self) -> str | None:
        return self.wait.at.file if self.wait.at is not None else None

    @property
    def _handler(self) -> str:
        passed = self.passed
        return f"`{passed.text}` ({line_in(passed.file, passed.line, self.at.file)})" if passed is not None else ""

    @property
    def _asked(self) -> str:
        call = f" in `{self.asked}`" if self.asked is not None else " for a queue"
        return f"{call}{f' at {place_words(self.wait.at)}' if self.wait.at is not None else ''}"

    @property
    def _notices(self) -> str:
        if self.wait.kind == "undone":
            return (
                "Call task_done() in a `finally`. join() of a JoinableQueue has no timeout: count the results by "
                "get(timeout=...), with a look at the workers' exitcode, in place of it."
            )
        if self.wait.kind == "message":
            return "poll(timeout) before recv(), with a look at the child's exitcode, does not wait for ever."
        return "get(timeout=...) in a loop, with a look at the workers' exitcode, does not wait for ever."


def exited_workers(job: JobView, view: ProcessView, wait: ProcessWait) -> ExitedWorkers | None:
    """Of a process that waits for a queue, or a message; None while another child was at work, which may answer."""
    if not (wait.kind == "message" or (wait.kind in ("queue", "undone") and is_between_processes(view))):
        return None
    end = end_of(view)
    until = (end.mono_ns if end is not None else view.process.ended_mono_ns or 0) - _BEFORE_NS
    children = [item for item in children_of(job, view) if item.process.snapshot.worker is None]
    gone = [item for item in children if _ended_itself(item, until)]
    running = [item for item in children if _ran_until(item, until) and not is_helper(item)]
    if not gone or any(is_pool_worker(item) for item in children) or not all(asks_another(item) for item in running):
        return None
    gone.sort(key=lambda item: item.process.ended_mono_ns or 0)
    stack = _of_target(gone[0])
    at = stack[0]
    alike = tuple(item for item in gone if _of_target(item)[0] == at)
    snapshot = gone[0].process.snapshot
    return ExitedWorkers(
        view,
        wait,
        alike,
        len(running),
        at,
        exit_call(snapshot, at),
        passed_handler(snapshot, stack),
        _asked(view, wait),
    )


def all_exited_workers(job: JobView, views: Sequence[ProcessView]) -> list[ExitedWorkers]:
    """Of those of these processes that waited for such workers."""
    waits = [(view, wait) for view in views if (wait := wait_of(view)) is not None]
    return [found for view, wait in waits if (found := exited_workers(job, view, wait)) is not None]


def _ended_itself(view: ProcessView, until: int) -> bool:
    """Whether a line of its target asked for that, in time, by a status of failure.

    With 0 it has perhaps done its part, at the mark that ends its loop; an exception is told by its traceback.
    """
    ended, process = view.process.ended_mono_ns, view.process
    if ended is None or ended >= until or process.status_kind != "exited" or not process.exit_code or view.raised:
        return False
    return bool(_of_target(view))


def _ran_until(view: ProcessView, until: int) -> bool:
    ended = view.process.ended_mono_ns
    return ended is None or ended >= until


def _of_target(view: ProcessView) -> list[PythonFrame]:
    """The program's frames of its end that multiprocessing's `_bootstrap` had called, innermost first."""
    request = view.exit_request
    stack = view.python_stack or (request.python_stack if request is not None else None) or ()
    begin = [
        place
        for place, frame in enumerate(stack)
        if (frame.function or "").endswith("_bootstrap") and (frame.file or "").endswith(_PROCESS)
    ]
    return [frame for frame in stack[: begin[0] if begin else 0] if not is_library_file(frame.file)]


def asks_another(view: ProcessView) -> bool:
    """Whether it waits for another process itself: for its next task, or a message."""
    wait = wait_of(view)
    return wait is not None and (wait.kind == "message" or (wait.kind == "queue" and is_between_processes(view)))


def _asked(view: ProcessView, wait: ProcessWait) -> str | None:
    """`results.get()`, where that is the only such call of its line."""
    tree = syntax_tree(view.process.snapshot, wait.at)
    line = wait.at.line if wait.at is not None else None
    statement = statement_at(tree, line) if tree is not None and line is not None else None
    calls = [item for item in nodes_of(statement) if isinstance(item, ast.Call)] if statement is not None else []
    found = [item for item in calls if called_name(item) in _TAKES and item.lineno <= (line or 0)]
    return shortened(ast.unparse(found[0]), _LONGEST) if len(found) == 1 else None
