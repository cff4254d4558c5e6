"""One run as one row of the store. Version 1 of the schema: docs/reference/history.md describes every column.

Processes, findings, frames and nodes are lists inside the row, so that a run is in the store as a whole or not at all,
and a question reads only the columns that it needs. Nothing that tensors held is in a report, and so not here either.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from pytracer._extras import library
from pytracer._library_files import counted_as_program, is_library_file
from pytracer.history.fingerprint import VERSION, fingerprint, python_stack
from pytracer.report import job as r
from pytracer.report.of_verdict import finding_of, program_packages_of, subject_of

SCHEMA_VERSION = 1
ENDED_WELL = ("clean", "recovered")
NO_DAY = "1970-01-01"  # of a run whose start is unknown
_MOST_FRAMES = 64
_MOST_PROCESSES = 256  # culprits first: of 10,000 ranks that one took along, the others say nothing new

Row = dict[str, Any]


def run_row(
    report: r.Report, *, labels: Mapping[str, str] | None = None, url: str | None = None, now: datetime | None = None
) -> Row:
    """The row of a report.

    Args:
        report: of a finished job.
        labels: what the user adds, `commit` and `driver` among them.
        url: where people find the report; `{run}` in it stands for the run's id.
        now: the time of adding; None takes the clock.
    """
    with counted_as_program(program_packages_of(report)):
        return _row(report, labels, url, now)


def _row(report: r.Report, labels: Mapping[str, str] | None, url: str | None, now: datetime | None) -> Row:
    run, verdict = report.run or r.Run(), report.verdict or r.Verdict()
    died, finding, processes = subject_of(report), finding_of(report), report.processes or []
    given = dict(labels or {})
    class_ = verdict.class_ or "unknown"
    started = _time(run.started)
    place = _place(died)
    return {
        "run_key": run_key(report),
        "run_id": run.id,
        "started": started,
        "day": started.date().isoformat() if started is not None else NO_DAY,
        "added": _utc(now or datetime.now(timezone.utc)),
        "died": class_ not in ENDED_WELL,
        "class": class_,
        "confidence": verdict.confidence,
        "finding": finding.id if finding is not None else None,
        "fingerprint": fingerprint(report),
        "fingerprint_version": VERSION,
        "summary": verdict.summary,
        "advice": verdict.advice,
        "host": died.host if died is not None else None,
        "rank": verdict.rank,
        "role": died.role if died is not None else None,
        "step": died.step if died is not None else None,
        "signal": died.signal.name if died is not None and died.signal is not None else None,
        "exception": died.exception.type if died is not None and died.exception is not None else None,
        "operator": died.operator.name if died is not None and died.operator is not None else None,
        "place": place,
        "attempts": len(report.attempts or ()) + 1,
        "launcher": run.launcher,
        "world_size": run.world_size,
        "torch": run.torch,
        "cuda": run.cuda,
        "python": run.python,
        "driver": given.pop("driver", None),
        "commit": given.pop("commit", None),
        "labels": sorted(given.items()),
        "directory": run.directory,
        "url": url.replace("{run}", run.id or "") if url else None,
        "nodes": _nodes(processes, died),
        "processes": [_process(item) for item in _deaths(processes)],
        "findings": [
            {"id": item.id, "confidence": item.confidence, "ranks": item.ranks} for item in report.findings or ()
        ],
        "frames": list(_frames(died))[:_MOST_FRAMES] if died is not None else [],
    }


def run_key(report: r.Report) -> int:
    """64 bits that are equal whenever the same run is added again, from any machine and after any redaction."""
    run, processes = report.run or r.Run(), report.processes or []
    members = sorted((p.rank if p.rank is not None else -1, p.pid or 0, p.started or 0) for p in processes)
    name = run.started or run.id
    digest = hashlib.sha256(repr((name, run.world_size, members)).encode("utf-8", "backslashreplace")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def arrow_schema() -> Any:
    """The columns as pyarrow's schema, without `day`, which is in the path."""
    pa = library("pyarrow", "history")
    text, small, number, time = pa.string(), pa.int32(), pa.int64(), pa.timestamp("us")
    node = pa.struct([("host", text), ("ranks", small), ("culprit", pa.bool_())])
    process = pa.struct(
        [("host", text), ("rank", small), ("pid", number), ("role", text), ("primary", pa.bool_()), ("why", text),
         ("status", text), ("exit_code", small), ("signal", text), ("fault", text)]
    )  # fmt: skip
    finding = pa.struct([("id", text), ("confidence", text), ("ranks", pa.list_(small))])
    frame = pa.struct(
        [("native", pa.bool_()), ("function", text), ("file", text), ("line", small), ("image", text),
         ("build_id", text), ("offset", text), ("own", pa.bool_())]
    )  # fmt: skip
    columns = [
        ("run_key", number), ("run_id", text), ("started", time), ("added", time), ("died", pa.bool_()),
        ("class", text), ("confidence", text), ("finding", text), ("fingerprint", text),
        ("fingerprint_version", small), ("summary", text), ("advice", text), ("host", text), ("rank", small),
        ("role", text), ("step", number), ("signal", text), ("exception", text), ("operator", text), ("place", text),
        ("attempts", small), ("launcher", text), ("world_size", small), ("torch", text), ("cuda", text),
        ("python", text), ("driver", text), ("commit", text), ("labels", pa.map_(text, text)),
        ("directory", text), ("url", text),
        ("nodes", pa.list_(node)), ("processes", pa.list_(process)), ("findings", pa.list_(finding)),
        ("frames", pa.list_(frame)),
    ]  # fmt: skip
    return pa.schema(columns, metadata={"pytracer_history": str(SCHEMA_VERSION)})


