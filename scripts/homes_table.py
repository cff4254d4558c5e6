"""Runs every cell of tests/homes, prints the table, and writes it with --write FILE. Other words go to pytest.

--times N runs each healthy job N times untraced and N times traced. The last result of each cell is kept in
build/homes: the table of a run with `-k ray` has the other homes' cells, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "homes" / "results.json"
sys.path.insert(0, str(ROOT))

from tests.homes.homes import CELLS, DEATHS, HOMES, Cell, Home  # noqa: E402
from tests.support.machine import machine  # noqa: E402

PAGE = """# Homes of training, and deaths in them

<!-- Written by `make test-homes ARGS='--times 3 --write docs/measurements/homes.md'`. -->

{homes} launchers and frameworks, each with a small job that dies in up to seven ways, without a change in its code:
{ways}. Expected class, culprit, line and words were
written down before a cell was first run (`tests/homes/cells.toml`; `homes.toml` has the commands). A cell is *ok* when
all of them are in the report; *not yet* cells are listed with the reason, *FAIL* ones with what is wrong. A verdict
that is certain and names another class or another rank fails the test in any case.

{verdict} On {machine}.
{commits}

| home | {deaths} | healthy |
|---|{rule}---|
{overview}

*oom* is a death at the limit of a real memory cgroup around the whole job, by the kernel's OOM killer.

*Healthy* counts runs whose standard output and exit status were those of the untraced run. *-* does not apply or was
not run.

## Five minutes of a new user

In a fresh environment, with torch and the wheel of a clone, and the commands of the guides word by word:

- Accelerate ([notebooks.md](../guide/notebooks.md)): `pytracer run -- accelerate launch ...` names rank 1 with its line
  in torchrun's table, in one line at its death and in the report; below `%load_ext pytracer` and `notebook_launcher`
  the table in the cell and `pytracer.inspect` do the same, for a crash, for an exception, and for the next launch.
- Slurm ([slurm.md](../guide/slurm.md)): `srun -N 2 --ntasks-per-node=4 ...` and the batch script name rank 3 of 8, in
  one report for the step, with status 139; a healthy step ends with status 0 and prints one line more. `pytracer runs`
  and `pytracer inspect` list and show them.
- Jupyter ([notebooks.md](../guide/notebooks.md)), in a real JupyterLab server: after a cell that crashes, the first
  cell of the next kernel shows the report with cell and line, once; after a kernel that was killed, the cell, and
  *unknown*.

What stumbled, and is mended: a rank of `notebook_launcher` that raised an exception "stopped without a recorded end",
and torch's table had only the rank that lost its peer; the guides showed *certain* for a null pointer, which a fresh
environment has only with the extra `disasm`. What stays: the second `notebook_launcher` of a kernel may fail to connect
for 30 s, untraced, too (torch 2.13 gives all launches one store).

## What the deaths are

{truths}

## Headlines

