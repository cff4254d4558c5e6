"""Who held the host's memory at the end: the CPU storages of a process by the lines that allocated them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, count_words, hex_addr, size_words
from pytracer.analyze.evidence.ends.growing_stores import mostly_others
from pytracer.analyze.evidence.ends.growing_values import carried_state, joined_to_itself, loaded_file, made_layers
from pytracer.analyze.evidence.ends.keeping_iterators import KeepingIterator, keeping_iterator
from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine, keeping_line
from pytracer.analyze.evidence.ends.keeping_places import buffer_told
from pytracer.analyze.evidence.ends.keeping_ways import kept_by_others, kept_in_buffer
from pytracer.analyze.evidence.ends.metered_graphs import metered_graph
from pytracer.analyze.evidence.ends.worker_caches import worker_cache
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.tensors.requested import requested
from pytracer.analyze.evidence.limits.numbers import recorded_numbers
from pytracer.analyze.evidence.limits.reached import asked_bytes
from pytracer.analyze.evidence.own_code.deregistered import deregistered
from pytracer.analyze.evidence.own_code.pointer_content import may_be_address
from pytracer.analyze.kin import others_of_machine, parent_of
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.journal import lived_at
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.view import JobView, ProcessView
from pytracer.blackbox.schema import FREED_PER_THREAD
from pytracer.decode.types.journal import UncaughtException
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_LOOKED_AT = 4096  # storages of a process, the largest
_SITES = 3
_PROCESSES = 4
NO_MEMORY = (
    "The host's memory, or a limit (ulimit -v, memory cgroup), did not suffice: allocate less at that line, or free "
    "what is held."
)
_UNKNOWN_SIZE = (
    "The size that was asked for is not recorded. Ask first whether it is absurd: a length that was computed below 0, "
    "or read from behind the end of an array or from memory that was never set. If it is right, the host's memory, or "
    "a limit (ulimit -v, memory cgroup), did not suffice: allocate less at that line, or free what is held."
)
_IF_MEANT = "A larger limit helps only where all of that is meant to stay."
_HEAVY_BYTES = 100 << 20
_WORTH_A_LOOK = 16 << 20  # bytes: less does not bring a process to its limit
_SEVERAL = 16  # storages of one line: they pile up
_PILE = 0.4  # of the most that one line holds
_BATCH = Pattern(r"\[(\d+), \d+[\d, ]*\] \w*float\d*")
_MANY_SAMPLES = 1000  # in the first dimension
_SAMPLE_BYTES = 4096  # less is no activation of a layer
_SMALLER_BATCHES = (
    "Take smaller batches there (a DataLoader with a batch_size, `x.split(256)`), in an evaluation below "
    "torch.no_grad(), and add up the results."
)
_FEW = 2  # in a container: they are not the many that piled up
_LENGTH = Pattern(r"^(?:list|dict|set|deque|defaultdict|OrderedDict) of (\d+)$")
_WORTH_SHARE = 0.05  # of what the process holds in all
_ASKED = Pattern(r"you tried to allocate (\d{1,19}) bytes")
_FAILED = Pattern(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc|Unable to allocate .* for an array"
)


class Holding(msgspec.Struct, frozen=True):
    """Storages that one line allocated. `some`: there may have been more, which are no longer recorded."""

    frame: PythonFrame
    count: int
    nbytes: int
    some: bool = False

    @property
    def words(self) -> str:
        """`1.1 GiB in 37 storages allocated at train.py:31 in cache`; `at least 1.1 GiB in ...`."""
        least = "at least " if self.some else ""
        return (
            f"{least}{size_words(self.nbytes)} in {count_words(self.count, 'storage')} allocated at "
            f"{place_words(self.frame)}"
        )


class Shortage(msgspec.Struct, frozen=True):
    """What an allocation that failed is about: `words` follow its line; `advice` leads, whatever the limit is.

    `leads`: the words stand before those of the limit. `alone`: the advice is enough, no larger limit would help.
    """

    words: str
    advice: str | None = None
    leads: bool = False
    alone: bool = False


def failed_allocation(view: ProcessView) -> bool:
    """Whether the process ended because the host's memory did not suffice for an allocation."""
    exception = view.exception
    if exception is None:
        return False
    name = (exception.type or "").rsplit(".", 1)[-1]
    failed = (
        name in ("MemoryError", "_ArrayMemoryError")
        or _FAILED.search(f"{name} {exception.message}") is not None
        or (exception.language == "C++" and exception.type == "std::bad_alloc")
    )
    # Of an operator that was taken back, the size was read out of freed memory.
    return failed and deregistered(view.process.snapshot, view.exception_stack) is None


