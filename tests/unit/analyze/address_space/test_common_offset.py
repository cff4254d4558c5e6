"""A pointer that had left its storage, by how far the pointers into the others were inside of theirs."""

from __future__ import annotations

from pathlib import Path

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.timeline.clock import RunClock
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.synth import Box

pytestmark = needs_capstone

SMALL, ANOTHER, LARGE, GRADIENT = 0x5581_0000_0000, 0x5581_0200_0000, 0x5582_0000_0000, 0x5583_0000_0000
AHEAD, NBYTES = 0x200_1000, 0x400_0000
HEAP = (SMALL - 0x1000, SMALL + 0x1000, "rw-p", 0, "[heap]")
LOAD = bytes.fromhex("c4c12c591486")  # vmulps ymm2, ymm10, ymmword ptr [r14 + rax*4]
INDEX = 0x30_0000


def place(run: Path, **registers: int) -> Place:
    """r14 is as far from the small storage as the others from theirs, and in another one."""
    box = Box(pid=101)
    for base, nbytes in ((SMALL, 3456), (ANOTHER, 0x10_0000), (LARGE, NBYTES), (GRADIENT, NBYTES)):
        box = box.alloc(base, nbytes)
    held = {"r14": SMALL + AHEAD, "rax": INDEX, "rdx": LARGE + AHEAD, "rcx": GRADIENT + AHEAD, **registers}
    addr = held["r14"] + 4 * held["rax"]
    crash = box.at(500).crash(addr=addr, native=s.NATIVE[:1], registers=held, code_bytes=LOAD, mappings=[HEAP])
    job = s.load(run, crash)
    found = build_view(0, job.processes[0], RunClock(job)).place
    assert found is not None and found.storage is not None
    return found


def test_the_storage_that_the_pointer_had_left_was_meant(tmp_path: Path) -> None:
    """And not the one that it had come to."""
    found = place(tmp_path)
    assert found.storage is not None and found.formation is not None
    assert (found.storage.base, found.found, found.formation.room) == (SMALL, "computed", 864)
    assert found.formation.index == (AHEAD + 4 * INDEX) // 4
    assert found.formation.twin is not None and found.formation.twin.base in (LARGE, GRADIENT)


def test_one_pointer_alone_shows_no_offset(tmp_path: Path) -> None:
    """It may be anywhere in its storage."""
    found = place(tmp_path, rcx=7)
    assert found.storage is not None and found.storage.base == ANOTHER


def test_pointer_that_is_as_far_in_its_own_storage_had_left_none(tmp_path: Path) -> None:
    """All three are parts of one loop, and the index is wrong."""
    found = place(tmp_path, r14=ANOTHER + 0x8_0000, rdx=LARGE + 0x8_0000, rcx=GRADIENT + 0x8_0000)
    assert found.storage is not None and (found.storage.base, found.found) == (ANOTHER, "register")


def test_offset_to_no_first_byte_is_an_accident(tmp_path: Path) -> None:
    """The storage that would have been left begins elsewhere."""
    found = place(tmp_path, rdx=LARGE + AHEAD - 64, rcx=GRADIENT + AHEAD - 64)
    assert found.storage is not None and found.storage.base == ANOTHER
