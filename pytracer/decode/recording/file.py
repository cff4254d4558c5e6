"""One recording as bytes: header, region directory, and reads that stay inside the file.

Nothing here knows the meaning of a region. Every number from the file is checked before use; what does not fit is
reported as `Damage` and left out. Only the requested regions are read.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from pytracer._errors import InputError
from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import T, decode, layout_of
from pytracer.decode.files import open_regular, regular_file
from pytracer.decode.types.snapshot import Damage

_LARGEST_FILE = 1 << 29  # a recording is 4 to 16 MB, with grown storage tables under 100; this is something else
_DIRECTORY_OFFSET = schema.FILE_HEADER.nbytes
_MOST_DAMAGE = 200
# How much of a region is looked at: what recorders write, and room for later ones. A region that announces more was
# made to keep the reader busy. The others grow with the program; each has a bound of its own where it is decoded.
_SPARE = 4
_LARGEST_KNOWN = (schema.Region.JOURNAL, schema.Region.GUARDED, schema.Region.NAMES)  # no recorder makes larger ones
_ROOM: dict[int, int] = {
    schema.Region.JOURNAL: schema.JOURNAL_BYTES,
    schema.Region.EPOCHS: schema.EPOCH_SLOTS * schema.EPOCH.nbytes,
    schema.Region.THREADS: schema.THREADS_PER_CHUNK * schema.THREAD.nbytes,
    schema.Region.RECORDS: schema.THREADS_PER_CHUNK * schema.RECORDS_PER_THREAD * schema.RECORD_BYTES,
    schema.Region.COLLECTIVES: schema.COLLECTIVES * schema.COLLECTIVE_SLOT.nbytes,
    schema.Region.SCOPED_TENSORS: schema.SCOPED_TENSORS * schema.SCOPED_TENSOR.nbytes,
    schema.Region.EXTERNAL_ALLOCATIONS: schema.EXTERNAL_ALLOCATIONS * schema.EXTERNAL_ALLOCATION.nbytes,
    schema.Region.DEVICE_BLOCKS: (1 << schema.DEVICE_BLOCK_SLOTS_LOG2) * schema.DEVICE_BLOCK.nbytes,
    schema.Region.DEVICE_FREED: schema.DEVICE_FREED * schema.DEVICE_BLOCK.nbytes,
    schema.Region.DEVICE_SEGMENTS: schema.DEVICE_SEGMENTS * schema.DEVICE_SEGMENT.nbytes,
    schema.Region.CUDA_GRAPHS: schema.CUDA_GRAPHS * schema.CUDA_GRAPH.nbytes,
    schema.Region.GRAPH_INPUTS: schema.GRAPH_INPUTS * schema.GRAPH_INPUT.nbytes,
    schema.Region.GUARDED: (1 << 16) * schema.GUARDED_STORAGE.nbytes,
    schema.Region.NAMES: (schema.NAME_SLOTS << 7) * schema.NAME_SLOT.nbytes,
    schema.Region.GUARD: schema.GUARD_REGION.nbytes,
    **{int(kind): items * (item.nbytes if item else 1) for kind, item, items in schema.CRASH_REGIONS},
}
_GIVEN_BACK = (
    *(schema.Region.EPOCHS, schema.Region.FREED_STORAGES, schema.Region.STORAGES, schema.Region.EXTERNAL_ALLOCATIONS),
    *(schema.Region.SCOPED_TENSORS, schema.Region.NAMES),
)


@dataclass(frozen=True)
class Extent:
    """One region, clipped to the file: `[offset, offset + nbytes)` can be read."""

    kind: int
    item_bytes: int
    offset: int
    nbytes: int
    item_count: int
    first_thread: int
    declared_count: int


class BoxFile:
    """The bytes of one file, its header and regions; collects damage."""

    def __init__(self, path: str | os.PathLike[str], only: Collection[schema.Region] | None = None) -> None:
        """Reads the file, or the regions `only` of it: the others are treated as missing.

        Raises:
            InputError: missing, empty, a directory, unreadable, foreign, or of a newer major version.
        """
        self.path = os.fspath(path)
        self.name = os.path.basename(self.path)
        self._only = only
        self.data: mmap.mmap = _read(self.path, None if only is None else schema.HEADER_BYTES)
        self.damage: list[Damage] = []
        self.damage_left_out = 0
        self._check_identity()
        header = self.data[: schema.FILE_HEADER.nbytes]
        self.header = decode(raw.FileHeader, header.ljust(schema.FILE_HEADER.nbytes, b"\0"))
        self.extents = self._regions() if len(header) == schema.FILE_HEADER.nbytes else []
        self.unread = [] if only is None else [extent for extent in self.extents if extent.kind not in only]
        self.extents = [extent for extent in self.extents if extent not in self.unread]
        if only is not None:
            self._fetch(self.extents)
        if len(header) < schema.FILE_HEADER.nbytes:
            self.note(len(header), f"cut off at byte {len(header)}, inside the header")

    def note(self, offset: int, what: str) -> None:
        """Records damage; after the first 200 only their number is kept."""
        if len(self.damage) < _MOST_DAMAGE:
            self.damage.append(Damage(self.name, offset, what))
        else:
            self.damage_left_out += 1

    def regions(self, kind: schema.Region, item_bytes: int = 1) -> list[Extent]:
        """The regions of a kind whose items are at least `item_bytes` large, in the order of their threads."""
        found = []
        for extent in self.extents:
            if extent.kind != kind:
                continue
            if extent.item_bytes < item_bytes:
                what = f"region {kind.name} has items of {extent.item_bytes} bytes, expected {item_bytes}; skipped"
                self.note(extent.offset, what)
                continue
            found.append(extent)
        return sorted(found, key=lambda e: e.first_thread)

    def region(self, kind: schema.Region, item_bytes: int = 1) -> Extent | None:
        """The first region of a kind."""
        found = self.regions(kind, item_bytes)
        return found[0] if found else None

    def content(self, extent: Extent | None, nbytes: int | None = None) -> bytes:
        """The bytes of a region, or its first `nbytes`."""
        if extent is None:
            return b""
        end = extent.nbytes if nbytes is None else min(nbytes, extent.nbytes)
        return self.data[extent.offset : extent.offset + end]

    def peek(self, spans: Collection[tuple[int, int]]) -> Iterator[bytes]:
        """(offset, size) of the file as bytes, also where nothing was read."""
        with contextlib.suppress(OSError), regular_file(self.path) as file:
            for offset, nbytes in spans:
                yield os.pread(file, nbytes, offset)

    def _fetch(self, extents: Collection[Extent]) -> None:
        """Reads regions into their places; of the journal what was used, of the others all."""
        with contextlib.suppress(OSError), regular_file(self.path) as file:
            for extent in extents:
                nbytes = extent.nbytes
                if extent.kind == schema.Region.JOURNAL and self.header.journal_used:
                    nbytes = min(nbytes, self.header.journal_used)
                _fill(self.data, file, extent.offset, extent.offset + nbytes)

    def items(self, kind: schema.Region, of: type[T], count: int) -> Iterator[T]:
        """Decodes up to `count` items of a region; notes damage when it holds fewer. None of a region left unread."""
        if self._only is not None and kind not in self._only:
            return
        extent = self.region(kind, layout_of(of).nbytes)
        held = extent.item_count if extent else 0
        if count > held:
            self.note(extent.offset if extent else 0, f"{count} items announced in {kind.name}, {held} can be read")
        if extent is None:
            return
        for i in range(min(count, held)):
            yield decode(of, self.data, extent.offset + i * extent.item_bytes)

    def unpack(self, extent: Extent, fmt: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """Unpacks every item of a region, as fast as possible; items may be longer than `fmt`."""
        if extent.item_bytes == fmt.size:
            part = slice(extent.offset, extent.offset + extent.item_count * fmt.size)
            return fmt.iter_unpack(memoryview(self.data)[part])
        step, start = extent.item_bytes, extent.offset
        return (fmt.unpack_from(self.data, start + i * step) for i in range(extent.item_count))

    def item(self, extent: Extent, fmt: struct.Struct, number: int) -> tuple[Any, ...]:
        """One item of a region."""
        return fmt.unpack_from(self.data, extent.offset + number * extent.item_bytes)

    def _check_identity(self) -> None:
        if self.data[:8] != schema.MAGIC[: len(self.data)]:
            if self.data[1:6] == b"pytrc":
                raise InputError(f"{self.path} was changed by a copy in text mode", "copy it again in binary mode")
            if not any(self.data[:8]):  # made and preallocated, but the header was never written
                message = f"{self.path} holds nothing: its process was killed while it made this black box"
                raise InputError(message, "its parent's recording has what is known of that process")
            raise InputError(
                f"{self.path} is not a black box", "a black box is a *.blackbox file below a run directory"
            )
        if len(self.data) < 12:
            raise InputError(
                f"{self.path} is cut off at byte {len(self.data)}, before its version", "copy the file again"
            )
        major, minor = struct.unpack_from("<HH", self.data, 8)
        if major > schema.MAJOR:
            message = f"{self.path} has format {major}.{minor}, this pytracer reads up to {schema.MAJOR}.x"
            raise InputError(message, "install a newer pytracer to read it")

    def _regions(self) -> list[Extent]:
        size = schema.REGION_ENTRY.nbytes
        found: list[Extent] = []
        count, end = self.header.region_count, 0
        if count > schema.REGION_LIMIT:
            self.note(_DIRECTORY_OFFSET, f"{count} regions announced, at most {schema.REGION_LIMIT} are possible")
            count = schema.REGION_LIMIT
        for i in range(count):
            at = _DIRECTORY_OFFSET + i * size
            if at + size > len(self.data):
                self.note(len(self.data), f"cut off at byte {len(self.data)}, inside the region directory")
                break
            entry = decode(raw.RegionEntry, self.data, at)
            extent = self._extent(entry, at)
            if extent is None:
                continue
            if self.header.trimmed and extent.kind in _GIVEN_BACK:
                continue  # what is still there was written while it was released
            if any(extent.offset < e.offset + e.nbytes and e.offset < extent.offset + extent.nbytes for e in found):
                self.note(at, f"region {extent.kind} overlaps another one; skipped")
                continue
            end = max(end, entry.offset + entry.nbytes)
            found.append(extent)
        if end > len(self.data):
            what = f"cut off at byte {len(self.data)} of {end}; the records before it were read"
            self.note(len(self.data), what)
        return found

    def _extent(self, entry: raw.RegionEntry, at: int) -> Extent | None:
        offset, nbytes, item = entry.offset, entry.nbytes, entry.item_bytes
        name = entry.kind
        if item == 0 or offset < schema.HEADER_BYTES or offset + nbytes > _LARGEST_FILE:
            self.note(at, f"region {name} has an impossible place (offset {offset}, {nbytes} bytes); skipped")
            return None
        declared = min(entry.item_count, nbytes // item)
        if declared < entry.item_count:
            self.note(at, f"region {name} announces {entry.item_count} items, {declared} fit")
        readable = max(0, min(nbytes, len(self.data) - offset))
        room = _ROOM.get(name, _LARGEST_FILE) * (1 if name in _LARGEST_KNOWN else _SPARE)
        if readable > room:
            self.note(at, f"region {name} has {nbytes} bytes, of which the first {room} are read")
            readable = room
        count = min(declared, readable // item)
        return Extent(name, item, offset, readable, count, entry.first_thread, declared)


def _read(path: str, first: int | None = None) -> mmap.mmap:
    """The whole file, or its `first` bytes, in memory that is as large as the file and takes none where it is empty.

    Read, not mapped: a mapping of a file that is being cut off would kill us.
    """
    try:
        file = open_regular(path)
        try:
            nbytes = os.fstat(file).st_size
            if nbytes > _LARGEST_FILE:
                raise InputError(f"{path} is too large for a black box ({nbytes} bytes)", "name another file")
            if nbytes == 0:
                raise InputError(
                    f"{path} is empty", "the process died before it created its recording, or the disk was full"
                )
            data = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            _fill(data, file, 0, nbytes if first is None else min(first, nbytes))
        finally:
            os.close(file)
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist", "check the path; runs lie in runs/, the newest is runs/latest"
        ) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory, not a black box", "use `pytracer inspect` for a whole run") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise InputError(f"{path} is not a regular file", "name a *.blackbox file or a run directory") from None
        raise InputError(f"{path} cannot be read: {error.strerror}", "check its permissions") from None
    return data


def _fill(data: mmap.mmap, file: int, offset: int, end: int) -> None:
    """Copies a part of a file to its place. Holes are skipped: most of a file are holes, of a hostile one half a GB."""
    with memoryview(data) as view:
        while offset < end:
            try:
                offset = max(offset, os.lseek(file, offset, os.SEEK_DATA))
                stop = min(end, os.lseek(file, offset, os.SEEK_HOLE))
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but holes from here on
                    return
                stop = end  # a file system without holes
            while offset < stop:
                nbytes = os.preadv(file, [view[offset:stop]], offset)
                if nbytes == 0:
                    return
                offset += nbytes