def address_as_size(view: ProcessView) -> int | None:
    """The bytes that torch's allocator was asked for, where that number is like an address of a process."""
    match = _ASKED.search(view.exception.message or "") if view.exception is not None else None
    asked = int(match[1]) if match is not None else None
    return asked if asked is not None and may_be_address(asked) else None


def no_memory_advice(view: ProcessView) -> str:
    """Allocate less; or where the size is none, what it was computed from."""
    asked = address_as_size(view)
    if asked is None:
        held, exception = holder_advice(view), view.exception
        unknown = exception is not None and exception.type == "std::bad_alloc" and not held
        return (_UNKNOWN_SIZE if unknown else NO_MEMORY) + held
    frame = view.python_frame
    line = f"line {frame.line}" if frame is not None and frame.line is not None else "that line"
    return (
        f"Look at what {line} asks for, not at memory: {asked} bytes are more than a machine has, and "
        f"{hex_addr(asked)} is like an address. The size may come of memory that had been freed, overwritten or never "
        "set: a native object must not outlive what it refers to (pybind11: return_value_policy::reference needs "
        "py::keep_alive, or reference_internal). Otherwise two large sizes are multiplied there."
    )


def holdings(view: ProcessView) -> list[Holding]:
    """The lines that allocated what the process held, the most bytes first; of its largest storages."""
    found: dict[PythonFrame, Holding] = {}
    held = [*_held(view)]
    # After an exception the interpreter frees them, and a thread remembers only so many.
    some = sum(item.state == "freed" for item in held) >= FREED_PER_THREAD // 2
    for storage in held:
        frame = storage.allocated_by.place
        if frame is not None and not is_borrowed(storage):
            key = python_frame(frame)
            before = found.get(key, Holding(key, 0, 0))
            found[key] = Holding(key, before.count + 1, before.nbytes + storage.nbytes, some)
    return sorted(found.values(), key=lambda item: -item.nbytes)


def heavy_holding(view: ProcessView) -> Holding | None:
    """The line that holds so much, in several storages, that who limits memory may have ended the process for it."""
    first = next(iter(holdings(view)), None)
    return first if first is not None and first.nbytes >= _HEAVY_BYTES and first.count >= _SEVERAL else None


def _held(view: ProcessView) -> Iterator[Storage]:
    """Its largest storages on the CPU when it died; of an exception, before the interpreter freed them."""
    snapshot = view.process.snapshot
    raised = [fact.epoch for fact in snapshot.recorded(UncaughtException)] if view.raised else []
    for storage in islice(snapshot.storages.by_size(), _LOOKED_AT):
        if lived_at(storage, raised[-1]) if raised else storage.state == "live":
            yield storage


def shortage(view: ProcessView) -> Shortage | None:
    """Of a process that the host's memory did not suffice for: a wrong shape, a very large batch, or what piled up."""
    if not failed_allocation(view) or address_as_size(view) is not None:
        return None
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack) if view.raised else None
    found = holdings(view)
    made = _requested(view, at, found) or _joined(at)
    if made is not None:
        return made
    batch = _large_batch(view, found)
    if batch is not None:
        return Shortage(f": {batch}", f"{capital(batch)}. {_SMALLER_BATCHES}")
    if not found or found[0].count < _SEVERAL:
        return _kept_without_storages(view, at) if not found or found[0].nbytes < _WORTH_A_LOOK else None
    keeps = _iterator(view, found[0]) or keeper(view, found[0])
    held = f", while it held {found[0].words}"
    if keeps is None:
        return Shortage(held, holder_advice(view).strip() or None)
    if isinstance(keeps, KeepingLine) and keeps.endless:
        advice = f"{keeps.advice} A larger limit or smaller batches leave that as it is."
        return Shortage(f"{held}: {keeps.subject}", advice, leads=True, alone=True)
    return Shortage(f"{held}: {keeps.subject}", f"{keeps.advice} {_IF_MEANT}", leads=True)


