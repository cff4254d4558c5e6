"""The table of a collective on which ranks disagree: the call of each rank, and its line."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from pytracer._text import span_words
from pytracer.render.frames import place_words
from pytracer.report import job as r

ROWS = 8
Call = tuple[tuple[int, ...], str]  # ranks, and what they called
GROUPS = 2


def mismatch_tables(report: r.Report) -> Iterator[Table]:
    """One per process group; ranks that made the same call share a row."""
    for found in _mismatches(report)[:GROUPS]:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold", style="dim")
        variants = found.variants or []
        for item in variants[:ROWS]:
            odd = set(item.ranks or []) <= set(found.odd_ranks or []) and bool(item.ranks)
            place = place_words(item.python) if item.python is not None else ""
            table.add_row(span_words(item.ranks or []), item.call or "", place, style="bold" if odd else "")
        if len(variants) > ROWS:
            left = sum(len(item.ranks or []) for item in variants[ROWS:])
            table.add_row("...", f"{left} more ranks, {len(variants) - ROWS} more kinds of call", "")
        yield table


def calls_in_tables(report: r.Report) -> frozenset[Call]:
    """The ranks and the call of each row of the tables."""
    shown = (item for found in _mismatches(report)[:GROUPS] for item in (found.variants or [])[:ROWS])
    return frozenset((tuple(item.ranks or ()), item.call or "") for item in shown)


def _mismatches(report: r.Report) -> list[r.Mismatch]:
    groups = report.collectives.groups if report.collectives else None
    return [group.mismatch for group in groups or [] if group.mismatch is not None]
