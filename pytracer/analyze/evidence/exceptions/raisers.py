"""The process that raised an exception first, if another raised it again; of a DataLoader worker, its samples."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.name_origins import sample_number
from pytracer.analyze.evidence.exceptions.reraised import OF_POOL, Reraised, reason_within
from pytracer.analyze.kin import children_of
from pytracer.analyze.parts import exception_report
from pytracer.analyze.view import JobView, ProcessView
from pytracer.blackbox.schema import ON_FETCH
from pytracer.decode.types.journal import UncaughtException
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_WORKER = Pattern(r"DataLoader worker process (\d+)$")
_FETCHER, _COLLATE = "torch/utils/data/_utils/fetch.py", "torch/utils/data/_utils/collate.py"
_GETTERS = ("__getitem__", "__getitems__")
_ENTRY = Pattern(r"at entry (\d+)\.?$")
_FEW = 16  # samples that a line can list


class Raiser(msgspec.Struct, frozen=True):
    """The process that raised an exception, and what it recorded of it."""

    snapshot: Snapshot
    exception: ExceptionReport
    stack: Sequence[PythonFrame]

    @property
    def joins(self) -> bool:
        """Whether the samples of its batch were all there, and the collate_fn failed."""
        below = [*itertools.takewhile(lambda item: not (item.file or "").endswith(_FETCHER), self.stack)]
        known = bool(self.indices) or any((item.file or "").endswith(_COLLATE) for item in below)
        return known and not any((item.function or "").rpartition(".")[2] in _GETTERS for item in below)

    @property
    def indices(self) -> list[str]:
        """Of the samples of its batch, in its order."""
        held = {item.name: item.value for item in self.exception.variables or ()}
        return (held.get("indices of the batch") or "").split()

    @property
    def repeated(self) -> str | None:
        """How to meet the failure of the collate_fn again; None of a large batch."""
        if not 0 < len(self.indices) <= _FEW:
            return None
        return repeats(f"collate_fn([dataset[i] for i in ({', '.join(self.indices)},)])")

    @property
    def entry_words(self) -> str | None:
        """Which sample the entry was that the message names."""
        entry = _ENTRY.search(self.exception.message or "")
        if entry is None or int(entry[1]) >= len(self.indices) or not self.joins:
            return None
        return f"Entry {entry[1]} is `dataset[{self.indices[int(entry[1])]}]`, if the collate_fn keeps that order."


def repeats(call: str) -> str:
    """How to meet a failure of a DataLoader worker again, in one process."""
    return f"`{call}` should repeat it in one process, unless random numbers decide."


def raiser(job: JobView, view: ProcessView, first: Reraised | None) -> Raiser | None:
    """The process itself; of what a DataLoader worker or a pool's process handed over, that one, with its variables."""
    exception = view.exception
    if exception is None:
        return None
    if first is None:
        return Raiser(view.process.snapshot, reason_within(exception), view.exception_stack)
    number = _WORKER.search(first.where)
    for worker in children_of(job, view):
        theirs = worker.process.snapshot
        if worker.process.role != "dataloader-worker" and first.where != OF_POOL:
            continue
        if number is not None and theirs.worker is not None and theirs.worker.worker_id not in (None, int(number[1])):
            continue  # another one fails at the same line with a sample of its own
        for fact in theirs.recorded(UncaughtException):
            report = exception_report(fact.data)
            frames = report.python_stack or []
            lines = [(frame.file, frame.line) for frame in frames]
            same = first.frame is not None and (first.frame.file, first.frame.line) in lines
            if first.where == OF_POOL and report.message != exception.message:
                continue  # of another task
            if fact.data.on_its_way == ON_FETCH and fact.data.type == first.type and same:
                return Raiser(theirs, report, frames)
    return None


def failed_sample(job: JobView, view: ProcessView, first: Reraised | None) -> str | None:
    """The number of the sample that a DataLoader worker had; None where the exception is no worker's."""
    raised = raiser(job, view, first) if first is not None and "DataLoader worker" in first.where else None
    return sample_number(raised.snapshot, raised.exception, raised.stack) if raised is not None else None