def shortage_of_worker(job: JobView, view: ProcessView) -> Shortage | None:
    """Of an allocation that failed in a DataLoader's worker of the process: what the dataset keeps of each sample."""
    if not failed_allocation(view):
        return None
    workers = (item for item in job.views if item.process.snapshot.worker is not None and parent_of(job, item) is view)
    cache = next((found for item in workers if (found := worker_cache(job, item)) is not None), None)
    return Shortage(f"; {cache.words}", f"{cache.advice(None)} {_IF_MEANT}", leads=True) if cache is not None else None


def _joined(at: FailingLine | None) -> Shortage | None:
    """The failing line joins an array to itself."""
    found = joined_to_itself(at) if at is not None else None
    return Shortage(f": {found.subject}", found.advice, leads=True) if found is not None else None


def _kept_without_storages(view: ProcessView, at: FailingLine | None) -> Shortage | None:
    """What the failing line makes, in memory that is not torch's, where a list with many such is recorded."""
    asked = asked_bytes(view.exception.message or "") if view.exception is not None else None
    frame = at.frame if at is not None else None
    if at is None or frame is None or asked is None:
        return None
    keeps = keeping_line(at.snapshot, frame) or kept_by_others(at.snapshot, frame)
    count = (
        _recorded_length(at.exception, keeps.container) if keeps is not None and keeps.container is not None else None
    )
    if keeps is None or count is None or count < _SEVERAL or count * asked < _WORTH_A_LOOK:
        return None
    return Shortage(f": {keeps.subject}, which has {count} so far", f"{keeps.advice} {_IF_MEANT}", leads=True)


def _is_almost_empty(view: ProcessView, keeps: KeepingLine) -> bool:
    """Whether it has fewer than what piled up by far: then that is what one round makes at once, as the layers do."""
    count = None
    if view.exception is not None and keeps.container is not None:
        count = _recorded_length(view.exception, keeps.container)
    return count is not None and count <= _FEW


def _recorded_length(exception: ExceptionReport, container: str) -> int | None:
    """Of a list or dict of any frame, by the name that the line has for it."""
    outer = [item for frame in exception.outer or () for item in frame.variables or ()]
    for item in (*(exception.variables or ()), *outer):
        size = _LENGTH.match(item.value or "") if item.name == container else None
        if size is not None:
            return int(size[1])
    return None


def _requested(view: ProcessView, at: FailingLine | None, held: Sequence[Holding]) -> Shortage | None:
    """The expression of the failing line that makes just so much; unless what piled up is more."""
    found = requested(at) if at is not None else None
    if found is None or view.exception is None:
        return None
    piled = held[0].nbytes if held and held[0].count >= _SEVERAL else 0
    if found.nbytes is not None and found.nbytes < piled and not found.accidental:
        return None
    numbers = recorded_numbers(view.exception.variables)
    machine = numbers.values.get("machine memory") if numbers is not None else None
    too_much = found.nbytes is not None and machine is not None and found.nbytes > machine
    return Shortage(f": {found.subject}", found.advice, leads=True, alone=found.accidental or too_much)


def _large_batch(view: ProcessView, held: Sequence[Holding]) -> str | None:
    """The tensor with very many entries that the failing line worked on, where the request is so much for each."""
    asked = _ASKED.search(view.exception.message or "") if view.exception is not None else None
    if asked is None or view.exception is None:
        return None
    nbytes = int(asked[1])
    if nbytes <= _total(held):
        return None  # what piled up is more
    for item in view.exception.variables or ():
        shape = _BATCH.match(item.value or "")
        if shape is None or (item.name or "").endswith(("weight", "bias")):
            continue
        count = int(shape[1])
        if count >= _MANY_SAMPLES and nbytes % count == 0 and nbytes // count >= _SAMPLE_BYTES:
            each = f"{size_words(nbytes)} are {size_words(nbytes // count)} for each"
            return f"`{item.name}` has {count} entries in its first dimension, and {each}"
    return None


