"""What a process waited for, with the name that its line has for it."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.evidence.exceptions.loaders import waits_for_loader
from pytracer.analyze.evidence.waits.executor_words import executor_wait
from pytracer.analyze.evidence.waits.forked_pool_words import pool_wait
from pytracer.analyze.evidence.waits.messages import asked_words
from pytracer.analyze.evidence.waits.pool_joins import hands_over
from pytracer.analyze.evidence.waits.unread_queues import unread_queue
from pytracer.analyze.evidence.waits.wait_kinds import WAITED, ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import called_by_program, called_of_driver, gil_of, main_stack
from pytracer.analyze.view import ProcessView

_NOTICES = {
    "Event.wait": "waited for an Event",
    "Condition.wait": "waited for a Condition",
    "Future.result": "waited for the result of a Future",
    "result_iterator": "waited for the result of a Future",
}


def wait_words(view: ProcessView, wait: ProcessWait) -> str:
    """`waited for the Event `self.ready``; without a name as in WAITED."""
    if wait.kind == "queue" and waits_for_loader(view):
        return "waited for a batch of its DataLoader"
    if wait.kind == "executor":
        return executor_wait(view)
    if wait.kind == "forked-native":
        return pool_wait(view) or WAITED[wait.kind]
    if wait.kind == "gil" and (held := gil_of(view)) is not None:
        return held.wait_words
    if wait.kind == "driver":
        return f"was in {called_of_driver(view)} of the CUDA driver"
    if wait.kind == "nodes":
        nodes = option_of(view.process.snapshot.argv, "nnodes")
        return WAITED[wait.kind] + (f" (--nnodes={nodes})" if nodes is not None else "")
    if wait.kind == "unread-queue":
        queue = unread_queue(view, wait)
        what = f"into `{queue.name}`" if queue is not None else "into a queue"
        return f"waited {'at its end ' if wait.at is None else ''}until what it had put {what} is read"
    if wait.kind == "full-queue" and hands_over(main_stack(view)):
        return "waited until another result is taken, to hand over its own"
    asked = asked_words(view, wait)
    if asked is not None:
        return f"waited for a message in {asked}"
    thing = waited_object(view, wait)
    if thing is None or wait.kind.startswith("forked"):
        called = called_by_program(view) or ""
        own = (
            next((words for part, words in _NOTICES.items() if part in called), None) if wait.kind == "notice" else None
        )
        return own or WAITED[wait.kind]
    if wait.kind == "undone":
        return f"waited until every item of {thing.words} is done"
    if wait.kind == "full-queue":
        return f"waited for room in the full queue `{thing.name}`"
    return f"waited {'at' if wait.kind == 'barrier' else 'for'} {thing.words}"


def option_of(argv: Sequence[str], name: str) -> str | None:
    """What torchrun was given: `--nnodes=2`, `--nnodes 2`."""
    for place, word in enumerate(argv):
        option, _, value = word.partition("=")
        if option.lstrip("-").replace("_", "-") == name and option.startswith("--"):
            return value or (argv[place + 1] if place + 1 < len(argv) else None)
    return None
