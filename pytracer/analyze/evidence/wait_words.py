"""What a process waited for, with the name that its line has for it."""

from __future__ import annotations

from pytracer.analyze.evidence.loaders import waits_for_loader
from pytracer.analyze.evidence.waited_object import waited_object
from pytracer.analyze.evidence.waits import WAITED, ProcessWait
from pytracer.analyze.view import ProcessView


def wait_words(view: ProcessView, wait: ProcessWait) -> str:
    """`waited for the Event `self.ready``; without a name as in WAITED."""
    if wait.kind == "queue" and waits_for_loader(view):
        return "waited for a batch of its DataLoader"
    thing = waited_object(view, wait)
    if thing is None or wait.kind.startswith("forked"):
        return WAITED[wait.kind]
    if wait.kind == "undone":
        return f"waited until every item of {thing.words} is done"
    return f"waited {'at' if wait.kind == 'barrier' else 'for'} {thing.words}"
