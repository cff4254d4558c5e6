"""The answer of `pytracer where` as text: a sentence for each address, then a row for each fact."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from pytracer._printable import printable
from pytracer._text import time_words
from pytracer.render.address import life_words, neighbor_words, origin_words
from pytracer.render.holders import holder_lines
from pytracer.render.printing import Hanging, printed, rows_table
from pytracer.render.style import Style
from pytracer.render.wrappers import cut
from pytracer.report.job import Region
from pytracer.report.where import AddressReport, WhereProcess, WhereReport

_NAMES = 6
_POINTERS = 8


def render_where(report: WhereReport, style: Style | None = None) -> str:
    """All answers, ending with a newline."""
    style = style or Style()
    return printed(Group(*_blocks(printable(report))), style)


def _blocks(report: WhereReport) -> Iterator[RenderableType]:
    yield Hanging(Text(_process(report.process or WhereProcess()), style="dim"))
    for item in report.addresses or []:
        yield Text()
        yield Hanging(_sentence(item))
        yield rows_table((label, Text(words)) for label, words in _rows(item))
    if report.missing:
        yield Text()
        yield rows_table(("missing", Text(words)) for words in report.missing)


def _process(process: WhereProcess) -> str:
    who = f"rank {process.rank}, " if process.rank is not None else ""
    words = f"{who}pid {process.pid}" + (f" on {process.host}" if process.host else "")
    if process.signal is not None and process.signal.name:
        words += f", died of {process.signal.name}"
        words += f" {time_words(process.ended)} into the run" if process.ended is not None else ""
    elif process.status:
        words += f", {process.status}"
    return f"{words} (chosen: {process.chosen})" if process.chosen else words


def _sentence(item: AddressReport) -> Text:
    asked = f"{item.asked} = " if item.asked != item.addr else ""
    text = Text(asked).append(item.addr or "?", style="bold")
    text.append(f" {item.says or 'is in nothing that was recorded'}")
    region = item.region if item.storage is None else None
    if region is None or not region.permissions or region.kind == "anonymous":  # its own words have the permissions
        return text
    return text.append(f" ({region.permissions})")


def _rows(item: AddressReport) -> Iterator[tuple[str, str]]:
    storage, bucket = item.storage, item.bucket
    if storage is not None:
        if bucket is not None and bucket.parameters:
            yield "bucket", f"of {cut(bucket.parameters, _NAMES)}"
        elif item.fsdp is not None and item.fsdp.parameters:
            yield "unit", f"{item.fsdp.state or 'state unknown'}, of {cut(item.fsdp.parameters, _NAMES)}"
        elif storage.names and len(storage.names) > 1:
            yield "names", cut(storage.names, _NAMES)
        if storage.allocated is not None:
            yield "alloc", origin_words(storage.allocated, None)
        if storage.freed is not None:
            yield "freed", origin_words(storage.freed, None)
    for position, life in enumerate(item.earlier_lives or []):
        yield "earlier" if position == 0 else "", life_words(life)
    told = storage.base if storage is not None else None
    others = [near for near in item.neighbors or [] if near.storage is not None and near.storage.base != told]
    for position, near in enumerate(others):
        yield "beside" if position == 0 else "", neighbor_words(near)
    if storage is not None and item.region is not None:
        yield "memory", _region(item.region)
    for position, words in enumerate(_holders(item)):
        yield "held by" if position == 0 else "", words


def _holders(item: AddressReport) -> Iterator[str]:
    """Variables of the program, then registers, memory and collectives."""
    if item.storage is not None:
        yield from holder_lines(item.storage)
    pointers = item.pointed_by or []
    yield from (f"{pointer.what} {pointer.says}" for pointer in pointers[:_POINTERS])
    if len(pointers) > _POINTERS:
        yield f"... {len(pointers) - _POINTERS} more in --json"


def _region(region: Region) -> str:
    """The region and its permissions."""
    words, permissions = region.says or "?", region.permissions
    return words if not permissions or f"({permissions})" in words else f"{words} ({permissions})"
