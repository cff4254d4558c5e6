"""What lay around an address, of every kind: for a picture to scale."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer._text import hex_addr
from pytracer.analyze.address_space.neighbors import covers, distance_to
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.evidence.cuda.cuda_graphs import broken_graphs, broken_inputs
from pytracer.analyze.parts import StorageReports
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Mapping, Storage
from pytracer.report import job as r

STORAGES = 48
OTHERS = 16
_EACH_SIDE = 16
_COVERING = 8
_GUARDED_EACH_SIDE = 4
_FAR_BYTES = 1 << 36  # the heap and what mmap() returns are farther apart
_NOWHERE = ("null", "near-null", "non-canonical", "none")


def neighborhood(view: ProcessView) -> r.Neighborhood | None:
    """The surroundings of the fault address; without one, of memory that a replayed CUDA graph had lost."""
    focus = _focus(view)
    if focus is None:
        return None
    what, addr = focus
    table = view.space.snapshot.storages
    storages = _storages(view, addr)
    low = min((item.base for item in storages), default=addr)
    high = max((item.base + item.nbytes for item in storages), default=addr)
    spans = [_storage_span(view.storages, item) for item in storages]
    spans += [*_guards(view, low, high), *_segments(view, addr), *_mappings(view, addr, low, high)]
    if not spans:
        return None
    return r.Neighborhood(
        addr=hex_addr(addr),
        what=what,
        spans=sorted(spans, key=lambda span: (int(span.start or "0", 16), -int(span.end or "0", 16))),
        storages_left_out=max(0, len(table) - len(storages)),
    )


def _focus(view: ProcessView) -> tuple[str, int] | None:
    fault, place = view.fault, view.place
    if fault is not None and fault.addr is not None and place is not None and place.kind not in _NOWHERE:
        return ("fault", place.addr) if place.addr >= NEAR_NULL_BYTES else None
    for graph in broken_graphs(view.space.snapshot.cuda_graphs):
        for item in broken_inputs(graph):
            return "cuda-graph-input", item.base
    return None


def _storages(view: ProcessView, addr: int) -> list[Storage]:
    """The storage of the fault, those that lay at the address, and the next ones of both states, if not far away."""
    table, crash, place = view.space.snapshot.storages, view.crash, view.place
    own = [place.storage] if place is not None and place.storage is not None and place.addr == addr else []
    hits = [hit.storage for hit in (crash.hits if crash else ())]
    at = sorted((item for item in table.around(addr) if covers(item, addr)), key=lambda item: item.order, reverse=True)
    beside = sorted(table.beside(addr, _EACH_SIDE), key=lambda item: distance_to(item, addr))
    guarded = sorted(
        (item.storage for item in (view.space.snapshot.guard.storages if view.space.snapshot.guard else ())),
        key=lambda item: distance_to(item, addr),
    )
    chosen = [*own, *hits, *at[:_COVERING], *table.live_beside(addr), *guarded[: 2 * _GUARDED_EACH_SIDE], *beside]
    return [item for item in dict.fromkeys(chosen) if item.nbytes and distance_to(item, addr) < _FAR_BYTES][:STORAGES]


def _storage_span(storages: StorageReports, item: Storage) -> r.MemorySpan:
    allocated, freed = storages.life(item)
    return r.MemorySpan(
        kind="storage",
        start=hex_addr(item.base),
        end=hex_addr(item.base + item.nbytes),
        state=item.state,
        device=item.device,
        names=list(storages.space.uses.names_of(item, item.base)[1]),
        allocated=None if item.older else allocated,
        freed=freed,
    )


def _guards(view: ProcessView, low: int, high: int) -> Iterator[r.MemorySpan]:
    """A page on either side of each guarded storage that is shown."""
    snapshot = view.space.snapshot
    guard, page = snapshot.guard, snapshot.page_bytes or 4096
    shown = [item for item in guard.storages if low <= item.storage.base < high] if guard is not None else []
    pages = dict.fromkeys(at for item in shown for at in (item.low - page, item.high))
    inside = {item.low for item in shown}
    for start in sorted(pages)[:OTHERS]:
        if start not in inside:
            yield r.MemorySpan(
                kind="guard", start=hex_addr(start), end=hex_addr(start + page), says="a guard of guard mode"
            )


def _segments(view: ProcessView, addr: int) -> Iterator[r.MemorySpan]:
    """Memory of a device's allocator around the address."""
    for item in view.space.snapshot.segments:
        if item.base <= addr < item.base + item.nbytes:
            yield r.MemorySpan(
                kind="segment",
                start=hex_addr(item.base),
                end=hex_addr(item.base + item.nbytes),
                state="live" if item.live else "freed",
                device=f"cuda:{item.device}",
                says="memory that the allocator had from the driver",
            )


def _mappings(view: ProcessView, addr: int, low: int, high: int) -> Iterator[r.MemorySpan]:
    """Mappings in the range of the storages, the nearest first; the next ones of the address in any case."""
    crash = view.crash
    if crash is None:
        return
    here = view.space.regions.at(addr)
    if here is not None and here.kind == "unmapped" and here.start is not None and here.end is not None:
        yield r.MemorySpan(kind=here.kind, start=hex_addr(here.start), end=hex_addr(here.end), says=here.words)
    ordered = sorted(crash.mappings, key=lambda item: _gap(item, addr))
    near = [item for n, item in enumerate(ordered) if n < 2 or (item.start < high and item.end > low)]
    for item in near[:OTHERS]:
        region = view.space.regions.at(item.start)
        yield r.MemorySpan(
            kind=region.kind if region else "anonymous",
            start=hex_addr(item.start),
            end=hex_addr(item.end),
            says=region.words if region else item.path or "anonymous memory",
            permissions=item.permissions,
        )


def _gap(item: Mapping, addr: int) -> int:
    return max(item.start - addr, addr - item.end + 1, 0)
