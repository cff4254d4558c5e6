"""What a thread of an executor was in that is waited for, and how it may end."""

from __future__ import annotations

import ast

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.executor_threads import UnfinishedTask, unfinished_task
from pytracer.analyze.evidence.waits.wait_kinds import WAITED
from pytracer.analyze.evidence.waits.waits import end_of, main_stack
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_RUNNERS = "/asyncio/runners.py"
_LONGEST = 60
_CANCEL = "cancel() ends a task, not the thread that already runs its function."


def executor_wait(view: ProcessView) -> str:
    """`had come to the end of asyncio.run(), and waited for a thread of its executor, which was`; its line follows."""
    if _is_of_loop(view):
        return "had come to the end of asyncio.run(), and waited for a thread of its executor, which was"
    return WAITED["executor"]


def _is_of_loop(view: ProcessView) -> bool:
    return any((frame.file or "").endswith(_RUNNERS) for frame in main_stack(view))


def executor_words(view: ProcessView) -> str:
    """`, in Queue.get; line 69 (`worker.cancel()`) ends a task, not its thread`."""
    task = unfinished_task(end_of(view))
    if task is None:
        return ""
    within = f", in {task.within}" if task.within is not None else ""
    calls = {
        item.lineno: item
        for tree in program_files(view.process.snapshot, [task.at]).values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == "cancel" and not item.args
    }
    if len(calls) != 1:
        return within
    line, call = calls.popitem()
    return f"{within}; line {line} (`{shortened(ast.unparse(call), _LONGEST)}`) ends a task, not its thread"


def executor_advice(view: ProcessView) -> str:
    """By what the thread is in: a queue gets a last item, another wait a limit, work an end."""
    task = unfinished_task(end_of(view))
    if task is None:
        return _CANCEL
    function = f"`{(task.at.function or '').rpartition('.')[2]}()`" if task.at.function else "its function"
    let = f"Let {function} return when the program ends"
    if not task.blocked:
        return (
            f"{let}: it was at work at line {task.at.line}; ask an Event there by which the program stops it. "
            f"{_CANCEL} If it only takes long, raise the time limit."
        )
    queue = _queue(view, task)
    if queue is not None:
        return (
            f"{let}: put a last item that says so (`{queue}.put(None)`) before the end, and return on it behind line "
            f"{task.at.line}, or pass get() a timeout and ask an Event in between. {_CANCEL}"
            f"{' An asyncio.Queue needs no thread.' if _is_of_loop(view) else ''}"
        )
    return (
        f"{let}: pass a timeout to what it waits in at line {task.at.line} ({task.within}), and ask an Event by which "
        f"the program stops it, or end that wait from outside. {_CANCEL}"
    )


def _queue(view: ProcessView, task: UnfinishedTask) -> str | None:
    """`self.inbox`, whose get() the line calls."""
    tree = syntax_tree(view.process.snapshot, task.at)
    if (task.within or "").rpartition(".")[2] != "get" or tree is None or task.at.line is None:
        return None
    owners = [
        ast.unparse(item.func.value)
        for item in calls_on(tree, task.at.line)
        if isinstance(item.func, ast.Attribute) and item.func.attr == "get"
    ]
    return owners[0] if len(owners) == 1 else None
