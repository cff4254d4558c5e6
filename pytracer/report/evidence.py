"""What a finding rests on: a sentence, and what kind of fact it is."""

from __future__ import annotations

from typing import Literal

EvidenceKind = Literal["signal", "python-line", "sender-command", "call", "other"]


class Evidence(str):
    """One fact that a finding rests on, as a sentence. JSON has the sentence only.

    `kind` says what it is about, so that a view that shows the fact elsewhere can leave it out: the "signal" and the
    access, the "python-line", the "sender-command", or, with `ranks` and `call` as in `MismatchVariant`, a "call".
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
