"""The neighbourhood of an address as a figure to scale, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytracer._text import count_words, size_words
from pytracer.render.address import origin_words
from pytracer.render.frames import place_words
from pytracer.render.html.figure import Figure, Item, Lane, packed
from pytracer.report import job as r

_LEGEND = (
    ("live", "live storage"),
    ("freed", "freed storage"),
    ("named", "with a name: bucket, parameter, buffer"),
    ("guard", "guard"),
    ("mapping", "other memory"),
    ("unmapped", "not mapped"),
)
_WHAT = {"fault": "fault", "cuda-graph-input": "input of the CUDA graph"}
_ALONE_BYTES = 1 << 20  # on either side of an address without storages
_GUARDS = ("guard", "stack-guard", "guard-pool")


@dataclass(frozen=True)
class Row:
    """One line of the table. `hit`: the address lies in it."""

    start: str
    size: str
    what: str
    names: str
    allocated: str
    freed: str
    hit: bool


@dataclass(frozen=True)
class MemoryView:
    """What the page shows of one process's memory."""

    figure: Figure
    rows: tuple[Row, ...]


def memory_view(process: r.ProcessReport, name: str) -> MemoryView | None:
    """The figure and the table; None if the report has no neighbourhood."""
    found = process.neighborhood
    spans = [item for item in (found.spans if found else None) or [] if item.start and item.end]
    if found is None or found.addr is None or not spans:
        return None
    addr = int(found.addr, 16)
    begin, end = _extent(spans, addr)
    origin = begin
    items = [(span, _item(span, origin, end)) for span in spans if _start(span) < end and _end(span) > begin]
    low, high = 0, end - begin
    left_out = found.storages_left_out or 0
    figure = Figure(
        name=name,
        title="Memory around the address, to scale",
        unit="bytes",
        origin=origin,
        low=low,
        high=high,
        first=_first_window(spans, addr - origin, origin),
        lanes=tuple(_lanes(items)),
        point=addr - origin,
        point_name=f"{_WHAT.get(found.what or '', found.what or 'address')} {found.addr}",
        legend=_LEGEND,
        left_out=f"{count_words(left_out, 'storage')} elsewhere are not shown" if left_out else "",
    )
    return MemoryView(figure, tuple(_row(span, addr) for span in spans))


def _extent(spans: Sequence[r.MemorySpan], addr: int) -> tuple[int, int]:
    """What is drawn: all storages and the address; of other memory only what lies among them."""
    storages = [span for span in spans if span.kind == "storage"]
    low, high = min([addr, *map(_start, storages)]), max([addr + 1, *map(_end, storages)])
    margin = max((high - low) // 50, 64) if storages else _ALONE_BYTES
    return max(0, low - margin), high + margin


def _start(span: r.MemorySpan) -> int:
    return int(span.start or "0", 16)


def _end(span: r.MemorySpan) -> int:
    return int(span.end or "0", 16)


def _item(span: r.MemorySpan, origin: int, high: int) -> Item:
    label = _label(span) if span.kind == "storage" else span.says or span.kind or ""
    begin, end = max(_start(span), origin) - origin, min(_end(span), high) - origin
    return Item(begin, end, _class(span), label, tuple(_details(span)))


def _label(span: r.MemorySpan) -> str:
    """The best name of a storage, else where it was allocated."""
    if span.names:
        return span.names[0]
    frame = span.allocated.place if span.allocated is not None else None
    return place_words(frame) if frame is not None else ""


def _class(span: r.MemorySpan) -> str:
    if span.kind == "storage":
        return f"{span.state or 'live'}{' named' if span.names else ''}"
    if span.kind in _GUARDS:
        return "guard"
    return "unmapped" if span.kind in ("unmapped", "reserved") else "mapping"


def _details(span: r.MemorySpan) -> Iterable[str]:
    size = size_words(_end(span) - _start(span))
    device = f" on {span.device}" if span.device not in (None, "cpu") else ""
    yield f"{_what(span)} of {size}{device}, {span.start} to {span.end}"
    names = span.names or []
    if names:
        yield ", ".join(names[:4]) + (f" and {len(names) - 4} more names" if len(names) > 4 else "")
    if span.says:
        yield span.says
    if span.kind == "storage":
        yield f"allocated {_origin(span.allocated) or 'before recording started, or not recorded'}"
        if span.freed is not None:
            yield f"freed {_origin(span.freed)}"


def _what(span: r.MemorySpan) -> str:
    if span.kind == "storage":
        on_device = span.device not in (None, "cpu")
        return f"{span.state or ''} {'block' if on_device else 'storage'}".strip()
    return (span.kind or "memory").replace("-", " ")


def _origin(origin: r.Origin | None) -> str:
    return origin_words(origin, None) if origin is not None else ""


def _lanes(items: Sequence[tuple[r.MemorySpan, Item]]) -> Iterable[Lane]:
    """Live ones, freed ones by how recently they were freed, and everything that is no storage."""

    def of(*wanted: str) -> tuple[Item, ...]:
        return tuple(item for span, item in items if _group(span) in wanted)

    for name, note, kind in (
        ("live", "storages at the end", "live"),
        ("freed", "storages, some at the same place", "freed"),
        ("guards", "pages without access", "guard"),
        ("other", "mappings and gaps", "other"),
    ):
        found = of(kind)
        if found:
            yield Lane(name, note, kind, packed(found))


def _group(span: r.MemorySpan) -> str:
    if span.kind == "storage":
        return "freed" if span.state == "freed" else "live"
    return "guard" if span.kind in _GUARDS else "other"


def _first_window(spans: Sequence[r.MemorySpan], point: int, origin: int) -> tuple[int, int]:
    """The storages at the address, with as much beside them; else from the nearest ones to the address."""
    storages = [(_start(span) - origin, _end(span) - origin) for span in spans if span.kind == "storage"]
    at = [item for item in storages if item[0] <= point < item[1]]
    near = at or sorted(storages, key=lambda item: max(item[0] - point, point - item[1] + 1, 0))[:2]
    low, high = min([point, *(begin for begin, _ in near)]), max([point + 1, *(end for _, end in near)])
    if not near:
        return max(point - _ALONE_BYTES, 0), point + _ALONE_BYTES
    margin = max((high - low) // 4, 64)
    return max(low - margin, 0), high + margin


def _row(span: r.MemorySpan, addr: int) -> Row:
    names = span.names or []
    return Row(
        start=span.start or "",
        size=size_words(_end(span) - _start(span)),
        what=_what(span),
        names=(names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")) if names else span.says or "",
        allocated=_origin(span.allocated),
        freed=_origin(span.freed),
        hit=_start(span) <= addr < _end(span),
    )
