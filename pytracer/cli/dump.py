"""`pytracer dump FILE`: the raw contents of one recording, without conclusions.

`collect` builds plain data; the text and the JSON are two views of that.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import msgspec

from pytracer._errors import UsageError
from pytracer._printable import one_line
from pytracer.blackbox.schema import Entry, Region
from pytracer.cli.terminal import show, show_json
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.journal import Journal
from pytracer.decode.recording.journal_entries import plain_entry
from pytracer.decode.recording.reader import read_box
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.decode.types.snapshot import (
    CallSite,
    Collective,
    Event,
    Guarded,
    Moment,
    NativeFrame,
    PythonFrame,
    Snapshot,
    Storage,
)
from pytracer.decode.types.storage_table import StorageTable
from pytracer.render.json import json_text

SECTIONS = (
    *("header", "regions", "counters", "threads", "journal", "records", "storages", "guard", "guarded"),
    *("crash", "mappings", "damage"),
)
MOST_ITEMS = 1 << 16
OF_COLLECTIVES = (
    *("op", "sequence_nr", "group", "state", "sizes", "dtype", "nbytes", "buffer_addr", "storage_addr"),
    *("root", "peer", "tag", "reduce_op"),
)
_Object = Mapping[str, object]  # one of JSON
ON_REQUEST = frozenset({"mappings", "guarded"})  # hundreds of lines that few readers need
ADDRESSES = frozenset(
    {
        *("base", "pc", "sp", "pthread", "start", "end", "low", "high", "pools", "stack", "storages", "registers"),
        *("offset_in_image", "bias"),
    }
)

EXAMPLES = """\b
Examples:
  pytracer dump runs/latest/boxes/node0.4242.blackbox
  pytracer dump node0.4242.blackbox --kind records --limit 20
  pytracer dump runs/latest --flight-recorder dumps
  pytracer dump node0.4242.blackbox --kind storages --json | jq '.storages[] | select(.state == "freed")'
