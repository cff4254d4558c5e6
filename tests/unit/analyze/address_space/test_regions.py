"""The memory region of an address, apart from storages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.address_space.address_info import Region
from pytracer.analyze.address_space.regions import Regions
from pytracer.decode.recording.reader import read_box
from tests.support.synth import Box
from tests.support.synth_threads import OtherThread

STACK = (0x7FFC_0000_0000, 0x7FFC_0002_1000)
WORKER = 0x7F70_0000_0000
ARENA = 0x7F20_0000_0000
MAPS = [
    (0x5555_0000_0000, 0x5555_0000_1000, "rw-p", 0, "[heap]"),
    (ARENA, ARENA + 0x21000, "rw-p", 0, ""),
    (ARENA + 0x21000, ARENA + (64 << 20), "---p", 0, ""),
    (0x7F60_0000_0000, 0x7F60_0001_0000, "r--s", 0x2000, "/data/tokens.bin"),
    (0x7F60_0100_0000, 0x7F60_0101_0000, "rw-s", 0, "/dev/shm/torch_77_1"),
    (0x7F60_0200_0000, 0x7F60_0201_0000, "r--p", 0, "/d/o (deleted)"),
    (0x7F60_0300_0000, 0x7F60_0301_0000, "rw-p", 0, ""),
    (WORKER - 0x1000, WORKER, "---p", 0, ""),
    (WORKER, WORKER + 0x80_0000, "rw-p", 0, ""),
    (0x7FFB_0000_0000, 0x7FFB_0000_2000, "r-xp", 0, "[vdso]"),
    (0x7FFC_0000_0000, 0x7FFC_0002_1000, "rw-p", 0, "[stack]"),
]
GLOO = OtherThread(202, "pt_gloo_runloop", pthread=WORKER + 0x80_0000 - 0x900)


def region(tmp_path: Path, addr: int, **crash: Any) -> Region | None:
    more = {"addr": 0x10, "mappings": MAPS, "stack": STACK, "threads": [GLOO], "threads_how": 1, **crash}
    box = Box(pid=101).thread(202, "pt_gloo_runloop", pthread=GLOO.pthread)
    path = box.at(5).crash(native=[("/lib/libx.so", 0x1100)], **more).write(tmp_path / "node0.101.blackbox")
    return Regions(read_box(path)).at(addr)


@pytest.mark.parametrize(
    ("addr", "kind", "words"),
    [
        (8, "null", "the first 64 KiB, where no process has memory"),
        (1 << 50, "non-canonical", "no possible address: it is not canonical on x86-64"),
        (0x5555_0000_0010, "heap", "the heap"),
        (ARENA + 64, "heap", "an arena of the C library's allocator"),
        (ARENA + 0x30000, "reserved", "memory that is reserved, but may not be accessed"),
        (0x7F60_0000_0010, "file-mapping", "the mapped file /data/tokens.bin at byte 8208 of the file"),
        (0x7F60_0100_0010, "shared-memory", "shared memory /dev/shm/torch_77_1 at byte 16"),
        (0x7F60_0200_0000, "file-mapping", "the mapped file /d/o at byte 0 of the file (deleted since it was mapped)"),
        (0x7F60_0300_0000, "anonymous", "anonymous memory (rw-p)"),
        (WORKER - 8, "stack-guard", "the guard pages below the stack of thread pt_gloo_runloop (202)"),
        (WORKER + 0x7F_0000, "stack", "the stack of thread pt_gloo_runloop (202)"),
        (0x7FFB_0000_0010, "kernel-page", "the vDSO"),
        (STACK[0] + 0x800, "stack", "the stack of the crashed thread"),
    ],
)  # fmt: skip
def test_every_part_of_a_process_is_named(tmp_path: Path, addr: int, kind: str, words: str) -> None:
    """One address in each."""
    found = region(tmp_path, addr)
    assert found is not None and (found.kind, found.words) == (kind, words)


def test_code_is_told_by_image_and_offset(tmp_path: Path) -> None:
    """The ELF address, as in native stacks."""
    found = region(tmp_path, Box(pid=101).bias("/lib/libx.so") + 0x1234)
    assert found is not None and (found.kind, found.words, found.offset) == (
        "image",
        "libx.so at offset 0x1234",
        0x1234,
    )


def test_gap_is_told_by_what_lies_around_it(tmp_path: Path) -> None:
    """After the heap, before a file; what is farther than a TiB is not near."""
    found = region(tmp_path, 0x7F60_0001_0010)
    assert found is not None and found.kind == "unmapped"
    assert found.words == "not mapped: 16 bytes behind tokens.bin, 15.9 MiB before torch_77_1"
    found = region(tmp_path, 0x1000_0000_0000)
    assert found is not None and found.words == "not mapped: far from all memory"


def test_memory_above_a_thread_is_not_its_stack(tmp_path: Path) -> None:
    """The kernel joins mappings without a guard between them; the thread's descriptor is the upper end of its stack."""
    found = region(tmp_path, (GLOO.pthread or 0) + 0x100)
    assert found is not None and found.kind == "anonymous"


def test_without_a_memory_map_nothing_is_said(tmp_path: Path) -> None:
    """Unknown is an answer."""
    assert region(tmp_path, 0x7F60_0000_0010, mappings=[]) is None
    assert Regions(read_box(Box(pid=7).write(tmp_path / "node0.7.blackbox"))).at(0x7F60_0000_0010) is None


def test_main_stack_ends_where_it_is_used(tmp_path: Path) -> None:
    """Its bounds extend down to the limit; unmapped memory below the stack pointer is not part of the stack."""
    low = (STACK[0] - 0x80_0000, STACK[1])
    found = region(tmp_path, STACK[0] - 0x40_0000, stack=low, registers={"rsp": STACK[0] + 0x1000})
    assert found is not None and found.kind == "unmapped"
