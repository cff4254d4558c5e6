"""What a DataLoader worker did in a batch that it never finished, where it left no stack, as of SIGKILL.

Its processor time shows whether it computed or waited, and the source of its dataset in which loop that may be.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import time_words
from pytracer.analyze.evidence.exceptions.loaders import loading_since
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.empty_rounds import empty_rounds, only_generator
from pytracer.analyze.evidence.syntax.endless import reason_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.same_successors import same_again
from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, head_of, is_unbounded
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_LONG_NS = 5_000_000_000
_COMPUTES, _WAITS = 0.3, 0.02  # of one processor
_OF_ITEMS = ("__getitem__", "__getitems__", "__iter__")
_SHOWS = "`py-spy dump --pid` of the worker shows the line while it loads."
_ELSE = (
    "If it is not that, time the batch in one process: `dataset[i]` for its samples, with num_workers=0. If it is only "
    "slow, raise the time limit."
)


class DatasetLoop(msgspec.Struct, frozen=True):
    """A loop of a dataset that may not end, by its source. `name`: the method it is in."""

    line: LineWords
    head: str
    name: str
    reason: Reason

    @property
    def words(self) -> str:
        """`perhaps in the loop of line 58 (`while True`) in Ink.__getitem__: ...`."""
        return f"perhaps in the loop of {self.line} (`{self.head}`) in {self.name}: {self.reason.words}"


class UnseenLoading(msgspec.Struct, frozen=True):
    """`cpu`: seconds of processor time that the worker had used; None where they show nothing."""

    cpu: float | None
    computed: bool
    getter: str | None
    """`Ink.__getitem__ (line 55)`."""
    loop: DatasetLoop | None

    @property
    def streams(self) -> bool:
        """Whether it is an iterable dataset, which has no `dataset[i]`."""
        return self.getter is not None and ".__iter__()" in self.getter

    @property
    def words(self) -> str:
        """After how long it had been loading."""
        used = f" ({time_words(int(self.cpu * 1e9))} of processor time)" if self.cpu is not None else ""
        if self.cpu is not None and not self.computed:
            return f" and waited, or slept, meanwhile{used}"
        computed = f" and computed meanwhile{used}" if used else ""
        return f"{computed}{f', {self.loop.words}' if self.loop is not None else ''}"

    @property
    def advice(self) -> str | None:
        """What to change, or to look at; None where nothing is known but the wait."""
        if self.loop is not None:
            return f"{self.loop.reason.advice} {_SHOWS if self.streams else _ELSE}"
        if not self.computed:
            return None
        at = f" of {self.getter}" if self.getter is not None else " of the dataset"
        if self.streams:
            return (
                f"Look at the loops{at}, which have to yield, and to end where that worker has no data (its share may "
                f"be empty). {_SHOWS} If it is only slow, raise the time limit, load less per sample, or use more "
                "workers."
            )
        return (
            "Time that batch in one process: `dataset[i]` for its samples, with num_workers=0. If it is only slow, "
            "raise the time limit, load less per sample, or use more workers; if it does not come back, look at the "
            f"loops{at}, which have to end for each sample."
        )


def unseen_loading(view: ProcessView, worker: ProcessView) -> UnseenLoading | None:
    """Of a worker without a stack. `view`: the process that waits for it."""
    if worker.python_stack or worker.process.snapshot.worker is None:
        return None
    cpu, computed = _processor_time(worker)
    getter, loop = _of_dataset(view, worker)
    return UnseenLoading(cpu, computed, getter, loop if cpu is None or computed else None)


def _processor_time(worker: ProcessView) -> tuple[float | None, bool]:
    """What it had used when it was last seen alive, and whether that shows that it computed for that batch."""
    seen, since = worker.seen, loading_since(worker)
    if seen is None or seen.cpu_seconds is None or since is None or seen.alive_mono_ns - since < _LONG_NS:
        return None, False
    used, lasted = float(seen.cpu_seconds), (seen.alive_mono_ns - since) / 1e9
    before = max(0.0, (since - worker.process.snapshot.created_mono_ns) / 1e9)
    if used - before >= lasted * _COMPUTES:
        return used, True
    return (used, False) if used <= lasted * _WAITS else (None, False)


def _of_dataset(view: ProcessView, worker: ProcessView) -> tuple[str | None, DatasetLoop | None]:
    """The method that makes a sample, and its only loop that may not end."""
    known, own = worker.process.snapshot.worker, program_stack(view)
    name = (known.dataset or "").rpartition(".")[2] if known is not None else ""
    for file, tree in program_files(view.process.snapshot, own).items():
        owner = class_named(tree, name) if name else None
        methods = [item for item in (owner.body if owner is not None else ()) if isinstance(item, ast.FunctionDef)]
        getter = next((item for item in methods if item.name in _OF_ITEMS), None)
        if getter is not None:
            here = own[0].file if own else None
            line = line_in(file, getter.lineno, here)
            makes = only_generator(owner, getter) if owner is not None else getter
            return f"{name}.{getter.name}() ({line})", _loop_in(tree, makes, f"{name}.{makes.name}", file, here)
    return None, None


def _loop_in(tree: ast.Module, getter: ast.FunctionDef, name: str, file: str, here: str | None) -> DatasetLoop | None:
    loops = [item for item in own_nodes(getter) if isinstance(item, (ast.While, ast.For))]
    outer = [item for item in loops if not any(item in nodes_of(one) for one in loops if one is not item)]
    found = [
        (item, reason)
        for item in outer
        if isinstance(item, ast.While) or is_unbounded(item)
        if (reason := _reason(tree, getter, item)) is not None and not reason.by_others
    ]
    if len(found) != 1:
        return None
    loop, reason = found[0]
    return DatasetLoop(line_in(file, loop.lineno, here), head_of(loop), name, reason)


def _reason(tree: ast.Module, getter: ast.FunctionDef, loop: EndlessLoop) -> Reason | None:
    return same_again(tree, getter, loop) or reason_of(getter, loop, loop.lineno) or empty_rounds(getter, loop)
