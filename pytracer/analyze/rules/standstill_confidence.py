"""standstill: how sure it is that a wait could not end."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.evidence.waits.executor_threads import unfinished_task
from pytracer.analyze.evidence.waits.network_waits import unflushed
from pytracer.analyze.evidence.waits.stood import Stood
from pytracer.analyze.evidence.waits.stood_loop import stood_loop
from pytracer.analyze.evidence.waits.wait_kinds import WaitKind
from pytracer.analyze.evidence.waits.waits import end_of, gil_of, wait_of
from pytracer.analyze.evidence.waits.working_threads import may_work
from pytracer.analyze.view import Death, ProcessView
from pytracer.report.job import Confidence

_CONFIDENCE: dict[WaitKind, Confidence] = {
    "forked-openmp": "likely",
    "forked-lock": "likely",
    "forked-notice": "likely",
    "forked-tasks": "likely",
    "forked-native": "likely",
    "lock": "likely",
    "lock-file": "possible",
    "flock": "possible",
    "debugger": "likely",
    "input": "possible",
    "open": "possible",
    "child": "possible",
    "unread-queue": "possible",
    "thread-at-exit": "likely",
    "thread": "possible",
    "workers": "possible",
    "executor": "possible",
    "queue": "possible",
    "full-queue": "possible",
    "message": "possible",
    "full-pipe": "possible",
    "full-output": "likely",
    "pool": "possible",
    "notice": "possible",
    "barrier": "possible",
    "nodes": "likely",
    "undone": "possible",
    "event-loop": "possible",
    "network": "possible",
    "accept": "possible",
    "answer": "possible",
    "device": "possible",
    "driver": "possible",
    "gil": "possible",
}


def confidence_of(view: ProcessView, found: Stood, suspects: Sequence[Death]) -> Confidence:
    """More than that of its kind of wait, where it is known why the wait cannot end."""
    if found.device is not None:
        return found.device.confidence
    if found.left is not None:
        return "likely" if found.left.sure else "possible"
    is_sure = found.unread or bool(found.gone) or (found.thread is not None and found.thread.sure)
    is_sure |= any(
        item is not None
        for item in (
            found.receiver,
            found.unsent,
            found.starved,
            found.task,
            found.untaken,
            found.filler,
            found.spawner,
            found.exited,
            found.undone,
        )
    )
    is_sure |= found.both is not None and found.both.unanswered is not None
    is_sure |= found.threads is not None and found.threads.sure
    is_sure |= found.unread_end is not None and bool(found.unread_end.gone)
    is_sure |= found.without is not None and (found.without.first or not (found.working or found.without.working))
    is_sure |= found.unasked is not None and found.unasked.refused is not None
    loop = stood_loop(found.loading) if found.loading is not None else None
    is_sure |= loop is not None and loop.confidence == "likely"
    task = unfinished_task(end_of(view)) if found.wait.kind == "executor" else None
    is_sure |= task is not None and task.blocked
    is_sure |= found.wait.kind == "answer" and not found.working and unflushed(view, found.wait) is not None
    is_sure |= found.wait.kind == "gil" and (held := gil_of(view)) is not None and held.held
    is_sure |= found.wait.kind == "lock-file" and _nobody_has_it(suspects)
    ends_itself = found.threads is not None and not found.threads.sure  # as a Timer does, that waits once
    ends_itself |= found.wait.kind == "thread-at-exit" and may_work(view)
    return "likely" if is_sure else "possible" if ends_itself else _CONFIDENCE[found.wait.kind]


def _nobody_has_it(suspects: Sequence[Death]) -> bool:
    """Whether all that ran Python waited for a lock file: none of them is the one that holds it."""
    waits = [wait_of(death.view) for death in suspects if death.view.python_stack]
    return bool(waits) and all(wait is not None and wait.kind == "lock-file" for wait in waits)
