"""What a DataLoader worker did in a batch that it never finished: the loop that it was in, and why that went on."""

from __future__ import annotations

from pytracer.analyze.evidence.exceptions.loaders import loading_words
from pytracer.analyze.evidence.waits.stood_loop import stood_loop
from pytracer.analyze.evidence.waits.unseen_loading import unseen_loading
from pytracer.analyze.naming import name_words, place_words, samples_words
from pytracer.analyze.view import ProcessView


def stuck_loading_words(view: ProcessView, worker: ProcessView, until_ns: int | None) -> str:
    """`DataLoader worker 0 (pid 8) had been loading samples 0-7 for 9.1 s at data.py:5 in Video.__getitem__`.

    `view`: the process that waits for it.
    """
    loading = loading_words(worker, until_ns)
    stood = stood_loop(worker)
    if stood is not None:
        ever = "it never ends: " if stood.never_ends else ""
        why = f"; {ever}{stood.reason.words}" if stood.reason is not None else ""
        return f"{loading} {stood.loop_words}{stood.pause.usual_words if stood.pause is not None else ''}{why}"
    unseen = unseen_loading(view, worker)
    at = f" at {place_words(worker.python_frame)}" if worker.python_frame is not None else ""
    return f"{loading}{unseen.words if unseen is not None else at}"


def stuck_loading_advice(view: ProcessView, worker: ProcessView) -> str | None:
    """What to change, or to look at; None where no loop is known."""
    stood = stood_loop(worker)
    if stood is not None and stood.reason is not None:
        return stood.reason.advice
    unseen = unseen_loading(view, worker)
    return unseen.advice if unseen is not None else None


def late_loading_advice(view: ProcessView, worker: ProcessView) -> str:
    """The same, for ranks that wait for that rank; where no loop is known, to look at its line."""
    known = stuck_loading_advice(view, worker)
    if known is not None:
        return known
    frame, batch = worker.python_frame, worker.process.snapshot.worker
    samples = samples_words(batch) if batch is not None else "the batch"
    return (
        f"Find out what takes {name_words([worker])} so long with {samples}"
        f"{f', at {place_words(frame)}' if frame is not None else ''}. The DataLoader's `timeout` ends such a wait "
        "with an error on that rank."
    )
