"""The table of processes: how each rank ended, in which collective, and whether it was the cause."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.table import Table
from rich.text import Text

from pytracer._text import list_words, span_words, time_words
from pytracer.report import job as r

ROWS = 8
_OF_MULTIPROCESSING = "multiprocessing process "  # the name behind it says so: ForkPoolWorker-1
WIDE = 90
_REDUCES = ("all_reduce", "allreduce", "reduce_scatter")
# What neither the table nor the rows about another process show.
_DETAILS = dict.fromkeys((
    "command", "environment", "memory", "native_stack", "neighborhood", "notes", "python_stack", "registers", "threads",
    "timeline", "usage",
))  # fmt: skip
_NAMES_WIDTH = 20  # columns
Cells = tuple[str, str, str, str, str]  # status, time, host of a job on several, collective, why
Row = tuple[list[r.ProcessReport], Cells]


def process_table(
    report: r.Report, width: int, everything: bool = False, part: Sequence[r.ProcessReport] | None = None
) -> Table | None:
    """Ranks, and other processes that died on their own; None if there is nothing to compare.

    Ranks that ended in the same way share a row. Below `WIDE` columns, all but the status goes into one column.
    `part`: the only processes that are shown.
    """
    rows = process_rows(report, everything, part)
    if not rows:
        return None
    cut = rows if everything else rows[:ROWS]
    table = Table.grid(padding=(0, 2))
    with_hosts = any(cells[2] for _, cells in rows)
    for _ in range((5 if with_hosts else 4) if width >= WIDE else 2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for items, cells in cut:
        style = "bold" if items[0].primary else ""
        if width >= WIDE:
            table.add_row(names_words(items), *(cells if with_hosts else (*cells[:2], *cells[3:])), style=style)
        else:
            rest_words = ", ".join(cell.replace("\n", ", ") for cell in cells[1:] if cell)
            table.add_row(names_words(items), cells[0], rest_words, style=style)
    if len(rows) > len(cut):
        rest = [item for items, _ in rows[len(cut) :] for item in items]
        table.add_row(Text("..."), Text(f"{len(rest)} more: {_summary(rest)}"))
    return table


def without_details(report: r.Report, subject: r.ProcessReport | None) -> r.Report:
    """The report as a screen shows it: of thousands of processes but `subject`, only what their row is made of."""
    shown = [item if item is subject else _row_of(item) for item in report.processes or []]
    return msgspec.structs.replace(report, processes=shown)


def _row_of(item: r.ProcessReport) -> r.ProcessReport:
    error = item.exception
    slim = msgspec.structs.replace(error, message=None, python_stack=None) if error is not None else None
    return msgspec.structs.replace(item, exception=slim, **_DETAILS)


def process_rows(
    report: r.Report, everything: bool = False, part: Sequence[r.ProcessReport] | None = None
) -> list[Row]:
    """The processes of each row, and its cells; none if there is nothing to compare."""
    shown = [item for item in report.processes or [] if everything or _is_rank(item) or _is_eventful(item)]
    if report.attempts and not everything:
        of_verdict = report.verdict.attempt if report.verdict else None
        last = max((item.attempt for item in shown if item.attempt is not None), default=None)
        shown = [item for item in shown if item.attempt in (None, last if of_verdict is None else of_verdict)]
    if len(shown) > 1 and not any(_is_rank(item) for item in shown):  # what he saw himself is among them
        shown += [item for item in report.processes or [] if item not in shown and _raised_after(item)]
    if part is not None:
        shown = list(part)
    elif len(shown) < 2 and not any(item.last_collective for item in shown):
        return []
    hosts = len({item.host for item in report.processes or []}) > 1
    return _rows(sorted(shown, key=_order), alone=len(shown) == 1, hosts=hosts)


def _rows(ordered: Sequence[r.ProcessReport], alone: bool, hosts: bool) -> list[Row]:
    """Processes and their cells; ranks that differ only in time are combined."""
    groups: dict[tuple[str, ...], list[r.ProcessReport]] = {}
    for item in ordered:
        why = "" if alone else why_words(item)
        same = (failure_words(item), _collectives(item), why) if _is_rank(item) else (names_words([item]),)
        groups.setdefault(same, []).append(item)
    rows = []
    for items in groups.values():
        first = items[0]
        why = "" if alone else why_words(first)
        where = _hosts(items) if hosts else ""
        rows.append((items, (failure_words(first), _ended(items), where, _collectives(first), why)))
    return rows


def _hosts(items: Sequence[r.ProcessReport]) -> str:
    names = {item.host for item in items if item.host}
    return next(iter(names)) if len(names) == 1 else f"{len(names)} hosts" if names else ""


def _is_rank(item: r.ProcessReport) -> bool:
    return item.role == "rank"


def _is_eventful(item: r.ProcessReport) -> bool:
    return item.primary is True or (item.primary is None and item.why is not None)


def _raised_after(item: r.ProcessReport) -> bool:
    """Whether it is the program itself, whose exception follows from what its children died of."""
    return item.role == "process" and item.primary is False and item.exception is not None


def _order(item: r.ProcessReport) -> tuple[int, int, int]:
    judged = {True: 0, None: 1, False: 1}[item.primary]
    return judged, item.rank if item.rank is not None else 1 << 30, item.pid or 0


def names_words(items: Sequence[r.ProcessReport]) -> str:
    """`rank 1`, `ranks 0-6`, `worker 2 of rank 1` or `process 4711`."""
    if not _is_rank(items[0]):
        if items[0].worker is not None and items[0].parent_rank is not None:
            return f"worker {items[0].worker.worker_id} of rank {items[0].parent_rank}"
        name = (items[0].name or items[0].role or "process").removeprefix(_OF_MULTIPROCESSING)
        return f"{name} {items[0].pid}"
    ranks = sorted(item.rank for item in items if item.rank is not None)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    if len(ranks) > 3:
        words = span_words(ranks)
        return words if len(words) <= _NAMES_WIDTH else f"{len(ranks)} ranks"
    return f"ranks {list_words([str(rank) for rank in ranks])}"


def status_words(item: r.ProcessReport) -> str:
    """How a process ended: `SIGSEGV`, `RuntimeError`, `exit 1` or `running`."""
    status = item.status or r.Status()
    if item.signal is not None and status.kind != "exited":
        return item.signal.name or f"signal {item.signal.number}"
    if status.kind == "exception":
        return _exception_words(item)
    if status.kind == "exited":
        return f"exit {status.exit_code}"
    return status.kind or "unknown"


def failure_words(item: r.ProcessReport) -> str:
    """What `failed_ns` is the time of: the exception, also where a signal ended what Python does at exit after it."""
    return _exception_words(item) if item.raised is not None and item.exception is not None else status_words(item)


def _exception_words(item: r.ProcessReport) -> str:
    kind = (item.exception.type if item.exception else None) or "exception"
    return kind.rsplit(".", 1)[-1]


def failed_ns(process: r.ProcessReport) -> int | None:
    """When it failed: an exception ends a process only after what Python does at exit."""
    return process.raised if process.raised is not None else process.ended


def _ended(items: Sequence[r.ProcessReport]) -> str:
    times = [time for item in items if (time := failed_ns(item)) is not None]
    return time_words(min(times)) if times else ""


def _collectives(item: r.ProcessReport) -> str:
    """The last collective; if that is another op, the last all-reduce too, which is what the ranks wait in."""
    last = item.last_collective
    reduces = [other for other in item.recent_collectives or [] if other.op in _REDUCES]
    if last is None or last.op in _REDUCES or not reduces:
        return _collective(last)
    return f"{_collective(last)}\n{_collective(reduces[0])}"


def _collective(last: r.LastCollective | None) -> str:
    if last is None:
        return ""
    bucket = f" bucket {last.buffer.bucket_index}" if last.buffer and last.buffer.bucket_index is not None else ""
    return f"{last.op} #{last.sequence_nr}{bucket} {last.state}"


def why_words(item: r.ProcessReport) -> str:
    """Whether the death is the cause, or the reason why it is none."""
    if item.primary:
        if item.why_kind == "absent":
            return f"died {item.why}"  # "first: it never entered ..."
        if item.why_kind == "alike":
            return item.why or ""  # "the same fault, independently": one of them died first
        return "died first" if item.why_kind in (None, "first") else f"died first: {item.why}"
    if item.primary is False and (item.why_kind == "limit" or _ended_well(item)):
        return item.why or ""  # of nothing that happened in the job
    if item.primary is False:
        return f"consequence: {item.why}"
    return item.why or ""


def _ended_well(item: r.ProcessReport) -> bool:
    """Whether a finding only says where it was then: the end in order of a rank follows from nothing."""
    status = item.status or r.Status()
    return item.why_kind == "finding" and status.kind == "exited" and status.exit_code == 0


def _summary(rest: Sequence[r.ProcessReport]) -> str:
    counts: dict[str, int] = {}
    for item in rest:
        counts[status_words(item)] = counts.get(status_words(item), 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items())
