"""What to look at of a signal that a recorded process sent: its line, or the line that starts what sent it."""

from __future__ import annotations

from pytracer.analyze.evidence.ends.text_watches import started_text
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import is_own_text
from pytracer.analyze.view import ProcessView

FIND_OUT = "Find out why that process sent the signal."


def sender_advice(view: ProcessView) -> str:
    """By the first sender that noted it."""
    sent = view.senders[0] if view.senders else None
    if sent is None or sent.frame is None:
        return FIND_OUT
    if is_own_text(sent.sender.snapshot, sent.frame):
        started = started_text(view, sent.sender.snapshot, None)
        return f"Look at {started.place}, and at the program that it starts, which sends it." if started else FIND_OUT
    return f"Look at {place_words(sent.frame)}, which sends it."