def _time(text: str | None) -> datetime | None:
    try:
        return _utc(datetime.fromisoformat(text.replace("Z", "+00:00"))) if text else None
    except (ValueError, OverflowError):  # a report of another program, or damaged
        return None


def _utc(time: datetime) -> datetime:
    """Without a zone: what has one is read by DuckDB only with more libraries, and shown in each reader's own zone."""
    return time.astimezone(timezone.utc).replace(tzinfo=None)


def _place(died: r.ProcessReport | None) -> str | None:
    """`train.py:12 in step`: where the program was."""
    if died is None:
        return None
    stack = python_stack(died)
    frame = next((frame for frame in stack if not is_library_file(frame.file)), stack[0] if stack else None)
    if frame is None:
        return None
    return f"{(frame.file or '?').rsplit('/', 1)[-1]}:{frame.line} in {frame.function}"


def _nodes(processes: Iterable[r.ProcessReport], died: r.ProcessReport | None) -> list[Row]:
    ranks = Counter(item.host for item in processes if item.host and item.role in ("rank", None))
    hosts = ranks or Counter(item.host for item in processes if item.host)  # a job without ranks
    return [
        {"host": host, "ranks": count, "culprit": died is not None and died.host == host}
        for host, count in sorted(hosts.items())
    ]


def _deaths(processes: Iterable[r.ProcessReport]) -> list[r.ProcessReport]:
    ended = [item for item in processes if item.status is not None and _badly(item.status)]
    return sorted(ended, key=lambda item: item.primary is not True)[:_MOST_PROCESSES]


def _badly(status: r.Status) -> bool:
    return status.kind in ("signaled", "exception", "vanished") or bool(status.exit_code)


def _process(item: r.ProcessReport) -> Row:
    status = item.status or r.Status()
    return {
        "host": item.host,
        "rank": item.rank,
        "pid": item.pid,
        "role": item.role,
        "primary": item.primary,
        "why": item.why_kind,
        "status": status.kind,
        "exit_code": status.exit_code,
        "signal": item.signal.name if item.signal is not None else None,
        "fault": item.fault.kind if item.fault is not None else None,
    }


def _frames(died: r.ProcessReport) -> Iterable[Row]:
    """Innermost first: native ones, then Python."""
    for frame in died.native_stack or ():
        empty: Row = {"file": None, "line": None, "own": None}
        yield {"native": True, "function": frame.function, "image": frame.image, "build_id": frame.build_id,
               "offset": frame.offset, **empty}  # fmt: skip
    for line in python_stack(died):
        nowhere: Row = {"image": None, "build_id": None, "offset": None}
        yield {"native": False, "function": line.function, "file": line.file, "line": line.line,
               "own": not is_library_file(line.file), **nowhere}  # fmt: skip
