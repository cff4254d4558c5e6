"""Runs the whole crash matrix and prints its table, or writes it (--write FILE). Other words go to pytest."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.crash.matrix.cells import KINDS, PLACES, STATES, WAYS, Cell, all_cells  # noqa: E402

PAGE = """# Crash matrix

<!-- Written by `make test-crash ARGS='--write docs/measurements/crash-matrix.md'`. -->

{total} processes that really die: kinds of death x threads x ways to record, then states in which the process dies, on
the main thread. `tests/crash/matrix/cells.py` lists what each cell must leave. A cell is *ok* when

- the report is complete: every step of the handler was done, the native stack reaches the thread's first function
  (unless it is the stack that is smashed), and all other threads have theirs;
- the class of the verdict, the thread and the fault address are right, and so are glibc's message, the sender, the size
  of the file and the C++ exception if the kind has them;
- the exit status is that of the same process without pytracer, and nothing of the process is left;
- dying took no longer than the handler's own limits allow;
- if a core dump is allowed, gdb reads the same siginfo and program counter from it.

*-* was not run. *none* means that no report can be made, which the cell asserts: the status is exact, and the
recording contains nothing false. Each pair is {ways}. `make test` runs a part of the matrix that covers every kind,
thread, state and way, `make test-crash` all of it.

{verdict} On {machine}.

## Kinds of death x threads

{kinds}

`main` of a DataLoader worker is the worker's main thread; its parent then ends with a RuntimeError.

## States

{states}

## Cells without a report

{reasons}
"""


class Table:
    """A pytest plugin that collects the result of each cell."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._by_id = {str(cell): cell for cell in cells}
        self.marks: dict[Cell, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        cell = self._by_id.get(report.nodeid.partition("[")[2].rstrip("]"))
        if cell is None or self.marks.get(cell) == "FAIL":
            return
        if report.failed:
            self.marks[cell] = "FAIL"
        elif report.skipped:
            self.marks[cell] = "skip"
        elif report.when == "call":
            self.marks[cell] = "none" if cell.why_no_report else "ok"

    def pair(self, kind: str, place: str, state: str = "") -> str:
        """The cell's result in each way; "-" where it was not run."""
        return " / ".join(self.marks.get(Cell(kind, place, way, state), "-") for way in WAYS)

    def kinds(self) -> str:
        """Kinds x threads."""
        rows = [[kind, *(self.pair(kind, place) for place in PLACES)] for kind in KINDS]
        return _markdown(["", *PLACES], rows)

    def states(self) -> str:
        """States, and the kinds that die in each."""
        rows = [
            [state, ", ".join(f"{kind} {self.pair(kind, 'main', state)}" for kind in kinds)]
            for state, kinds in STATES.items()
        ]
        return _markdown(["state", f"kind {' / '.join(WAYS)}"], rows)

    def verdict(self) -> str:
        """The numbers."""
        counts = {mark: list(self.marks.values()).count(mark) for mark in ("ok", "none", "FAIL", "skip")}
        words = [f"{counts['ok']} ok", f"{counts['none']} without a report, as documented", f"{counts['FAIL']} failed"]
        if counts["skip"]:
            words.append(f"{counts['skip']} skipped")
        return f"{len(self.marks)} cells: {', '.join(words)}."

    def reasons(self) -> str:
        """Why some cells leave no report."""
        reasons: dict[str, list[str]] = {}
        for cell in self._by_id.values():
            if cell.why_no_report:
                where = cell.state or cell.place
                reasons.setdefault(cell.why_no_report, []).append(f"{cell.kind} ({where})")
        return "\n".join(f"- {', '.join(cells)}: {why}." for why, cells in reasons.items())


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head) - 1)]
    lines = [head, ["-" * width for width in [*widths, 3]], *rows]
    return "\n".join(
        "| " + " | ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) + " |"
        for line in lines
    )


def _machine() -> str:
    libc, version = platform.libc_ver()
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, {libc} {version}, "
        f"CPython {platform.python_version()}, torch {importlib.metadata.version('torch')}"
    )


def main() -> int:
    """Runs, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="FILE", type=Path)
    options, words = parser.parse_known_args()
    cells = all_cells()
    table = Table(cells)
    usual = [str(ROOT / "tests/crash/matrix"), "-q", "-m", "", "--dist", "worksteal", "--tb", "short"]
    status = int(pytest.main([*usual, *words], plugins=[table]))
    print(f"\n{table.kinds()}\n\n{table.states()}\n\n{table.verdict()}")
    if options.write:
        page = PAGE.format(
            total=len(cells), ways=" / ".join(WAYS), machine=_machine(), verdict=table.verdict(), kinds=table.kinds(),
            states=table.states(), reasons=table.reasons(),
        )  # fmt: skip
        options.write.write_text(page, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
