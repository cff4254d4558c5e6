"""Values that forked DataLoader workers read at wrong places of a file: they share its one position.

fork() copies the descriptor, not the open file behind it: seek() of one worker moves the place where the others read.
What they read is valid data of another place, so that the process that gets the batch fails by a label or index.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import capital
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.exceptions.raisers import Raiser
from pytracer.analyze.evidence.failing.data.batch_values import fails_by_values, of_loader
from pytracer.analyze.evidence.failing.data.open_handles import OpenHandle, shared_handle
from pytracer.analyze.evidence.failing.expressions import as_written, short, whole
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.waits import was_forked
from pytracer.analyze.kin import children_of
from pytracer.analyze.view import JobView, ProcessView

_GETTERS = ("__getitem__", "__getitems__", "__iter__", "__next__")
_SEVERAL = 2


class SharedOffset(msgspec.Struct, frozen=True):
    """The workers of a process, and the file that their dataset keeps open."""

    at: FailingLine
    handle: OpenHandle
    workers: int
    in_worker: bool

    @property
    def subject(self) -> str:
        """For a headline."""
        what = "it likely read data" if self.in_worker else "the batch likely has data"
        one = " (one position)" if self.handle.plain else ""
        return (
            f"{what} of other places in the file, since {self.workers} forked DataLoader workers share the open "
            f"`{self.handle.name}` of {self._opened_at}{one}"
        )

    @property
    def advice(self) -> str:
        """To open it in each worker."""
        name, reads = self.handle.name, self.handle.reads
        how = f"open it again in each worker, in a worker_init_fn of the DataLoader (`global {name}`)"
        if name.startswith("self."):
            begins = self._at(reads.file, getattr(reads.scope, "lineno", 0))
            how = (
                f"set `{name} = None` at {self._opened_at}, and open it in each worker, in "
                f"`{getattr(reads.scope, 'name', '')}` ({begins}) when it is None or in a worker_init_fn"
            )
        moved = "its position" if self.handle.plain else "where it reads"
        without = " os.pread() and np.memmap have no such position." if self.handle.plain else ""
        return (
            f"{capital(self._opened_at)} (`{short(as_written(self.handle.opened))}`) opens the file before the workers "
            f"are forked, and each that reads it at {self._at(reads.file, reads.line)} moves {moved} for the others: "
            f"{how}.{without} With num_workers=0 the same samples are right if it was that."
        )

    @property
    def behind(self) -> Behind:
        """Where it is opened and read."""
        opened, reads = self.handle.opened, self.handle.reads
        return Behind.of([], (opened.spot.file, opened.line), (reads.file, reads.line), *self._loaders())

    def _loaders(self) -> Iterator[tuple[str, int]]:
        """The lines of the program that make a DataLoader with workers."""
        for file, tree in self.at.files.items():
            for item in nodes_of(tree):
                if isinstance(item, ast.Call) and called_name(item) == "DataLoader":
                    told = keyword_value(item, "num_workers")
                    if told is not None and whole(told) not in (0, 1):
                        yield file, item.lineno

    @property
    def _opened_at(self) -> str:
        return self._at(self.handle.opened.spot.file, self.handle.opened.line)

    def _at(self, file: str | None, line: int) -> str:
        return self.at.in_file(file, line)


def shared_offset(job: JobView, view: ProcessView, origin: Raiser | None) -> SharedOffset | None:
    """Of what a process raised, or a worker handed over to it. `origin`: which it was, and what that recorded."""
    try:
        return _shared_offset(job, view, origin)
    except Exception:  # a program may be written in any way; what is said otherwise is enough
        return None


def _shared_offset(job: JobView, view: ProcessView, origin: Raiser | None) -> SharedOffset | None:
    if origin is None:
        return None
    in_worker = origin.snapshot is not view.process.snapshot
    workers = _workers(job, view)
    stack = [*origin.stack, *view.exception_stack] if in_worker else origin.stack
    at = failing_line(origin.snapshot, origin.exception, stack) if workers else None
    if at is None or not fails_by_values(at):
        return None
    if not (_reads_sample(at) if in_worker else of_loader(at)):
        return None
    for dataset in dict.fromkeys(workers):
        handle = shared_handle(at.files, at.slice, dataset.rpartition(".")[2])
        if handle is not None:
            return SharedOffset(at, handle, workers.count(dataset), in_worker)
    return None


def _workers(job: JobView, view: ProcessView) -> Sequence[str]:
    """The datasets of its forked workers, of loaders that have several."""
    return [
        worker.dataset
        for item in children_of(job, view)
        if (worker := item.process.snapshot.worker) is not None
        if (worker.num_workers or 0) >= _SEVERAL and worker.dataset and was_forked(item)
    ]


def _reads_sample(at: FailingLine) -> bool:
    """Whether it is inside of a dataset's own method."""
    return any((frame.function or "").rpartition(".")[2] in _GETTERS for frame in at.frames)
