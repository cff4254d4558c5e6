"""A textfile for node_exporter (--collector.textfile.directory): deaths by class, open collectives, dropped records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from pytracer.notify.message import Message
from pytracer.report import job as r

_OPEN = ("scheduled", "started", "queued")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


def textfile(report: r.Report, message: Message) -> str:
    """Gauges about one run; the next run's file replaces this one's."""
    return "\n".join(_lines(report, message)) + "\n"


def _lines(report: r.Report, message: Message) -> Iterator[str]:
    run = {"run": (report.run.id if report.run else None) or ""}
    yield from _metric(
        "pytracer_verdict_info", "The verdict of the last run.",
        [({**run, "class": message.class_, "confidence": message.confidence}, 1)],
    )  # fmt: skip
    died = [p for p in report.processes or () if p.status and p.status.kind in ("signaled", "exception", "vanished")]
    classes = Counter(_class(process, report.verdict, message) for process in died)
    yield from _metric(
        "pytracer_deaths", "Processes that died, by the class of the verdict; consequences have a class of their own.",
        [({**run, "class": name}, count) for name, count in sorted(classes.items())] or [({**run, "class": "none"}, 0)],
    )  # fmt: skip
    opened = Counter(
        call.group or "" for p in report.processes or () for call in p.recent_collectives or () if call.state in _OPEN
    )
    yield from _metric(
        "pytracer_open_collectives", "Collectives that had not completed at the end, by process group.",
        [({**run, "group": group}, count) for group, count in sorted(opened.items())] or [({**run, "group": ""}, 0)],
    )  # fmt: skip
    counts = report.counts or {}
    yield from _metric("pytracer_records", "Records of all recordings.", [(run, counts.get("records", 0))])
    yield from _metric("pytracer_dropped_records", "Records that were lost.", [(run, counts.get("dropped", 0))])


def _class(process: r.ProcessReport, verdict: r.Verdict | None, message: Message) -> str:
    """That of the verdict for the process that it is about, and for those that died alike."""
    if verdict is not None and process.pid == verdict.pid and process.rank == verdict.rank:
        return message.class_
    return {True: message.class_, False: "consequence"}.get(bool(process.primary), "unknown")


def _metric(name: str, about: str, samples: list[tuple[Mapping[str, str], int]]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        words = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{name}{{{words}}} {value}"


def _escaped(text: str) -> str:
    return re.sub(r'[\\"\n]', lambda match: _ESCAPES[match[0]], text)