def _iterator(view: ProcessView, held: Holding) -> KeepingIterator | None:
    """What gave the items that pile up."""
    if held.count < _SEVERAL:
        return None
    return keeping_iterator(view.process.snapshot, view.exception_stack_of_program, held.frame)


def keeper(view: ProcessView, held: Holding) -> KeepingLine | None:
    """The line that keeps what piles up, where the source shows it: there, elsewhere, or in a graph."""
    if held.count < _SEVERAL:
        return None
    snapshot, frame = view.process.snapshot, held.frame
    ways = (loaded_file, made_layers, keeping_line, metered_graph, kept_by_others, carried_state)
    found = next((found for way in ways if (found := way(snapshot, frame)) is not None), None)
    if found is not None and _is_almost_empty(view, found):
        return None
    buffer = kept_in_buffer(snapshot, frame) if found is None else None
    if buffer is None or buffer.most <= held.count * 2:
        return found
    return buffer_told(buffer.place, buffer.most, buffer.size, held.nbytes // held.count, frame.file)


def holder_evidence(job: JobView, view: ProcessView) -> Iterator[Evidence]:
    """What the process held, then what the other processes of its host held."""
    mine = holdings(view)
    others = [(item, holdings(item)) for item in others_of_machine(job, view) if not item.process.snapshot.light]
    if mine:
        yield _evidence(view, mine, _SITES)
    heavy = sorted(
        (item for item in others if _total(item[1]) > _WORTH_SHARE * _total(mine)), key=lambda i: -_total(i[1])
    )
    for other, found in heavy[:_PROCESSES]:
        yield _evidence(other, found, 1)


def own_evidence(view: ProcessView) -> Evidence | None:
    """What the process itself held, where that is worth a look."""
    found = holdings(view)
    return _evidence(view, found, _SITES) if _total(found) >= _WORTH_A_LOOK else None


def _total(found: Sequence[Holding]) -> int:
    return sum(item.nbytes for item in found)


def _evidence(view: ProcessView, found: Sequence[Holding], most: int) -> Evidence:
    total = _total(found)
    shown = [item for item in found[:most] if item.nbytes >= _WORTH_SHARE * total] or found[:1]
    return Evidence(
        "memory-use",
        f"{name_words([view])} held {'at least ' if shown[0].some else ''}{size_words(total)} in CPU storages: "
        f"{'; '.join(item.words for item in shown)}",
        rank=view.process.rank,
        pid=view.process.snapshot.pid,
        nbytes=total,
        count=sum(item.count for item in found),
        python=found[0].frame,
    )


def holder_advice(view: ProcessView) -> str:
    """The line that held the most, for the next step; nothing where it held no tensor, or too little to matter."""
    found = holdings(view)
    whole = not view.process.snapshot.light and not any(item.some for item in found)
    others = mostly_others(view, _total(found)) if whole else None
    if others is not None:
        return f" {others}"
    if not found or found[0].nbytes < _WORTH_A_LOOK:
        return ""
    first = _piled_up(found)
    keeps = _iterator(view, first) or keeper(view, first)
    if keeps is not None:
        return f" {keeps.advice}"
    kept = (
        ": what was made there again and again is still held, by a list, dict, queue, cache or hook, or by the graph "
        "of a result that is kept (detach() or item() it); or one batch needs all of it (take a smaller one)"
        if first.count >= _SEVERAL
        else ""
    )
    return f" Look first at {place_words(first.frame)}, which holds {size_words(first.nbytes)} in tensors{kept}."


def _piled_up(found: Sequence[Holding]) -> Holding:
    """What grows, where a few large ones are not much more: those may be made of it at once, and gone as fast."""
    if found[0].count >= _SEVERAL:
        return found[0]
    piles = (item for item in found if item.count >= _SEVERAL and item.nbytes >= _PILE * found[0].nbytes)
    return next(piles, found[0])
