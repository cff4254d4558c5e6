"""The table of processes: how each rank ended, in which collective, and whether it was the cause."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from pytracer._words import time_words
from pytracer.analyze import report as r

ROWS = 8


def process_table(report: r.Report, everything: bool = False) -> Table | None:
    """Ranks, and others that died on their own account; None when there is nothing to tell."""
    shown = [item for item in report.processes or [] if everything or _is_rank(item) or _is_eventful(item)]
    if len(shown) < 2 and not any(_is_rank(item) for item in shown):
        return None
    ordered = sorted(shown, key=_order)
    cut = ordered if everything else ordered[:ROWS]
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in cut:
        style = "bold" if item.primary else ""
        cells = (_name(item), _status(item), _ended(item), _collective(item.last_collective), _why(item))
        table.add_row(*cells, style=style)
    if len(ordered) > len(cut):
        rest = ordered[len(cut) :]
        table.add_row(Text("..."), Text(f"{len(rest)} more: {_summary(rest)}"), "", "", "")
    return table


def _is_rank(item: r.ProcessReport) -> bool:
    return item.role == "rank"


def _is_eventful(item: r.ProcessReport) -> bool:
    return item.primary is True or (item.primary is None and item.why is not None)


def _order(item: r.ProcessReport) -> tuple[int, int, int]:
    judged = {True: 0, None: 1, False: 1}[item.primary]
    return judged, item.rank if item.rank is not None else 1 << 30, item.pid or 0


def _name(item: r.ProcessReport) -> str:
    if _is_rank(item):
        return f"rank {item.rank}"
    return f"{item.role or 'process'} {item.pid}"


def _status(item: r.ProcessReport) -> str:
    status = item.status or r.Status()
    if item.signal is not None and status.kind != "exited":
        return item.signal.name or f"signal {item.signal.number}"
    if status.kind == "exception":
        kind = (item.exception.type if item.exception else None) or "exception"
        return kind.rsplit(".", 1)[-1]
    if status.kind == "exited":
        return f"exit {status.exit_code}"
    return status.kind or "unknown"


def _ended(item: r.ProcessReport) -> str:
    return time_words(item.ended) if item.ended is not None else ""


def _collective(last: r.LastCollective | None) -> str:
    if last is None:
        return "no collective"
    bucket = f" bucket {last.buffer.bucket_index}" if last.buffer and last.buffer.bucket_index is not None else ""
    return f"{last.op} #{last.sequence_nr}{bucket} {last.state}"


def _why(item: r.ProcessReport) -> str:
    if item.primary:
        return "died first" if item.why in (None, "first") else f"died first: {item.why}"
    if item.primary is False:
        return f"consequence: {item.why}"
    return item.why or ""


def _summary(rest: Sequence[r.ProcessReport]) -> str:
    counts: dict[str, int] = {}
    for item in rest:
        counts[_status(item)] = counts.get(_status(item), 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items())
