"""Output of a benchmark's numbers: a text table, JSON, or its part of docs/measurements/cost.md."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.measuring import machine_words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "cost.md"
_WIDTH = 120


@dataclass(frozen=True)
class Table:
    """Cells as text, the first column being names."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Aligned, for a terminal."""
        lines = [self.heads, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.heads))]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        )

    def markdown(self) -> str:
        """For docs/measurements/cost.md."""
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json and --write."""
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/measurements/cost.md, too")


def deliver(
    name: str,
    given: argparse.Namespace,
    about: Mapping[str, str],
    document: Mapping[str, Any],
    tables: Sequence[Table],
    notes: Sequence[str] = (),
) -> None:
    """Prints, and writes where requested.

    Args:
        name: of the benchmark: its file without the suffix.
        given: parsed arguments, see `add_arguments`.
        about: the machine and the versions.
        document: the content of the JSON besides name and machine.
        tables: for people.
        notes: sentences below the tables: rounds, what could not be measured.
    """
    if given.json:
        head = {"schema": "pytracer-benchmark", "version": 2, "name": name, "machine": dict(about)}
        print(json.dumps({**head, **document}, indent=2))
    else:
        parts = [machine_words(about), *(table.text() for table in tables), "\n".join(notes)]
        print("\n\n".join(part for part in parts if part))
    if given.write:
        _write(name, about, tables, notes)


def _write(name: str, about: Mapping[str, str], tables: Sequence[Table], notes: Sequence[str]) -> None:
    begin, end = f"<!-- {name}: begin (benchmarks/{name}.py --write) -->", f"<!-- {name}: end -->"
    head, found, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, closed, rest = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{PAGE} has no lines '{begin}' and '{end}': the table has no place there")
    words = textwrap.fill(". ".join([machine_words(about), *notes]) + ".", _WIDTH, break_on_hyphens=False)
    parts = [begin, words, *(table.markdown() for table in tables), end]
    PAGE.write_text(head + "\n\n".join(parts) + rest, encoding="utf-8")