"""


@click.command(name="dump", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(path_type=str))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(SECTIONS), help="Print only this part; may be repeated."
)
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", default=MOST_ITEMS, show_default=True,
    help="Print at most the last N items of each list.",
)  # fmt: skip
@click.option(
    "--flight-recorder", "flight", metavar="DIR", type=click.Path(path_type=Path),
    help="Write the collectives of all ranks of a run into DIR, as dumps of torch's Flight Recorder.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the dumps in DIR.")
def command(file: str, as_json: bool, kinds: tuple[str, ...], limit: int, flight: Path | None, force: bool) -> None:
    """Print the raw contents of one recording: header, journal, records, storages, crash.

    Times count from the creation of the file, oldest first. The memory map and the storages of guard mode are printed
    with `--kind mappings`, `--kind guarded`, and `--json`. `pytracer inspect` explains the contents.
    """
    if flight is not None:
        from pytracer.cli.flight import write_flight_recorder

        if as_json or kinds or limit != MOST_ITEMS:
            raise UsageError("--flight-recorder prints nothing", "leave out --json, --kind and --limit")
        for line in write_flight_recorder(file, flight, force=force):
            show(one_line(line) + "\n")
        return
    everything = SECTIONS if as_json else tuple(s for s in SECTIONS if s not in ON_REQUEST)
    content = collect(file, kinds or everything, limit)
    if as_json:
        show_json(json_text(content))
        return
    show("".join(f"{line}\n" for line in text(content)))


def collect(path: str, kinds: Sequence[str] = SECTIONS, limit: int = MOST_ITEMS) -> dict[str, Any]:
    """The parts of a recording as plain data: numbers, strings, lists and dicts; addresses are hex strings.

    Args:
        path: the recording.
        kinds: which of `SECTIONS`.
        limit: keep the last items of each list; `left_out` counts the others.

    Raises:
        InputError: as `read_box`.
    """
    snapshot = symbolize([read_box(path)])[0]
    box = BoxFile(path)
    blocks: dict[str, Callable[[], object]] = {
        "header": lambda: {
            k: v for k, v in msgspec.structs.asdict(box.header).items() if not k.startswith(("reserved", "magic"))
        },
        "counters": lambda: snapshot.counts,
        "guard": lambda: _guard(snapshot),
        "crash": lambda: _crash(snapshot),
    }
    lists: dict[str, Callable[[], Sequence[object]]] = {
        "regions": lambda: list(_regions(box)),
        "threads": lambda: [msgspec.structs.asdict(t) for t in snapshot.threads],
        "journal": lambda: list(_journal(box, snapshot)),
        "records": lambda: [
            {
                "time_ns": e.mono_ns - snapshot.created_mono_ns,
                "tid": e.tid,
                "thread": e.thread,
                "kind": e.kind,
                **_data(e),
            }
            for e in snapshot.events
        ],
        "storages": lambda: [_storage(s, snapshot.created_mono_ns) for s in _last(snapshot.storages, limit)],
        "guarded": lambda: (
            [_guarded(g, snapshot.created_mono_ns) for g in snapshot.guard.storages] if snapshot.guard else []
        ),
        "mappings": lambda: [msgspec.structs.asdict(m) for m in (snapshot.crash.mappings if snapshot.crash else ())],
        "damage": lambda: [msgspec.structs.asdict(d) for d in snapshot.damage],
    }
    out: dict[str, object] = {"schema": "pytracer-dump", "version": 1, "file": os.path.basename(path)}
    left_out: dict[str, int] = {}
    for kind in SECTIONS:
        if kind not in kinds:
            continue
        if kind in blocks:
            out[kind] = _plain(blocks[kind]())
            continue
        items = lists[kind]()
        count = len(snapshot.storages) if kind == "storages" else len(items)
        items = items[max(0, len(items) - limit) :]
        if count > len(items):
            left_out[kind] = count - len(items)
        out[kind] = _plain(items)
    return {**out, "left_out": left_out}


def _data(event: Event) -> dict[str, object]:
    if isinstance(event.data, Collective):
        return {name: getattr(event.data, name) for name in OF_COLLECTIVES}
    return msgspec.structs.asdict(event.data)


def _regions(box: BoxFile) -> Iterator[dict[str, object]]:
    known = {r.value: r.name for r in Region}
    for e in box.extents:
        item = {"kind": known.get(e.kind, f"UNKNOWN_{e.kind}"), "offset": e.offset, "nbytes": e.nbytes}
        yield {**item, "item_bytes": e.item_bytes, "item_count": e.item_count, "first_thread": e.first_thread}


def _journal(box: BoxFile, snapshot: Snapshot) -> Iterator[dict[str, object]]:
    journal = Journal(box)
    facts = iter(journal.facts())
    fact = next(facts, None)
    known = {e.value: e.name for e in Entry}
    for entry in journal.entries.values():
        kind = known.get(entry.kind, f"UNKNOWN_{entry.kind}")
        site_id = entry.offset // 8
        data: object = None
        if entry.kind == Entry.CODE:
            code = journal.code(site_id)
            data = code and {"function": code.function, "file": code.file, "first_line": code.first_line}
        elif entry.kind in (Entry.NAME, Entry.SCOPE):
            data = journal.name(site_id) if entry.kind == Entry.NAME else journal.scope(site_id)
        elif entry.kind in (Entry.NODE, Entry.SITE, Entry.STACK):
            data = journal.node(site_id) if entry.kind == Entry.NODE else _site(journal.site(site_id, 0))
        elif fact is not None and (fact.mono_ns, fact.epoch, fact.kind) == (entry.mono_ns, entry.epoch, kind):
            data = plain_entry(entry.kind, entry.payload)
            fact = next(facts, None)
        time_ns = entry.mono_ns - snapshot.created_mono_ns
        yield {"time_ns": time_ns, "epoch": entry.epoch, "kind": kind, "site_id": site_id, "data": data}


def _last(storages: StorageTable, limit: int) -> Sequence[Storage]:
    """The latest storages; of millions those at the end of the table: to sort them all takes minutes."""
    if len(storages) > 4 * MOST_ITEMS:
        return storages[max(0, len(storages) - limit) :]
    return sorted(storages, key=_when)


def _when(storage: Storage) -> tuple[int, int]:
    return storage.order


def _frame(frame: PythonFrame | None) -> str | None:
    return None if frame is None else f"{frame.function} ({frame.file}:{'?' if frame.line is None else frame.line})"


def _site(site: CallSite) -> dict[str, object]:
    found: dict[str, object] = {"python": _frame(site.python), "caller": _frame(site.caller), "node": site.node}
    found["node_sequence_nr"] = site.node_sequence_nr
    found["stack"] = [_frame(frame) for frame in site.stack] or None
    return {k: v for k, v in found.items() if v is not None}


def _storage(s: Storage, created_ns: int) -> dict[str, object]:
    def end(moment: Moment | None, site: CallSite | None, tid: int | None) -> dict[str, object] | None:
        if moment is None or site is None:
            return None
        time_ns = None if moment.mono_ns is None else moment.mono_ns - created_ns
        return {"epoch": moment.epoch, "time_ns": time_ns, "step": moment.step, "tid": tid, "by": _site(site)}

    return {
        "base": s.base,
        "nbytes": s.nbytes,
        "state": s.state,
        "allocated": end(s.allocated, s.allocated_by, s.allocated_thread),
        "freed": end(s.freed, s.freed_by, s.freed_thread),
    }


def _guard(snapshot: Snapshot) -> dict[str, object] | None:
    guard = snapshot.guard
    if guard is None:
        return None
    found = {f.name: getattr(guard, f.name) for f in dataclasses.fields(guard) if f.name != "storages"}
    return {**found, "damaged": [_guarded(item, snapshot.created_mono_ns) for item in guard.damaged]}


def _guarded(item: Guarded, created_ns: int) -> dict[str, object]:
    found = {"number": item.number, "low": item.low, "high": item.high, **_storage(item.storage, created_ns)}
    if item.damage is not None:
        found["damage"] = msgspec.structs.asdict(item.damage)
    return found


def _crash(snapshot: Snapshot) -> dict[str, object] | None:
    crash = snapshot.crash
    if crash is None:
        return None
    left_out = (
        "code_pointers",
        "python_threads",
        "native_stack",
        "python_stack",
        "hits",
        "mappings",
        "mono_ns",
        "step_ns",
    )
    found = {f.name: getattr(crash, f.name) for f in dataclasses.fields(crash) if f.name not in left_out}
    found["time_ns"] = crash.mono_ns - snapshot.created_mono_ns
    found["step_ns"] = {name: ns - crash.mono_ns for name, ns in crash.step_ns.items()}
    found["python_stack"] = [_frame(f) for f in crash.python_stack]
    found["python_threads"] = [
        {"pthread": pthread, "stack": [_frame(f) for f in frames]} for pthread, frames in crash.python_threads
    ]
    found["native_stack"] = [_native(f) for f in crash.native_stack]
    found["threads"] = [
        {f.name: getattr(t, f.name) for f in dataclasses.fields(t)}
        | {"native_stack": [_native(f) for f in t.native_stack]}
        for t in crash.threads
    ]
    found["hits"] = [{"kind": h.kind, **_storage(h.storage, snapshot.created_mono_ns)} for h in crash.hits]
    return found


def _native(f: NativeFrame) -> dict[str, object]:
    return {"pc": f.pc, "image": f.image, "offset_in_image": f.offset, "function": f.function, "found": f.found}


def _plain(value: object, key: str = "") -> object:
    """Dataclasses and structs to dicts, bytes to hex, addresses to "0x..."."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v, key if key in ADDRESSES else str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, key) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    is_address = key in ADDRESSES or key == "addr" or key.endswith("_addr")
    return hex(value) if is_address and isinstance(value, int) and not isinstance(value, bool) else value


