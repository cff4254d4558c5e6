"""Reports of small jobs, and their rows in a history."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pytracer.history.rows import Row, run_row
from pytracer.report import job as r

DAY = "2026-11-01"
_MIDNIGHT = datetime(2026, 11, 1, tzinfo=timezone.utc)


def report(number: int, *, function: str = "step", clean: bool = False, day: int = 0, **run: Any) -> r.Report:
    """A job of two ranks on two hosts; rank 1 dies on `node1`."""
    started = (_MIDNIGHT + timedelta(days=day, seconds=number)).isoformat(timespec="milliseconds")
    about = r.Run(**{"id": f"job{number}", "started": started, "world_size": 2, "torch": "2.13.0+cpu", **run})
    ended = r.Status(kind="exited", exit_code=0) if clean else r.Status(kind="signaled", signal=11)
    ranks = [
        r.ProcessReport(pid=100 + rank, rank=rank, role="rank", host=f"node{rank}", status=ended) for rank in (0, 1)
    ]
    if clean:
        return r.Report(run=about, verdict=r.Verdict(class_="clean", summary="Nothing died."), processes=ranks)
    stack = [r.PythonFrame(function=function, file="/srv/train.py", line=12)]
    died = r.ProcessReport(
        pid=101, rank=1, role="rank", host="node1", status=ended, primary=True, python_stack=stack,
        signal=r.Signal(name="SIGSEGV", number=11), step=7,
        native_stack=[r.NativeFrame(function="look_up", image="/lib/fast.so", build_id="ab", offset="0x10")],
    )  # fmt: skip
    verdict = r.Verdict(
        class_="use-after-free", confidence="certain", rank=1, pid=101, summary="Rank 1 read freed memory."
    )
    return r.Report(run=about, verdict=verdict, processes=[ranks[0], died])


def rows(count: int, first: int = 0, **how: Any) -> list[Row]:
    """The rows of jobs number `first` and on."""
    return [run_row(report(number, **how)) for number in range(first, first + count)]


def tear(path: str | Path) -> None:
    """Leaves half of a file, as a full disk or a broken copy does."""
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) // 2])
