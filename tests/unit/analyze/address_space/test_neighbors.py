"""The storages near an address, the earlier ones at it, and the intended storage of an access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.timeline.clock import RunClock
from pytracer.report import job as r
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.synth import Box

BASE = 0x7F50_0000_0000
SITE = ("fill", s.SCRIPT, 12)
LATER = ("refill", s.SCRIPT, 40)
INDEXED = bytes.fromhex("f30f10048f")  # movss xmm0, dword ptr [rdi + rcx*4]


def fault(run: Path, box: Box, addr: int, **crash: Any) -> r.Fault:
    job = s.load(run, box.at(500).crash(addr=addr, native=s.NATIVE[:1], mappings=[], **crash))
    found = build_view(0, job.processes[0], RunClock(job)).fault
    assert found is not None
    return found


def test_both_neighbours_of_a_gap_are_named_with_their_distance(tmp_path: Path) -> None:
    """16 bytes past one storage, 48 before the next."""
    box = Box(pid=101).alloc(BASE, 4032, SITE).alloc(BASE + 4096, 64).later(1)
    box.module("model", [{"fqn": "w", "addr": BASE, "nbytes": 4032}, {"fqn": "b", "addr": BASE + 4096, "nbytes": 64}])
    found = fault(tmp_path, box, BASE + 4032 + 16)
    assert (
        found.says
        == f"is 16 bytes past the end of a live storage of 4032 bytes [{BASE:#x}, {BASE + 4032:#x}) (parameter w)"
    )
    told = [(n.side, n.distance_bytes, n.storage.names if n.storage else None) for n in found.neighbors or []]
    assert told == [("below", 17, ["parameter w"]), ("above", 48, ["parameter b"])]


def test_far_storages_are_no_neighbours(tmp_path: Path) -> None:
    """More than 64 KiB, and more than their own size."""
    found = fault(tmp_path, Box(pid=101).alloc(BASE, 4096), BASE + (1 << 20))
    assert (found.kind, found.neighbors) == ("unmapped", [])


def test_all_lives_of_an_address_are_told(tmp_path: Path) -> None:
    """Freed, then reused twice: the last one is the storage, the older ones follow, the latest first."""
    box = Box(pid=101).freed(BASE, 4096, SITE, LATER).later(1).freed(BASE - 64, 8192, SITE).later(1)
    found = fault(tmp_path, box.alloc(BASE, 2048, LATER), BASE + 8)
    assert found.kind == "in-storage"
    lives = found.earlier_lives or []
    assert [(life.nbytes, life.offset_bytes, life.state) for life in lives] == [(8192, 72, "freed"), (4096, 8, "freed")]
    assert lives[1].freed is not None and lives[1].freed.python == r.PythonFrame(
        function="refill", file=s.SCRIPT, line=40
    )


@needs_capstone
def test_register_of_the_instruction_tells_which_storage_was_meant(tmp_path: Path) -> None:
    """The address is far from it, and near another one: the pointer that was indexed decides."""
    box = Box(pid=101).alloc(BASE, 4096).alloc(BASE + (64 << 20) + 64, 4096).later(1)
    registers = {"rdi": BASE, "rcx": 16 << 20}
    found = fault(tmp_path, box, BASE + (64 << 20), registers=registers, code_bytes=INDEXED)
    assert found.storage is not None and (found.kind, found.storage.found) == ("past-storage", "register")
    assert (found.storage.base, found.storage.distance_bytes) == (hex(BASE), (64 << 20) - 4096 + 1)
    assert [(o.register, o.role, o.says) for o in found.operands or []] == [
        ("rdi", "base", "points to the start of a live storage of 4096 bytes"),
        ("rcx", "index", "is 16777216, times 4 = 67108864 bytes"),
    ]


@needs_capstone
def test_overrun_into_freed_memory_is_no_use_after_free(tmp_path: Path) -> None:
    """The indexed storage is live; only the address is in the hole after it."""
    box = Box(pid=101).alloc(BASE, 4096).freed(BASE + 4096, 4096)
    registers = {"rdi": BASE, "rcx": 1040}
    found = fault(tmp_path, box, BASE + 4160, registers=registers, code_bytes=INDEXED)
    assert (found.kind, [life.base for life in found.earlier_lives or []]) == ("past-storage", [hex(BASE + 4096)])


@needs_capstone
def test_two_pointers_into_storages_decide_nothing(tmp_path: Path) -> None:
    """Then the nearest storage is a guess."""
    box = Box(pid=101).alloc(BASE, 4096).alloc(0x1000_0000, 4096)
    registers = {"rdi": BASE - 0x4000_0000 + 4096, "rcx": 0x1000_0000}
    found = fault(tmp_path, box, BASE + 4096, registers=registers, code_bytes=INDEXED)
    assert found.storage is not None and found.storage.found == "register"  # only one of them is a pointer here
    registers = {"rdi": BASE, "rcx": 0x1000_0000}
    found = fault(tmp_path, box, BASE + 0x4000_0000, registers=registers, code_bytes=INDEXED)
    assert (found.kind, found.storage) == ("unmapped", None)


@needs_capstone
def test_pointer_that_moved_on_is_told_as_such(tmp_path: Path) -> None:
    """A loop that increments its pointer has left the storage: the nearest one is reported as a guess."""
    found = fault(
        tmp_path, Box(pid=101).alloc(BASE, 4096), BASE + 4096, registers={"rax": BASE + 4096}, code_bytes=s.LOAD_FLOAT
    )
    assert found.storage is not None and found.storage.found == "guessed"
    assert [o.says for o in found.operands or []] == ["points right past the end of a live storage of 4096 bytes"]
