"""Sentences that know what they are about: what a finding rests on, and its headline. JSON has the sentence only."""

from __future__ import annotations

from typing import Literal

EvidenceKind = Literal["signal", "python-line", "sender-command", "printed", "call", "other"]


class Evidence(str):
    """One fact that a finding rests on, as a sentence.

    `kind` says what it is about, so that a view that shows the fact elsewhere can leave it out: the "signal" and the
    access, the "python-line", the "sender-command", what the C library "printed", or, with `ranks` and `call` as in
    `MismatchVariant`, a "call".
    """

    __slots__ = ("call", "kind", "ranks")

    kind: EvidenceKind
    ranks: tuple[int, ...]
    call: str | None

    def __new__(
        cls, text: str, kind: EvidenceKind = "other", *, ranks: tuple[int, ...] = (), call: str | None = None
    ) -> Evidence:
        """A sentence of some kind."""
        self = super().__new__(cls, text)
        self.kind, self.ranks, self.call = kind, ranks, call
        return self

    def with_text(self, text: str) -> Evidence:
        """The same fact in other words."""
        return Evidence(text, self.kind, ranks=self.ranks, call=self.call)


class Quotation(str):
    """A headline that has type and message of the exception that ended a process: they need not be shown again."""

    __slots__ = ()

    def with_text(self, text: str) -> Quotation:
        """The same in other words."""
        return Quotation(text)
