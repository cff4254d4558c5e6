"""Facts of findings: what tests ask of each."""

from __future__ import annotations

from typing import get_args

import msgspec

from pytracer.report.job import FactKind, Finding, Verdict


def check_facts(part: Finding | Verdict) -> None:
    """Every sentence of evidence has a fact of a known kind, with data."""
    for sentence, fact in zip(part.evidence or (), part.facts or (), strict=True):
        assert fact.kind in get_args(FactKind), (sentence, fact)
        assert len(msgspec.to_builtins(fact)) > 1, f"a fact without data: {sentence!r}"
