"""What keeps the mappings of memory of a process, where it has as many as it may: tensors in shared memory, files.

Each storage that another process sent, that share_memory_() made, or that is a mapped file is a mapping for as long as
a tensor of it lives. The lines that keep them are known by the source; how many a list has, by the recorded values.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.ends.keeping_lines import KeptThere, kept_there
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.limits.kept_tensors import KeptTensor, copies_words, kept_tensors, kept_words
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame, VariableReport

_CONTAINER = Pattern(r"^(?:list|dict|set|tuple|deque|defaultdict|OrderedDict) of (\d{1,9})$")
_REDUCTIONS = Pattern(r"/torch/multiprocessing/reductions\.py$")
_REBUILDS = "rebuild_"
_SHARES = Pattern(r"/torch/storage\.py$")
_MOST = 0.8  # of the mappings
_RAISED, _SHORT = 4, 40


class KeptMappings(msgspec.Struct, frozen=True):
    """`received`: lines that keep what other processes sent; `own`: the line that keeps what the failing line makes.

    `counted`: the only recorded container with about as many items as there are mappings, or of `own`, and its size.
    `shared`: whether the failing line moves tensors into shared memory.
    """

    line: int | None
    limit: int
    received: tuple[KeptTensor, ...] = ()
    own: KeptThere | None = None
    counted: tuple[str, str] | None = None
    shared: bool = False
    sent: bool = False

    @property
    def words(self) -> str:
        """For the headline, after the number of mappings."""
        if self.received:
            return kept_words(self.received, self._size)
        if self.own is not None:
            each = f"each `{self.own.value}`" if len(self.own.value) <= _SHORT else "each"
            return f"; {self.own.place} keeps {each} in `{self.own.container}`{self._size}"
        return f"; `{self.counted[0]}`{self._size} keeps about as many" if self.counted is not None else ""

    @property
    def _size(self) -> str:
        return f" ({self.counted[1]})" if self.counted is not None else ""

    @property
    def advice(self) -> str:
        """What to keep instead."""
        more = (
            f"A higher limit (as root: sysctl -w vm.max_map_count={_RAISED * self.limit}) helps only where the number "
            "is bounded."
        )
        here = f"line {self.line}" if self.line is not None else "the line that is named"
        if self.received:
            several = "" if any(item.copied is None for item in self.received) else " (of a list, each tensor in it)"
            return (
                f"{copies_words(self.received)}{several}, or its numbers (`.tolist()`). Each tensor that another "
                "process sent is a mapping of its own for as long as it, a view or a NumPy array of it lives; fewer "
                f"and larger ones (stacked or padded where they are sent) need fewer. {more}"
            )
        if self.sent:
            kept = f" in `{self.counted[0]}`" if self.counted is not None else ""
            return (
                f"Each tensor that {here} receives is a mapping of its own for as long as it, a view or a NumPy array "
                f"of it lives: keep copies{kept} (`clone()`, or numbers), or send few large tensors. {more}"
            )
        if self.shared and self.own is not None:
            return (
                f"Each tensor in shared memory is a mapping of its own, and {self.own.place} (`{self.own.text}`) keeps "
                f"them: make a few large ones once (such as `torch.empty(N, ...).share_memory_()` with a row for each "
                f"item), and copy each item into its row there. {more}"
            )
        if self.own is not None:
            return (
                f"{capital(self.own.place)} (`{self.own.text}`) keeps each mapping that {here} makes: map one large "
                f"file or block and keep slices of it, or copy what is needed and drop the mapping. {more}"
            )
        what = "tensor in shared memory" if self.shared else "mmap"
        return (
            f"Each {what} is a mapping of its own. Make few large ones at {here} (one for all items of a kind, and its "
            f"slices or views), or raise the limit (as root: sysctl -w vm.max_map_count={_RAISED * self.limit})."
        )


def kept_mappings(
    snapshot: Snapshot,
    at: FailingLine | None,
    stack: Sequence[PythonFrame],
    own: Sequence[PythonFrame],
    held: Sequence[VariableReport],
    numbers: tuple[int, int],
) -> KeptMappings:
    """Of an exception of a process that has as many mappings as it may.

    Args:
        snapshot: The process.
        at: Its failing line.
        stack: Where it was raised, innermost first.
        own: The program's frames of that.
        held: Recorded variables of these.
        numbers: How many mappings there are, and may be.
    """
    used, limit = numbers
    line = own[0].line if own else None
    sent = any(_receives(frame) for frame in stack)
    shared = any(_SHARES.search(frame.file or "") for frame in stack) or sent
    received = tuple(kept_tensors(at.slice)) if sent and at is not None else ()
    keeps = kept_there(snapshot, own[0]) if own and not sent else None
    containers = {item.container for item in received if item.container is not None}
    named = keeps.container if keeps is not None else containers.pop() if len(containers) == 1 else None
    counted = _named(held, named) if named is not None else _largest(held, used)
    return KeptMappings(line, limit, received, keeps, counted, shared, sent)


def _receives(frame: PythonFrame) -> bool:
    """Whether torch makes a tensor of what another process sent."""
    return _REDUCTIONS.search(frame.file or "") is not None and (frame.function or "").startswith(_REBUILDS)


def _named(held: Sequence[VariableReport], name: str) -> tuple[str, str] | None:
    """The recorded one: `self.gts` of a method may have been recorded as `evaluator.gts`."""
    last = name.rpartition(".")[2]
    found = {
        item.value
        for item in held
        if item.name and item.value and _CONTAINER.match(item.value)
        if item.name == name or ("." in item.name and "." in name and item.name.rpartition(".")[2] == last)
    }
    return (name, found.pop()) if len(found) == 1 else None


def _largest(held: Sequence[VariableReport], used: int) -> tuple[str, str] | None:
    found = {
        (item.name, item.value)
        for item in held
        if item.name and item.value and (size := _CONTAINER.match(item.value)) is not None
        if used * _MOST <= int(size[1]) <= used
    }
    return found.pop() if len(found) == 1 else None
