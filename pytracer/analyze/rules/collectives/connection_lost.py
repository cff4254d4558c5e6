"""connection-lost: ranks died of an exception that shows only that a peer was gone or silent.

What: "Connection closed by peer", "Connection reset by peer", "Timed out waiting": written by gloo, NCCL and the store
on a rank that noticed that another one was gone. It only accompanies what explains it.

Why it happens: closed or reset means that the other process ended; a time-out, that it lives and did not answer.

What to do: look at the first death, or at the rank that is missing; not at the ranks with these exceptions.

How it can be wrong: networks fail, too. Without any other finding, python-exception shows such an exception as possible
cause. The address in the message is that of a connection, and is not mapped to a rank.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView

_CLOSED = Pattern(r"closed|reset|refused|broken pipe", re.IGNORECASE)


class _Lost(msgspec.Struct, frozen=True):
    """The ranks that noticed that a peer's connection was closed, and those that it did not answer."""

    closed: tuple[int, ...]
    silent: tuple[int, ...]


class ConnectionLost:
    """Fires for ranks whose exception is about a peer, when another finding explains them."""

    id = "connection-lost"
    needs = ("EXCEPTION",)

    def check(self, job: JobView) -> tuple[Judgement[_Lost], ...] | NoFinding:
        """One judgement for all of them."""
        lost = [death for death in job.deaths if death.lost_peer and death.view.process.role == "rank"]
        followers = tuple(death.view for death in lost if death.primary is False)
        if not followers:
            return not_found(
                "the ranks whose exceptions speak of a lost peer are not known to be consequences"
                if lost
                else "no rank's exception speaks of a lost or silent peer"
            )
        found = _Lost(_ranks(followers, True), _ranks(followers, False))
        return (Judgement("python-exception", "certain", followers, found, accompanies=True),)

    def describe(self, job: JobView, judgement: Judgement[_Lost]) -> Description:
        """See Rule."""
        closed, silent = judgement.found.closed, judgement.found.silent
        parts = [f"{span_words(closed)} noticed that a peer was gone (connection closed or reset)"] if closed else []
        parts += [f"{span_words(silent)} noticed that a peer was silent (timed out)"] if silent else []
        return Description(
            f"{capital('; '.join(parts))}: consequences.",
            [],
            "Look at the verdict: these ranks only noticed.",
        )


def _ranks(views: Sequence[ProcessView], closed: bool) -> tuple[int, ...]:
    found = []
    for view in views:
        message = (view.exception.message if view.exception else None) or ""
        if view.process.rank is not None and bool(_CLOSED.search(message)) is closed:
            found.append(view.process.rank)
    return tuple(found)
