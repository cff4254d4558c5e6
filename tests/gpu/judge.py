"""Programs whose fault on a GPU is known (four sets, *.toml), and what a report must say of each.

A report is right when each of these is:
  class     one of the acceptable ones
  kernel    the kernel that failed is named, where one did
  launch    the line that launched it, or that did the wrong thing, is named as file:line
  names     the tensor, bucket, graph or rank is named, or the line that made it
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.report.job import Report

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
SETS = ("faults.toml", "second_set.toml", "third_set.toml", "fourth_set.toml")
FACETS = ("class", "kernel", "launch", "names")


@dataclass(frozen=True)
class Fault:
    """One program and the truth about it."""

    id: str
    truth: str
    classes: tuple[str, ...]
    options: tuple[str, ...] = ()
    launch: str = ""
    kernel: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    ranks: int = 1
    limit_s: int = 0

    @property
    def path(self) -> Path:
        """The program."""
        return PROGRAMS / f"{self.id}.py"

    def place(self, text: str) -> str | None:
        """`program.py:LINE` of the one line that contains `text`; None: no line does."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        found = [number for number, line in enumerate(lines, 1) if text in line]
        return f"{self.path.name}:{found[0]}" if len(found) == 1 else None


@dataclass(frozen=True)
class Judged:
    """What a report said of a fault; `wrong`: the facets that it lacks or has wrong."""

    fault: Fault
    class_: str | None
    confidence: str | None
    summary: str
    wrong: tuple[str, ...]


def faults() -> list[Fault]:
    """All sets, in the order in which they were written."""
    toml = importlib.import_module("tomllib")  # Python has it since 3.11
    texts = [(HERE / name).read_text(encoding="utf-8") for name in SETS]
    entries = [entry for text in texts for entry in toml.loads(text)["fault"]]
    return [
        Fault(
            id=entry["id"],
            truth=entry["truth"],
            classes=tuple(entry["class"]),
            options=tuple(entry.get("options", ())),
            launch=entry.get("launch", ""),
            kernel=_words(entry.get("kernel", "")),
            names=_words(entry.get("names", "")),
            ranks=entry.get("ranks", 1),
            limit_s=entry.get("limit_s", 0),
        )
        for entry in entries
    ]


def judge(fault: Fault, run: Path) -> Judged:
    """Reads a recording with the rules as they are now."""
    report = build_report(load_job(run))
    verdict = report.verdict
    said = _said(report)
    wrong = []
    if verdict is None or verdict.class_ not in fault.classes:
        wrong.append("class")
    if fault.kernel and not any(word in said for word in fault.kernel):
        wrong.append("kernel")
    place = fault.place(fault.launch) if fault.launch else None
    if place is not None and not _has_place(said, place):
        wrong.append("launch")
    if fault.names and not any(_named(fault, said, name) for name in fault.names):
        wrong.append("names")
    return Judged(
        fault,
        verdict.class_ if verdict else None,
        verdict.confidence if verdict else None,
        (verdict.summary if verdict else None) or "",
        tuple(wrong),
    )


def _words(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) and value else tuple(value)


def _said(report: Report) -> str:
    """The sentences of the verdict and of the findings."""
    said = [report.verdict.summary, report.verdict.advice] if report.verdict is not None else []
    for found in report.findings or []:
        said += [found.summary, found.advice, *(found.evidence or [])]
    return "\n".join(sentence for sentence in said if sentence)


def _named(fault: Fault, said: str, name: str) -> bool:
    place = fault.place(name)
    return name in said or (place is not None and _has_place(said, place))


def _has_place(said: str, place: str) -> bool:
    return re.search(re.escape(place) + r"\b", said) is not None
