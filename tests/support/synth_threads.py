"""The crash regions about memory and about threads that did not crash, packed from literals of their own.

Part of `synth.py`, which puts them into a recording.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HEAD, RING = 48, 16
UNKNOWN = (1 << 64) - 1


@dataclass(frozen=True)
class OtherThread:
    """A thread that did not crash; `native` as in `Box.crash`, `total` when frames between them are left out.

    `guessed`: the first frame that was guessed, and how (2 frame pointers, 3 scanned).
    """

    tid: int
    name: str = "python"
    native: Sequence[tuple[str | None, int]] = ()
    pthread: int = 0
    total: int | None = None
    state: int = 3
    complete: int = 1
    syscall: int = -1
    stopped: int = 1
    guessed: tuple[int, int] = (0, 0)


def pack_threads(threads: Sequence[OtherThread], bias: Callable[[str], int]) -> tuple[bytes, bytes]:
    """THREAD_STACKS and THREAD_FRAMES."""
    stacks, frames = b"", b""
    for thread in threads:
        counters = [bias(image) + offset if image else offset for image, offset in thread.native]
        total = len(counters) if thread.total is None else thread.total
        tail = counters[HEAD:][-RING:] if total > HEAD else []
        ring = [0] * RING
        for i, pc in enumerate(tail):
            ring[(total - len(tail) + i - HEAD) % RING] = pc
        head = counters[:HEAD]
        frames += struct.pack(f"<{HEAD + RING}Q", *(head + [0] * HEAD)[:HEAD], *ring)
        stacks += struct.pack("<iIQ16s", thread.tid, thread.state, thread.pthread, thread.name.encode()[:15])
        stacks += struct.pack("<IIII", len(head), len(tail), total, thread.complete)
        stacks += struct.pack("<iI", thread.syscall, thread.stopped) + bytes(34 * 8)
        stacks += struct.pack("<II", *thread.guessed) + bytes(48)
    assert len(stacks) == 384 * len(threads), len(stacks)
    return stacks, frames


def pack_memory(
    memory: Sequence[tuple[str, int, int, bytes]], names: Sequence[str], put: Callable[[bytes], tuple[int, int]]
) -> bytes:
    """MEMORY; each block: register, its value, first address, bytes."""
    packed = b""
    for register, value, addr, content in memory:
        packed += struct.pack("<QIIIIQ", addr, *put(content), names.index(register), 0, value)
    return packed
