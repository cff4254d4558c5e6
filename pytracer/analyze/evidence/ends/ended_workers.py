"""DataLoader workers that a signal ended which also reached their parent: what the parent's handler could not do.

timeout(1), schedulers and terminals send to a whole process group. A worker dies of SIGTERM, since torch's handler
there passes it on, and torch then raises RuntimeError in the parent: a handler that only sets a flag comes too late.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import list_words
from pytracer.analyze.deaths.peer_errors import reports_a_child
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal, sent_signals
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import introduction, name_words, place_words, short_file
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_LEFT = ("SIG_IGN", "SIG_DFL")
_LOADER = "DataLoader"


class EndedWorkers(msgspec.Struct, frozen=True):
    """`parent`: handled the signal, and raised for its worker; `handler`, `loader`: lines of its program, if known."""

    parent: ProcessView
    signal: str
    raised: PythonFrame | None
    handler: str | None
    loader: str | None

    def subject(self, views: Sequence[ProcessView]) -> str:
        """Who was ended: `DataLoader workers 0 and 1 of process 8 (train.py)`."""
        numbers = [item.worker_id for view in views if (item := view.process.snapshot.worker) is not None]
        known = sorted(str(number) for number in numbers if number is not None)
        if len(views) == 1 or len(known) < len(views):
            return introduction(views)
        return f"DataLoader workers {list_words(known)} of {name_words([self.parent])}"

    @property
    def words(self) -> str:
        """Behind the sender of the signal."""
        by = f" ({self.handler})" if self.handler is not None else ""
        at = f" at {place_words(self.raised)}" if self.raised is not None else ""
        kind = (self.parent.exception.type if self.parent.exception is not None else None) or "an exception"
        return (
            f"; {name_words([self.parent])} received it, too, and has a handler for it{by}, but {kind} for its dead "
            f"worker ended it{at}"
        )

    @property
    def advice(self) -> str:
        """What keeps the workers alive, or the parent."""
        loader = f" of the DataLoader at {self.loader}" if self.loader is not None else ""
        around = f" around {place_words(self.raised)}" if self.raised is not None else ""
        return (
            f"Let the workers ignore {self.signal}: as the `worker_init_fn`{loader} pass a function of the module that "
            f"calls signal.signal(signal.{self.signal}, signal.SIG_IGN). Or have it sent to the main process alone "
            "(`timeout --foreground`, `kill PID`; Slurm's --signal=B: sends to the batch script only). Or catch the "
            f"RuntimeError{around}, and save there: what the handler sets is read too late."
        )

    @property
    def evidence(self) -> Evidence:
        """That the parent had the signal, too."""
        snapshot = self.parent.process.snapshot
        return Evidence(
            "signal",
            f"{name_words([self.parent])} received {self.signal}, too, and has a handler for it",
            pid=snapshot.pid,
            rank=self.parent.process.rank,
            signal=self.signal,
        )


def ended_workers(job: JobView, view: ProcessView) -> EndedWorkers | None:
    """Of a DataLoader worker; None where its parent did not handle the same signal of the same sender."""
    sent = deadly_signal(view)
    parent = parent_of_worker(job, view)
    if sent is None or parent is None or not parent.raised or not reports_a_child(parent):
        return None
    got = [item for item in sent_signals(parent.process.snapshot, sent.signal) if item.handled]
    if not any(item.sender_pid == sent.sender_pid for item in got):
        return None
    frames = parent.exception_stack_of_program
    files = program_files(parent.process.snapshot, frames)
    name = signal_name(sent.signal)
    return EndedWorkers(parent, name, parent.python_frame, _only(_handlers(files, name)), _only(_loaders(files)))


def parent_of_worker(job: JobView, view: ProcessView) -> ProcessView | None:
    """The process that a DataLoader worker loads for."""
    return parent_of(job, view) if view.process.role == "dataloader-worker" else None


def _only(places: Iterator[str]) -> str | None:
    found = [*places]
    return found[0] if len(found) == 1 else None


def _handlers(files: Mapping[str, ast.Module], name: str) -> Iterator[str]:
    """`` train.py:15: `signal.signal(signal.SIGTERM, self.stop)` ``."""
    for file, tree in files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) != "signal" or len(item.args) < 2:
                continue
            number, handler = (ast.unparse(part).rpartition(".")[2] for part in item.args[:2])
            if number == name and handler not in _LEFT:
                yield f"{short_file(file)}:{item.lineno}, `{source(item)}`"


def _loaders(files: Mapping[str, ast.Module]) -> Iterator[str]:
    for file, tree in files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) == _LOADER:
                yield f"{short_file(file)}:{item.lineno}"
