"""The journal: entries that are never overwritten, and the call site of every `site_id`.

Damage is survived by searching for the next entry: each starts with JOURNAL_MAGIC at a multiple of 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode
from pytracer.blackbox.schema import Entry
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.journal_entries import decode_entry, entry_name, seen_group
from pytracer.decode.symbols.demangle import node_name
from pytracer.decode.symbols.line_table import line_of
from pytracer.decode.types.journal import AnyFact, Fact, SeenGroup
from pytracer.decode.types.storages import CallSite, PythonFrame

INTERNED = frozenset({Entry.CODE, Entry.NODE, Entry.SITE, Entry.STACK, Entry.SCOPE, Entry.NAME, Entry.KERNEL})
NO_SEQUENCE_NR = 0xFFFFFFFF  # AccumulateGrad and other nodes without a number
_HEADER = struct.Struct("<HHIQII")
_MAGIC = struct.pack("<H", schema.JOURNAL_MAGIC)
_HIGHEST_KIND = 1024  # of an entry found by searching: payload bytes may look like the magic
_NOBODY = CallSite()
_TABLE_BYTES = 16 << 20  # of line tables in all: they are walked byte by byte for each place
_MOST_PLACES = 1024  # of a stack; recorders write 32


class RawEntry(NamedTuple):
    """One complete entry; `offset` is from the start of the journal."""

    offset: int
    kind: int
    mono_ns: int
    epoch: int
    payload: bytes


@dataclass(frozen=True)
class Code:
    """A CODE entry; `torch`: the file belongs to torch itself."""

    function: str
    file: str
    python_minor: int
    first_line: int
    table: bytes
    torch: bool


class Journal:
    """The entries of one recording, and the meaning of `site_id` values."""

    def __init__(self, box: BoxFile) -> None:
        """Finds the entries; adds damage to `box`."""
        self._box = box
        extent = box.region(schema.Region.JOURNAL)
        self._start = extent.offset if extent else 0
        used = box.header.journal_used
        content = box.content(extent, used or None)
        declared = extent.item_count if extent else 0
        if extent and used > extent.declared_count * extent.item_bytes:
            box.note(self._start, f"the journal says {used} bytes are used, it has {declared}")
        self._content = content
        self.torn = 0
        self.unknown_sites = 0
        self.entries: dict[int, RawEntry] = {e.offset: e for e in self._walk()}
        self._sites: dict[tuple[int, int], CallSite] = {}
        self._code: dict[int, Code | None] = {}
        self._lines: dict[tuple[int, int], PythonFrame | None] = {}
        self._table_bytes_left = _TABLE_BYTES

    def _walk(self) -> Iterator[RawEntry]:
        content, at = self._content, schema.JOURNAL_FIRST
        written = len(content.rstrip(b"\0"))
        while at + _HEADER.size <= len(content):
            magic, kind, nbytes, mono_ns, epoch, published = _HEADER.unpack_from(content, at)
            fits = magic == schema.JOURNAL_MAGIC and _HEADER.size <= nbytes <= len(content) - at
            if fits and published == 1:
                yield RawEntry(at, kind, mono_ns, epoch, content[at + _HEADER.size : at + nbytes])
                at += nbytes + -nbytes % 8
                continue
            if at >= written:
                self.torn += bool(self._box.header.journal_used)  # reserved, then the writer died
                return
            self.torn += 1
            self._box.note(self._start + at, "a journal entry was not finished")
            after = at + nbytes + -nbytes % 8
            known_end = fits and (after >= written or content.startswith(_MAGIC, after))
            at = after if known_end else self._resync(at + 8)

    def _resync(self, at: int) -> int:
        content = self._content
        while True:
            at = content.find(_MAGIC, at)
            if at < 0 or at + _HEADER.size > len(content):
                return len(content)
            if at % 8 == 0:
                _, kind, nbytes, _, _, published = _HEADER.unpack_from(content, at)
                if kind <= _HIGHEST_KIND and _HEADER.size <= nbytes <= len(content) - at and published <= 1:
                    return at
            at += 1

    # Facts

    def facts(self, but: Collection[Entry] = ()) -> tuple[AnyFact, ...]:
        """All entries but those of INTERNED and those that are not wanted, decoded, in the order of the file."""
        found = []
        for entry in self.entries.values():
            if entry.kind in INTERNED or entry.kind in but:
                continue
            name = entry_name(entry.kind)
            try:
                data = decode_entry(entry.kind, entry.payload)
            except (ValueError, struct.error, RecursionError, msgspec.MsgspecError) as error:
                self._box.note(self._start + entry.offset, f"the {name} entry cannot be read: {error}")
                continue
            found.append(Fact(entry.mono_ns, entry.epoch, name, data))
        return tuple(found)

    def mentions(self, text: str) -> bool:
        """Whether a text occurs anywhere, in one of Python's encodings of strings: a quick check."""
        return any(text.encode(code) in self._content for code in ("latin-1", "utf-16-le", "utf-32-le"))

    def files_since(self, mono_ns: int) -> Iterator[str]:
        """File names of the code objects that were interned at or after a moment."""
        for entry in self.entries.values():
            if entry.kind == Entry.CODE and entry.mono_ns >= mono_ns:
                code = self.code(entry.offset // 8)
                if code:
                    yield code.file

    # Who

    def site(self, site_id: int, where: int) -> CallSite:
        """The call site of a storage's (site_id, site_where) pair; an empty `CallSite` if the entry cannot be read."""
        if site_id == 0:
            return _NOBODY
        key = (site_id, where)
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = self._resolve(site_id, where)
        return found

    def note_unknown(self, site_ids: Iterable[int]) -> None:
        """Counts those that name no entry which can be read; storages are decoded later, or never."""
        for site_id in site_ids:
            entry = self.entries.get(site_id * 8)
            known = entry is not None and entry.kind in (Entry.CODE, Entry.NODE, Entry.SITE, Entry.STACK)
            self.unknown_sites += bool(site_id) and not known

    def _resolve(self, site_id: int, where: int) -> CallSite:
        entry = self.entries.get(site_id * 8)
        if entry is not None and entry.kind == Entry.CODE:
            return CallSite(python=self.frame(site_id, where))
        if entry is not None and entry.kind == Entry.NODE:
            return CallSite(node=self.node(site_id), node_sequence_nr=_sequence_nr(where))
        if entry is not None and entry.kind == Entry.SITE and len(entry.payload) >= schema.SITE_ENTRY.nbytes:
            site = decode(raw.SiteEntry, entry.payload)
            node = self.node(site.node_id)
            return CallSite(
                python=self.frame(site.code_id, site.code_offset),
                caller=self.frame(site.caller_id, site.caller_offset),
                node=node,
                node_sequence_nr=_sequence_nr(where) if node else None,
            )
        if entry is not None and entry.kind == Entry.STACK and len(entry.payload) >= schema.STACK_ENTRY.nbytes:
            return self._stack(entry.payload, where)
        return _NOBODY

    def _stack(self, payload: bytes, where: int) -> CallSite:
        head = decode(raw.StackEntry, payload)
        size = schema.STACK_ENTRY.nbytes
        count = min(head.count, (len(payload) - size) // schema.STACK_PLACE.nbytes, _MOST_PLACES)
        places = struct.iter_unpack("<II", payload[size : size + count * schema.STACK_PLACE.nbytes])
        known = [(self.code(code_id), self.frame(code_id, offset)) for code_id, offset in places if code_id]
        frames = tuple(frame for _, frame in known if frame is not None)
        outside = next((frame for code, frame in known if code is not None and not code.torch), None)
        node = self.node(head.node_id)
        return CallSite(
            python=frames[0] if frames else None,
            caller=outside if frames and outside is not frames[0] else None,
            node=node,
            node_sequence_nr=_sequence_nr(where) if node else None,
            stack=frames,
        )

    def groups_seen(self) -> Iterator[tuple[int, SeenGroup]]:
        """GROUP_SEEN entries and their ids."""
        for entry in self.entries.values():
            if entry.kind == Entry.GROUP_SEEN and len(entry.payload) >= schema.GROUP_ENTRY.nbytes:
                yield entry.offset // 8, seen_group(entry.payload)

    def scope(self, scope_id: int) -> str | None:
        """What a thread was busy with; None for 0 and what cannot be read."""
        return self._text(scope_id, Entry.SCOPE)

    def name(self, name_id: int) -> str | None:
        """Part of a name of a module or tensor; None for 0 and what cannot be read."""
        return self._text(name_id, Entry.NAME)

    def kernel(self, name_id: int) -> str | None:
        """The mangled name of a kernel of a device; None if there is none."""
        return self._text(name_id, Entry.KERNEL)

    def _text(self, number: int, kind: Entry) -> str | None:
        entry = self.entries.get(number * 8) if number else None
        return entry.payload.decode("utf-8", "replace") if entry is not None and entry.kind == kind else None

    def node(self, site_id: int) -> str | None:
        """The class name of an autograd node, shortened."""
        entry = self.entries.get(site_id * 8) if site_id else None
        if entry is None or entry.kind != Entry.NODE:
            return None
        return node_name(entry.payload.split(b"\0", 1)[0].decode("utf-8", "replace"))

    def frame(self, site_id: int, offset: int) -> PythonFrame | None:
        """A CODE entry and an instruction offset as a frame."""
        if site_id == 0:
            return None
        key = (site_id, offset)
        if key not in self._lines:
            code = self.code(site_id)
            signed = offset - (1 << 32) if offset >> 31 else offset
            line = None
            if code is not None and (left := self._table_bytes_left - len(code.table)) >= 0:
                self._table_bytes_left = left
                line = line_of(code.table, code.python_minor, code.first_line, signed)
            self._lines[key] = PythonFrame(code.function, code.file, line) if code else None
        return self._lines[key]

    def code(self, site_id: int) -> Code | None:
        """A CODE entry."""
        if site_id not in self._code:
            entry = self.entries.get(site_id * 8)
            readable = entry is not None and entry.kind == Entry.CODE
            self._code[site_id] = decode_code(entry.payload) if entry is not None and readable else None
        return self._code[site_id]


def _sequence_nr(where: int) -> int | None:
    return None if where == NO_SEQUENCE_NR else where


def text_of_kind(data: bytes, kind: int) -> str:
    """The characters of a Python string as they lie in memory, 1, 2 or 4 bytes each."""
    return data.decode({2: "utf-16-le", 4: "utf-32-le"}.get(kind, "latin-1"), "replace")


def decode_code(payload: bytes) -> Code | None:
    """The payload of a CODE entry; None when its sizes do not add up."""
    size = schema.CODE_ENTRY.nbytes
    if len(payload) < size:
        return None
    head = decode(raw.CodeEntry, payload)
    name_end = size + head.name_nbytes
    file_end = name_end + head.file_nbytes
    table_end = file_end + head.table_nbytes
    if table_end > len(payload):
        return None
    return Code(
        function=text_of_kind(payload[size:name_end], head.name_kind),
        file=text_of_kind(payload[name_end:file_end], head.file_kind),
        python_minor=head.python_minor,
        first_line=head.first_line,
        table=payload[file_end:table_end],
        torch=bool(head.flags & 1),
    )
