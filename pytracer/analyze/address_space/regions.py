"""Address -> the part of the address space it was in at the crash: a stack, an image or file, the heap, nothing.

Storages are in `lookup.py`. Stacks of other threads than the crashed one are located by their `pthread_self()`: glibc
puts the thread's descriptor at the upper end of the mapping that is its stack (nptl/allocatestack.c).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.address_info import Region
from pytracer.analyze.address_space.guard_pool import pool_of
from pytracer.analyze.platform.addresses import exists, why_none
from pytracer.decode.types.snapshot import Crash, LoadedImage, Mapping, Snapshot

NEAR_NULL_BYTES = 64 * 1024
_ARENA_BYTES = 64 << 20  # glibc malloc/arena.c, HEAP_MAX_SIZE on 64-bit machines
_KERNEL_PAGES = {"[vdso]": "the vDSO", "[vsyscall]": "the vsyscall page"}
_SHARED_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage")
_FAR_BYTES = 1 << 40
_DELETED = " (deleted)"


class Regions:
    """The memory of one process at its crash, or when a running process was examined."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        crash = snapshot.crash or snapshot.live
        self._memory = _Memory(snapshot, crash) if crash is not None else None

    def at(self, addr: int) -> Region | None:
        """The part of the address space that contains `addr`; None if nothing is known about its memory."""
        if addr < NEAR_NULL_BYTES:
            return Region("null", "the first 64 KiB, where no process has memory", 0, NEAR_NULL_BYTES)
        arch = self._snapshot.arch
        if not exists(arch, addr):
            return Region("non-canonical", f"no possible address: it is {why_none(arch)}")
        pool = pool_of(self._snapshot.guard, addr)
        if pool is not None:
            return Region(
                "guard-pool", "the pool of guard mode, where pages are accessible only while a storage has them", *pool
            )
        return self._memory.at(addr) if self._memory is not None else None


class _Memory:
    """Memory map, stacks and images as recorded by the crash handler or for `attach`."""

    def __init__(self, snapshot: Snapshot, crash: Crash) -> None:
        self._crash, self._pid = crash, snapshot.pid
        self._is_crash = snapshot.crash is not None
        self._threads = list(_threads(snapshot, crash))
        self._by_start = sorted(crash.mappings, key=lambda item: item.start)
        self._starts = [item.start for item in self._by_start]

    def at(self, addr: int) -> Region | None:
        """None between two mappings when there is no memory map."""
        crash, mapping = self._crash, mapping_at(self._crash.mappings, addr)
        stack = self._own_stack(addr, mapping)
        if stack is not None:
            return stack
        image = next((item for item in crash.images if item.start <= addr < item.end), None)
        # The vDSO is loaded as an image.
        if image is not None and (mapping is None or mapping.path not in _KERNEL_PAGES):
            return _image(crash, image, addr, mapping)
        if mapping is None:
            return self._gap(addr)
        return self._owned(addr, mapping)

    def _owned(self, addr: int, mapping: Mapping) -> Region:
        stack = self._stack_of_thread(addr, mapping) or self._guard(mapping)
        return stack or _arena(self._crash, mapping) or _mapped(addr, mapping)

    def _thread_words(self, tid: int, name: str) -> str:
        """`the crashed thread`, `the main thread`, or `thread pt_autograd_0 (4711)`."""
        if tid == self._crash.tid and self._is_crash:
            return "the crashed thread"
        return "the main thread" if tid == self._pid else f"thread {name or '?'} ({tid})"

    def _own_stack(self, addr: int, mapping: Mapping | None) -> Region | None:
        """The crashed thread's stack, with the handler's bounds; the main thread's grows as far as it is used."""
        crash = self._crash
        if crash.stack is None or not crash.stack[0] <= addr < crash.stack[1]:
            return None
        if mapping is None and addr < crash.sp:
            return None
        words = f"the stack of {self._thread_words(crash.tid, crash.thread_name)}"
        permissions = mapping.permissions if mapping else None
        return Region("stack", words, *crash.stack, permissions, tid=crash.tid)

    def _stack_of_thread(self, addr: int, mapping: Mapping) -> Region | None:
        if mapping.path == "[stack]":
            words = f"the stack of {self._thread_words(self._pid, '')}"
            return Region("stack", words, mapping.start, mapping.end, mapping.permissions, tid=self._pid)
        if mapping.path:
            return None
        for tid, name, pthread in self._threads:
            if mapping.start <= addr < pthread < mapping.end and not self._another_between(addr, pthread):
                words = f"the stack of {self._thread_words(tid, name)}"
                return Region("stack", words, mapping.start, pthread, mapping.permissions, tid=tid)
        return None

    def _another_between(self, addr: int, pthread: int) -> bool:
        """Whether a descriptor of another thread is between them: mappings without a guard between them are one."""
        return any(addr < other < pthread for _, _, other in self._threads)

    def _guard(self, mapping: Mapping) -> Region | None:
        """Memory without any permission right below a stack."""
        crash = self._crash
        if mapping.path or mapping.permissions[:3] != "---":
            return None
        if crash.stack is not None and mapping.end == crash.stack[0]:
            owner = self._thread_words(crash.tid, crash.thread_name)
            return _guard_of(owner, crash.tid, mapping)
        above = mapping_at(crash.mappings, mapping.end)
        for tid, name, pthread in self._threads:
            if above is not None and not above.path and above.start < pthread < above.end:
                return _guard_of(self._thread_words(tid, name), tid, mapping)
        return None

    def _gap(self, addr: int) -> Region | None:
        """Between two mappings: which, and how far they are. None without a memory map."""
        items = self._by_start
        if not items:
            return None
        at = bisect_right(self._starts, addr)
        below, above = items[at - 1] if at else None, items[at] if at < len(items) else None
        parts = []
        if below is not None and addr - below.end < _FAR_BYTES:
            parts.append(f"{size_words(addr - below.end)} behind {self._name(below, below.end - 1)}")
        if above is not None and above.start - addr < _FAR_BYTES:
            parts.append(f"{size_words(above.start - addr)} before {self._name(above, above.start)}")
        start, end = below.end if below else None, above.start if above else None
        beside = ", ".join(parts) or "far from all memory"
        return Region("unmapped", f"not mapped: {beside}", start, end, beside=beside)

    def _name(self, mapping: Mapping, addr: int) -> str:
        """A mapping as a short text."""
        if mapping.path.startswith("/"):
            return mapping.path.removesuffix(_DELETED).rsplit("/", 1)[-1]
        return (self._own_stack(addr, mapping) or self._owned(addr, mapping)).words


