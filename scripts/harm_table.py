"""Runs the whole harm table and prints it; with --write FILE as a page of docs/. Other arguments are passed to pytest.

--times N runs each cell N times: 20 of all, 1,000 of the waits (`-k test_waits --times 1000`).
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.harm.rows import CELLS, POWERS, WAYS, Cell, Row  # noqa: E402
from tests.support.machine import machine  # noqa: E402

PAGE = """# A traced program behaves as an untraced one

<!-- Written by `make test-harm ARGS='--times 20 --write docs/measurements/harm.md'`. -->

{rows} programs, each run untraced, and traced in {ways} ways, with up to {powers} sets of privileges. Equal means:
the same status, the same standard output, no more on disk than the row allows (16 MB by default,
`tests/harm/rows.py`), and, if the claim is a cost, at most 1.1 times the CPU time and 10 ms; for
rows of short-lived processes only, 0.3 ms more for each fork, 0.9 ms for each exec.
The programs are in `tests/harm/programs/`, each with a comment on the real programs that do the same.

- ways: *environment*, `LD_PRELOAD` without a launcher; *launcher*, below `pytracer run`; *enable*,
  `pytracer.enable()` in a Python program;
- powers: *plain*, as the tests run; *no-ptrace*, without CAP_SYS_PTRACE; *unprivileged*, as another user;
  *filtered*, below a seccomp filter that allows everything, as in containers; *first-process*, as PID 1 of a PID
  namespace.

A cell is "20 of 20" when 20 of 20 runs were equal; programs with equal cells throughout share a line. *-* was not run.

{date}, {machine}. {verdict} `{command}`

{repeated}## All programs

{table}
"""
# A section written by hand, about runs with `--times 1000 -k ...`; it is kept when the page is regenerated.
REPEATED = re.compile(r"^## Repeated more often\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


@dataclass
class Seen:
    """The results of one cell's runs."""

    equal: int = 0
    times: int = 0
    problems: list[str] = field(default_factory=list)
    failed: str = ""


class Table:
    """A pytest plugin that collects the result of each cell."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._by_id = {str(cell): cell for cell in cells}
        self.seen: dict[Cell, Seen] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        cell = self._by_id.get(report.nodeid.partition("[")[2].removesuffix("]"))
        if cell is None or report.when != "call" or report.skipped:
            return
        known: dict[str, Any] = dict(report.user_properties)
        failed = "" if report.passed or known else "not run"
        self.seen[cell] = Seen(known.get("equal", 0), known.get("times", 0), known.get("problems", []), failed)

    def way(self, rows: Iterable[Row], way: str) -> str:
        """The results of the rows in one way: the sum over all powers."""
        seen = [found for cell, found in self.seen.items() if cell.way == way and cell.row in rows]
        return f"{sum(s.equal for s in seen)} of {sum(s.times for s in seen)}" if seen else "-"

    def lines(self) -> list[str]:
        """One line for each program that differed; one for all others of the same source file and status."""
        alike: dict[tuple[str, object], list[Row]] = {}
        differ: list[tuple[Row, list[str]]] = []
        for row in dict.fromkeys(cell.row for cell in CELLS):
            found = {cell: seen for cell, seen in self.seen.items() if cell.row == row}
            words = [
                f"{cell.way}, {cell.power}: {'; '.join(s.problems) or s.failed}"
                for cell, s in found.items()
                if s.problems or s.failed
            ]
            if words:
                differ.append((row, words))
            elif found:
                alike.setdefault((row.group, row.status), []).append(row)
        result = [f"| program | untraced | {' | '.join(WAYS)} | differences |", f"|---|---|{'---|' * len(WAYS)}---|"]
        result += [self._line(rows, rows[0].status, []) for rows in alike.values()]
        return result + [self._line([row], row.status, words) for row, words in differ]

    def _line(self, rows: list[Row], status: int, problems: list[str]) -> str:
        group = rows[0].group
        arguments = [str(row).partition(" ")[2].removeprefix(f"{group} ").removeprefix("-c ").strip() for row in rows]
        name = f"`{group}`" + (
            " " + ", ".join(_code(argument) for argument in arguments if argument) if any(arguments) else ""
        )
        ways = " | ".join(self.way(rows, way) for way in WAYS)
        return f"| {name} | {status} | {ways} | {_cell('<br>'.join(problems))} |"

    def verdict(self) -> str:
        """The numbers."""
        runs = sum(seen.times for seen in self.seen.values())
        unequal = sum(bool(seen.problems or seen.failed) for seen in self.seen.values())
        return f"{len(self.seen)} cells, {runs} runs: {unequal} cells differ."


def _repeated(page: Path) -> str:
    kept = REPEATED.search(page.read_text(encoding="utf-8")) if page.exists() else None
    return kept[0] if kept else ""


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:600]


def main() -> int:
    """Runs, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="FILE", type=Path)
    parser.add_argument("--times", metavar="N", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="only the part that `make test` runs")
    options, words = parser.parse_known_args()
    os.environ["PYTRACER_HARM_TIMES"] = str(options.times)
    table = Table(CELLS)
    usual = [
        str(ROOT / "tests/harm"),
        "-q",
        "--dist",
        "worksteal",
        "--tb",
        "short",
        "--timeout",
        str(max(300, 20 * options.times)),
    ]
    if not options.quick:
        usual += ["-m", ""]
    status = int(pytest.main([*usual, *words], plugins=[table]))
    text = "\n".join(table.lines())
    print(f"\n{text}\n\n{table.verdict()}")
    if options.write:
        page = PAGE.format(
            rows=len({cell.row for cell in table.seen}), ways=len(WAYS), powers=len(POWERS),
            date=datetime.date.today().isoformat(), machine=machine(),
            command=f"harm_table.py {shlex.join(sys.argv[1:])}", verdict=table.verdict(), table=text,
            repeated=_repeated(options.write),
        )  # fmt: skip
        options.write.write_text(page, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
