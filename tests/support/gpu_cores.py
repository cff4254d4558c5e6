"""Core dumps of CUDA devices, built by hand in the layout of NVIDIA's cudacoredump.h. No real one was available."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

FIRST = 0x80000000
REGISTERS, IMAGE, DEVICES, SMS, GRIDS, CTAS, WARPS, LANES, PARAMETERS = (
    FIRST + number for number in (5, 7, 9, 11, 12, 13, 14, 15, 18)
)
KERNEL_ADDR = 0x7F49_C2E9_C000
KERNEL = "_Z11scatter_addPfPKlPKfi"


@dataclass
class Lane:
    """One thread."""

    pc: int
    exception: int = 0
    thread: tuple[int, int, int] = (0, 0, 0)
    registers: tuple[int, ...] = ()


@dataclass
class Warp:
    """One warp; `error_pc` None: the device did not report it."""

    lanes: list[Lane]
    error_pc: int | None = None
    block: tuple[int, int, int] = (0, 0, 0)


@dataclass
class _Section:
    name: str
    type: int
    content: bytes
    link: int = 0
    info: int = 0
    row_bytes: int = 0
    addr: int = 0


@dataclass
class Core:
    """One device, one SM, one grid. `tail`: bytes that a newer driver appends to each row."""

    warps: list[Warp] = field(default_factory=list)
    parameters: bytes = b""
    kernel: str | None = KERNEL
    sm_exception: int = 0
    tail: int = 0
    machine: int = 190

    def content(self) -> bytes:
        """The file."""
        strings = b"\0NVIDIA H200\0GH100\0sm_90\0"
        sections = [_Section("", 0, b""), _Section(".strtab", 3, strings)]

        def table(name: str, type: int, rows: list[bytes], link: int = 0, info: int = 0) -> int:
            padded = [row + bytes(self.tail) for row in rows]
            sections.append(_Section(name, type, b"".join(padded), link, info, len(padded[0])))
            return len(sections) - 1

        device = struct.pack("<QQQIII", 1, 13, 19, 0, 0x41, 0) + struct.pack("<9I", 132, 64, 32, 255, 7, 9, 0, 16, 0)
        devices = table(".cudbg.devtbl", DEVICES, [device])
        grid = struct.pack("<QQQQQQQ10I", 7, 1, 0, KERNEL_ADDR, 5, 0, 0, 0, 0, 1, 32, 40, 1, 1, 256, 1, 1) + bytes(8)
        grids = table(".cudbg.gridtbl", GRIDS, [grid], devices)
        if self.parameters:
            sections.append(_Section(".cudbg.param", PARAMETERS, self.parameters, grids, 0))
        error_pc = next((warp.error_pc for warp in self.warps if warp.error_pc is not None), 0)
        sm = struct.pack("<IIIIQ", 3, 0, self.sm_exception, bool(self.sm_exception), error_pc) + bytes(24)
        sms = table(".cudbg.smtbl", SMS, [sm], devices)
        blocks = list(dict.fromkeys(warp.block for warp in self.warps))
        if blocks:
            ctas = table(".cudbg.ctatbl", CTAS, [struct.pack("<QIIII", 7, *block, 0) for block in blocks], sms)
        for number, block in enumerate(blocks):
            own = [warp for warp in self.warps if warp.block == block]
            rows = [
                struct.pack("<Q6I", w.error_pc or 0, i, 0xFFFFFFFF, 0xFFFFFFFF, 0, w.error_pc is not None, 0)
                for i, w in enumerate(own)
            ]
            warps = table(".cudbg.wptbl", WARPS, rows, ctas, number)
            for index, warp in enumerate(own):
                lanes = [
                    struct.pack("<QQ8I", lane.pc, 0, i, *lane.thread, lane.exception, 1, 0, 0)
                    for i, lane in enumerate(warp.lanes)
                ]
                at = table(".cudbg.lntbl", LANES, lanes, warps, index)
                for i, lane in enumerate(warp.lanes):
                    if lane.registers:
                        packed = struct.pack(f"<{len(lane.registers)}I", *lane.registers)
                        sections.append(_Section(".cudbg.regs", REGISTERS, packed, at, i))
        if self.kernel is not None:
            code = _Section(f".text.{self.kernel}", 1, bytes(0x400), addr=KERNEL_ADDR)
            sections.append(_Section(".cudbg.relfimg", IMAGE, _elf([_Section("", 0, b""), code], 2, 190)))
        return _elf(sections, 4, self.machine)

    def write(self, path: Path | str) -> Path:
        """Writes it."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(self.content())
        return Path(path)


def faulting(*registers: int, parameters: bytes = b"", **more: object) -> Core:
    """One warp of two threads; the second accessed an illegal address at offset 0x1a0 of its kernel."""
    pc = KERNEL_ADDR + 0x1A0
    lanes = [Lane(pc + 16), Lane(pc + 16, 14, (33, 0, 0), registers)]
    return Core([Warp(lanes, pc, (2, 0, 0))], parameters, **more)  # type: ignore[arg-type]


def halves(addr: int) -> tuple[int, int]:
    """An address in two registers."""
    return addr & 0xFFFFFFFF, addr >> 32


def _elf(sections: list[_Section], type: int, machine: int) -> bytes:
    names = b"\0" + b"".join(item.name.encode() + b"\0" for item in sections[1:]) + b".shstrtab\0"
    sections = [*sections, _Section(".shstrtab", 3, names)]
    body, headers, name = b"", b"", 1
    for number, item in enumerate(sections):
        offset = 64 + len(body) if number else 0
        row = (name if number else 0, item.type, 0, item.addr, offset, len(item.content), item.link, item.info, 8)
        headers += struct.pack("<IIQQQQIIQQ", *row, item.row_bytes)
        name += len(item.name) + 1 if number else 0
        body += item.content + bytes(-len(item.content) % 8)
    head = b"\x7fELF\x02\x01\x01\x33\x07".ljust(16, b"\0")
    numbers = (type, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections), len(sections) - 1)
    return head + struct.pack("<HHIQQQIHHHHHH", *numbers) + body + headers