# Text


def text(content: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a dump for people."""
    yield one_line(content["file"])
    for kind in SECTIONS:
        if kind not in content:
            continue
        value, left_out = content[kind], content["left_out"].get(kind, 0)
        yield ""
        if not isinstance(value, list):
            yield kind
            yield from ("  " + one_line(line) for line in _block(value))
            continue
        yield f"{kind} ({len(value) + left_out})"
        if left_out:
            yield f"  ... {left_out} before these"
        for item in value:
            yield "  " + one_line(_LINES.get(kind, _pairs)(item))


def _block(value: _Object | None) -> Iterator[str]:
    if value is None:
        yield "none"
        return
    for name, item in value.items():
        if isinstance(item, list) and item:
            yield f"{name}:"
            yield from ("  " + (i if isinstance(i, str) else _short(i)) for i in item)
        elif name.endswith("_wall_ns") and isinstance(item, int) and item:
            yield f"{name} {item} ({datetime.fromtimestamp(item / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC)"
        elif item not in (None, "", [], {}):
            yield f"{name} {_short(item)}"


def _pairs(item: _Object) -> str:
    return " ".join(f"{k}={_short(v)}" for k, v in item.items() if v not in (None, "", [], {}))


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_short(v) for v in value) + "]"
    return str(value)


def _time(ns: object) -> str:
    return f"{ns / 1e6:+14.3f}" if isinstance(ns, int) else f"{'?':>14}"


def _record(item: _Object) -> str:
    rest = {k: v for k, v in item.items() if k not in ("time_ns", "tid", "thread", "kind")}
    return f"{_time(item['time_ns'])} ms  {item['tid']} {item['thread']}  {item['kind']}  {_pairs(rest)}"


def _entry(item: _Object) -> str:
    data = "unreadable" if item["data"] is None else _short(item["data"])
    return f"{_time(item['time_ns'])} ms  #{item['site_id']} epoch {item['epoch']}  {item['kind']}  {data}"


def _life(item: _Object) -> str:
    line = f"{item['base']} {item['nbytes']:>12} {item['state']:<5}"
    for name in ("allocated", "freed"):
        end = item[name]
        if isinstance(end, dict):
            step = "" if end["step"] is None else f" step {end['step']}"
            line += f"  {name}{_time(end['time_ns'])} ms{step} by {_pairs(end['by']) or 'unknown'}"
    return line


def _mapping(item: _Object) -> str:
    return f"{item['start']}-{item['end']} {item['permissions']} {item['offset']:#x} {item['path']}"


def _damage(item: _Object) -> str:
    return f"{item['file']} at byte {item['offset']}: {item['what']}"


_LINES: dict[str, Callable[[_Object], str]] = {
    "records": _record,
    "journal": _entry,
    "storages": _life,
    "guarded": _life,
    "mappings": _mapping,
    "damage": _damage,
}
