"""The targets of registers and of words of the stack."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pytracer.analyze.assemble.processes import process_report
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.timeline.clock import RunClock
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.synth import Box

BASE = 0x7F50_0000_0000
STACK = (0x7FFC_0000_0000, 0x7FFC_0080_0000)
SP = STACK[0] + 0x1000
MAPS = [
    (0x5555_0000_0000, 0x5555_0000_1000, "rw-p", 0, "[heap]"),
    (0x7F60_0000_0000, 0x7F60_0001_0000, "r--s", 0x2000, "/data/tokens.bin"),
    (0x7F61_0000_0000, 0x7F61_0001_0000, "rw-p", 0, ""),
    (0x7F62_0000_0000, 0x7F62_0001_0000, "rw-s", 0, "/dev/nvidia0"),
]


def pointers(run: Path, box: Box, registers: dict[str, int], **crash: Any) -> dict[str | None, r.Pointer]:
    more = {"addr": 0x10, "native": s.NATIVE[:1], "mappings": MAPS, "stack": STACK, **crash}
    job = s.load(run, box.at(500).crash(registers={"rsp": SP, **registers}, **more))
    report = process_report(build_view(0, job.processes[0], RunClock(job)))
    return {item.register: item for item in report.pointers or []}


def says(run: Path, box: Box, registers: dict[str, int], **crash: Any) -> dict[str | None, str | None]:
    return {name: item.says for name, item in pointers(run, box, registers, **crash).items()}


def test_storages_are_named_with_the_offset(tmp_path: Path) -> None:
    """Live and freed, at the start, inside, and right after the end; no storages that are near by chance."""
    box = Box(pid=101).alloc(BASE, 4096).later(1)
    box.module("model", [{"fqn": "layer.weight", "addr": BASE, "nbytes": 4096}])
    box.freed(BASE + 0x10000, 8192)
    registers = {"rdi": BASE + 64, "rsi": BASE, "rdx": BASE + 4096, "rcx": BASE + 4097, "r8": BASE + 0x10000 + 8}
    found = says(tmp_path, box, registers)
    assert found["rdi"] == "points 64 bytes into a live storage of 4096 bytes (parameter layer.weight)"
    assert found["rsi"] == "points to the start of a live storage of 4096 bytes (parameter layer.weight)"
    assert found["rdx"] == "points right past the end of a live storage of 4096 bytes (parameter layer.weight)"
    assert found["r8"] == "points 8 bytes into freed storage of 8192 bytes"
    assert "rcx" not in found


def test_register_with_the_fault_address_says_what_the_fault_says(tmp_path: Path) -> None:
    """Also when it is only the nearest storage."""
    found = pointers(tmp_path, Box(pid=101).alloc(BASE, 4096), {"rax": BASE + 4100}, addr=BASE + 4100)
    assert found["rax"].says == "points 4 bytes past the end of a live storage of 4096 bytes"
    assert (found["rax"].kind, found["rax"].offset_bytes) == ("past-storage", 4100)


def test_other_memory_is_told_by_its_mapping(tmp_path: Path) -> None:
    """Stack, heap, files, devices, images; small numbers and state registers are no pointers."""
    registers = {
        "rdi": SP + 8, "rsi": 0x5555_0000_0010, "rdx": 0x7F60_0000_0010, "rcx": 0x7F61_0000_0010,
        "r8": 0x7F62_0000_0010, "r9": 4096, "r10": 1 << 50, "r11": 0x7F99_0000_0000, "eflags": 0x7F61_0000_0010,
    }  # fmt: skip
    found = says(tmp_path, Box(pid=101), registers)
    assert found == {
        "rsp": "points into the stack of the crashed thread",
        "rdi": "points into the stack of the crashed thread",
        "rsi": "points into the heap",
        "rdx": "points into the mapped file /data/tokens.bin at byte 8208 of the file",
        "rcx": "points into anonymous memory (rw-p)",
        "r8": "points into memory of /dev/nvidia0",
        "rip": "points into libvictim.so at offset 0x1100",
    }


def test_words_of_the_stack_are_named_by_their_offset(tmp_path: Path) -> None:
    """From the stack pointer up, at most 16, only those with information."""
    words = [BASE + 8, SP, 7, *(BASE + 16 * n for n in range(30))]
    content = b"".join(word.to_bytes(8, "little") for word in [BASE, *words]) + b"\1\2\3"
    found = pointers(tmp_path, Box(pid=101).alloc(BASE, 4096), {}, memory=[("rsp", SP, SP - 8, content)])
    on_stack = [name for name in found if name and name.startswith("stack")]
    assert on_stack == ["stack+0x0", *(f"stack+{0x18 + 8 * n:#x}" for n in range(15))]
    assert found["stack+0x0"].offset_bytes == 8


def test_many_storages_cost_little(tmp_path: Path) -> None:
    """2^16 storages, all registers and the whole stack: one pass over the storages."""
    box = Box(pid=101, slots_log2=17)
    for number in range(60_000):
        box.alloc(BASE + number * 4096, 4096)
    registers = {name: BASE + 4096 * 100 * number for number, name in enumerate(("rdi", "rsi", "rax", "rbx", "rcx"))}
    content = b"".join((BASE + 40960 * n).to_bytes(8, "little") for n in range(64))
    began = time.process_time()
    found = pointers(tmp_path, box, registers, memory=[("rsp", SP, SP, content)])
    assert len(found) == 5 + 2 + 16
    assert time.process_time() - began < 8  # building and reading the recording included