{headlines}
"""
MARKS = {"passed": "ok", "failed": "FAIL", "skipped": "left out", "xfailed": "not yet"}


@dataclass
class Seen:
    """The result of one cell."""

    mark: str
    known: dict[str, Any] = field(default_factory=dict)
    commit: str = ""


class Table:
    """A pytest plugin that collects results."""

    def __init__(self) -> None:
        self._cells = {str(cell): cell for cell in CELLS}
        self._homes = {home.name: home for home in HOMES}
        command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
        self._commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        self.cells: dict[Cell, Seen] = {}
        self.healthy: dict[Home, Seen] = {}
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        for name, seen in kept.items():
            self._take(name, Seen(**seen))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        if report.when != "call" and not report.failed:  # of set-up and tear-down only errors
            return
        if "test_homes.py::" not in report.nodeid:  # other tests have a home's name as their parameter, too
            return
        mark = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        seen = Seen(MARKS[mark], dict(report.user_properties), self._commit)
        if seen.mark != "left out":
            self._take(report.nodeid.partition("[")[2].removesuffix("]"), seen)
            self._keep()

    def _take(self, name: str, seen: Seen) -> None:
        if name in self._cells:
            cell = self._cells[name]
            if seen.mark == "FAIL" and cell.xfail and seen.known and not seen.known["wrong"]:
                seen.mark = "not yet"  # its reason was written down after it ran
            self.cells[cell] = seen
        elif name in self._homes:
            self.healthy[self._homes[name]] = seen

    def _keep(self) -> None:
        named = {str(cell): seen for cell, seen in self.cells.items()} | {h.name: s for h, s in self.healthy.items()}
        text = json.dumps({name: dataclasses.asdict(seen) for name, seen in named.items()}, indent=1)
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(text, encoding="utf-8")

    def overview(self) -> list[str]:
        """One line for each home."""
        lines = []
        for home in HOMES:
            marks = [
                next((s.mark for c, s in self.cells.items() if (c.home, c.death) == (home, d)), "-") for d in DEATHS
            ]
            healthy = self.healthy.get(home)
            last = "-" if healthy is None else healthy.known.get("healthy") if healthy.mark == "ok" else healthy.mark
            lines.append(f"| {home.title} | {' | '.join(marks)} | {last} |")
        return lines

    def headlines(self) -> list[str]:
        """A list for each home: death, result, class, headline."""
        lines = []
        for home in HOMES:
            rows = [(c, self.cells[c]) for c in CELLS if c.home == home and c in self.cells and self.cells[c].known]
            if rows:
                lines += ["", f"### {home.title}", "", "| death | | class | headline |", "|---|---|---|---|"]
            for cell, seen in rows:
                headline = _text(seen.known.get("headline", ""))
                if seen.mark == "not yet":
                    headline += f"<br>Not yet: {cell.xfail}."
                elif seen.mark == "FAIL":
                    headline += (
                        f"{'<br>' if headline else ''}Failed: {_text('; '.join(seen.known.get('problems', [])))}."
                    )
                lines.append(f"| {cell.death} | {seen.mark} | {seen.known.get('class', '')} | {headline} |")
        return lines[1:]

    def verdict(self) -> str:
        """The numbers."""
        marks = [seen.mark for seen in self.cells.values()]
        wrong = sum(bool(seen.known.get("wrong")) for seen in self.cells.values())
        words = ", ".join(f"{marks.count(mark)} {mark}" for mark in MARKS.values() if mark in marks)
        return f"{len(marks)} of {len(CELLS)} cells were run: {words}; {wrong} certain and wrong."

    def commits(self) -> str:
        """Which cells are of which commit: a run of some leaves the others as they were."""
        seen = (*self.cells.values(), *self.healthy.values())
        counts = Counter(item.commit or "commits before" for item in seen)
        return f"Last run: {', '.join(f'{count} at {name}' for name, count in counts.items())}."


def _text(words: str) -> str:
    """Pids and paths differ from run to run; messages may be coloured."""
    words = re.sub(r"\x1b\[[\d;]*m", "", words)
    words = re.sub(r"/tmp/[^\s,;:]*/", "", words)
    return (
        re.sub(
            r"\b(Process|Launcher|worker|process|pid) \d+",
            r"\1 N",
            re.sub(r"(actor_id|ip|pid)=[\w.]+|0x7f[0-9a-f]{10}", "...", words),
        )
        .replace("|", "\\|")
        .replace("\n", " ")
    )


def _truths() -> str:
    alike: dict[tuple[str, str], list[str]] = {}
    for cell in CELLS:
        alike.setdefault((cell.death, cell.truth), []).append(cell.home.name)
    return "\n".join(f"- *{death}*: {truth} ({', '.join(homes)})." for (death, truth), homes in alike.items())


def main() -> int:
    """Runs, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="FILE", type=Path)
    parser.add_argument("--times", metavar="N", type=int, default=1)
    options, words = parser.parse_known_args()
    os.environ["PYTRACER_HOMES_TIMES"] = str(options.times)
    table = Table()
    status = int(pytest.main([str(ROOT / "tests/homes"), "-q", "-m", "", "--tb", "short", *words], plugins=[table]))
    print("\n" + "\n".join([*table.headlines(), "", *table.overview(), "", table.verdict()]))
    if options.write:
        page = PAGE.format(
            homes=len(HOMES), ways="below `pytracer run`, or by environment variables alone", verdict=table.verdict(),
            commits=table.commits(),
            machine=machine(), deaths=" | ".join(DEATHS), rule="---|" * len(DEATHS), truths=_truths(),
            overview="\n".join(table.overview()), headlines="\n".join(table.headlines()),
        )  # fmt: skip
        options.write.write_text(page, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
