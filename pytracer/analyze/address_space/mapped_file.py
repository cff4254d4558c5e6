"""The file behind a fault address: which part was mapped, how large the file was, and which page was touched.

The kernel refuses with SIGBUS whole pages behind the end of the file only: the rest of the last, partial page reads as
zeros (mmap(2), mm/filemap.c: filemap_fault compares page numbers).
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.platform.signals import SIGBUS
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence

DELETED = " (deleted)"
BUS_ADRERR = 2
TMPFS_MAGIC = 0x0102_1994  # linux/magic.h
HUGETLBFS_MAGIC = 0x9584_58F6
LITTLE_ROOM_BYTES = 4 << 20
SHARED_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")


class MappedFile(msgspec.Struct, frozen=True):
    """Offsets and sizes are bytes. `then_bytes` is the size at the crash, `now_bytes` when the report was made.

    `mapped_end` is the offset in the file at which the mapping ends, `room_bytes` what was free on the file system.
    """

    path: str
    deleted: bool
    offset: int
    mapped_end: int
    then_bytes: int | None
    now_bytes: int | None
    room_bytes: int | None
    system: int | None
    page_bytes: int

    def is_behind(self, size: int) -> bool:
        """Whether the page at `offset` lies wholly behind the end of a file of `size` bytes."""
        return self.offset // self.page_bytes >= -(-size // self.page_bytes)

    @property
    def is_from_shm(self) -> bool:
        """Whether it is shared memory limited by /dev/shm or the machine, not by the size of a tmpfs elsewhere."""
        return self.path.startswith(SHARED_MEMORY)

    @property
    def is_shared_memory(self) -> bool:
        """Whether the file lives in memory: POSIX or System V shared memory, memfd, any tmpfs."""
        return self.is_from_shm or self.system in (TMPFS_MAGIC, HUGETLBFS_MAGIC)

    @property
    def is_huge(self) -> bool:
        """Whether it is made of huge pages."""
        return self.system == HUGETLBFS_MAGIC or self.path.startswith("/anon_hugepage")


def mapped_file(view: ProcessView) -> MappedFile | None:
    """The mapped file at the address of a SIGBUS with BUS_ADRERR (no page); None for all other faults."""
    crash, place = view.crash, view.place
    if crash is None or place is None or place.mapping is None or (crash.signal, crash.code) != (SIGBUS, BUS_ADRERR):
        return None
    mapping = place.mapping
    if not mapping.path.startswith("/"):
        return None
    fault = view.fault
    now = fault.mapping.file_size if fault is not None and fault.mapping is not None else None
    return MappedFile(
        path=mapping.path.removesuffix(DELETED),
        deleted=mapping.path.endswith(DELETED),
        offset=mapping.offset + place.addr - mapping.start,
        mapped_end=mapping.offset + mapping.end - mapping.start,
        then_bytes=crash.file_nbytes,
        now_bytes=now,
        room_bytes=crash.file_room,
        system=crash.file_system,
        page_bytes=view.process.snapshot.page_bytes or 4096,
    )


def truncation_confidence(file: MappedFile) -> Confidence | None:
    """The confidence that the page was past the file's end; None when it was not, or this is unknown."""
    if file.then_bytes is not None:
        return "certain" if file.is_behind(file.then_bytes) else None
    if file.now_bytes is not None:
        return "likely" if file.is_behind(file.now_bytes) else None
    return None


def room_confidence(file: MappedFile) -> Confidence | None:
    """How sure it is that the file was long enough, but its file system had no page left; None when it had."""
    if not file.is_shared_memory or truncation_confidence(file) is not None:
        return None
    long_enough = file.then_bytes is not None and not file.is_behind(file.then_bytes)
    if file.room_bytes is None:
        return "likely" if long_enough else "possible"
    if file.room_bytes < file.page_bytes:
        return "certain" if long_enough else "likely"
    # Free space a moment later is weaker evidence: other processes may have released memory meanwhile.
    return "possible" if long_enough and file.room_bytes < LITTLE_ROOM_BYTES else None


def full_disk(file: MappedFile, access: str | None) -> bool:
    """Whether a write needed a block of a file system that had none left; a read needs no block."""
    long_enough = file.then_bytes is not None and not file.is_behind(file.then_bytes)
    none_left = file.room_bytes is not None and file.room_bytes < file.page_bytes
    return access == "write" and long_enough and none_left and not file.is_shared_memory