def _threads(snapshot: Snapshot, crash: Crash) -> Iterator[tuple[int, str, int]]:
    """Id, name and pthread_self() of the live threads except the main one, whose stack the kernel created."""
    seen = {snapshot.pid}
    named = [(item.tid, item.name, item.pthread) for item in crash.threads]
    named += [(item.tid, item.name, item.pthread) for item in snapshot.threads if not item.ended]
    for tid, name, pthread in named:
        if pthread and tid not in seen:
            seen.add(tid)
            yield tid, name, pthread


def mapping_at(mappings: Sequence[Mapping], addr: int) -> Mapping | None:
    """The mapping that contains `addr`."""
    return next((item for item in mappings if item.start <= addr < item.end), None)


def _guard_of(owner: str, tid: int, mapping: Mapping) -> Region:
    words = f"the guard pages below the stack of {owner}"
    return Region("stack-guard", words, mapping.start, mapping.end, mapping.permissions, tid=tid)


def _image(crash: Crash, image: LoadedImage, addr: int, mapping: Mapping | None) -> Region:
    name, offset = image.path.rsplit("/", 1)[-1], addr - image.bias
    start, end = (mapping.start, mapping.end) if mapping else (image.start, image.end)
    known = any(item.path == image.path for item in crash.mappings)
    hole = "a hole in " if mapping is None and known else ""
    words = f"{hole}{name} at offset {hex_addr(offset)}"
    permissions = mapping.permissions if mapping else None
    return Region("image", words, start, end, permissions, image.path, offset, image=image)


def _arena(crash: Crash, mapping: Mapping) -> Region | None:
    """Memory of malloc() in threads: the accessible part of 64 MiB, aligned to its size, the rest reserved."""
    if mapping.path or mapping.start % _ARENA_BYTES or not mapping.permissions.startswith("rw"):
        return None
    rest = mapping_at(crash.mappings, mapping.end)
    if rest is None or rest.permissions[:3] != "---" or rest.end != mapping.start + _ARENA_BYTES:
        return None
    words = "an arena of the C library's allocator"
    return Region("heap", words, mapping.start, mapping.end, mapping.permissions)


def _mapped(addr: int, mapping: Mapping) -> Region:
    path, offset = mapping.path, addr - mapping.start + mapping.offset
    bounds = (mapping.start, mapping.end, mapping.permissions)
    if path in _KERNEL_PAGES:
        return Region("kernel-page", _KERNEL_PAGES[path], *bounds, path)
    if path.startswith("[vvar"):
        return Region("kernel-page", "the kernel's variables for the vDSO", *bounds, path)
    if path.startswith("/dev/nvidia"):
        return Region("device-memory", f"memory of {path}", *bounds, path, offset)
    if path.startswith(_SHARED_MEMORY):
        words = f"shared memory {path.removesuffix(_DELETED)} at byte {offset}"
        return Region("shared-memory", words, *bounds, path, offset)
    if path.startswith("/"):
        gone = " (deleted since it was mapped)" if path.endswith(_DELETED) else ""
        words = f"the mapped file {path.removesuffix(_DELETED)} at byte {offset} of the file{gone}"
        return Region("file-mapping", words, *bounds, path, offset)
    if path == "[heap]":
        return Region("heap", "the heap", *bounds, path)
    if not path and mapping.permissions[:3] == "---":
        return Region("reserved", "memory that is reserved, but may not be accessed", *bounds)
    return Region("anonymous", f"{path or 'anonymous memory'} ({mapping.permissions})", *bounds, path or None)
