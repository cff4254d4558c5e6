"""Core dumps of CUDA devices, built by hand in the layout of NVIDIA's cudacoredump.h; real ones: tests/cuda/dumps."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

FIRST = 0x80000000
REGISTERS, IMAGE, CALLERS, DEVICES, SMS, GRIDS, CTAS, WARPS, LANES, PREDICATES, PARAMETERS, UNIFORM = (
    FIRST + number for number in (5, 7, 8, 9, 11, 12, 13, 14, 15, 17, 18, 19)
)
KERNEL_ADDR = 0x7F49_C2E9_C000
KERNEL = "_Z11scatter_addPfPKlPKfi"
FAULT = 0x1A0  # offset of the instruction that fails in `faulting` and `accessing`


def instructions(*words: tuple[int, int]) -> bytes:
    """Code: each instruction in two halves."""
    return b"".join(struct.pack("<QQ", *item) for item in words)


# Of ptxas 12.8 for sm_90.
LOAD_16 = (0x0000000402087981, 0x000EA2000C1E1D00)  # LDG.E.128 R8, desc[UR4][R2.64], barrier 2
STORE_4 = (0x0000000802007986, 0x000FE2000C101904)  # STG.E desc[UR4][R2.64], R8
MASKED_4 = (0x000000040208E981, 0x000EA2000C1E1900)  # @!P6 LDG.E R8, desc[UR4][R2.64], barrier 2
COMPARE = (0x000000100700720C, 0x000FE40003FC6270)  # ISETP.GE.AND P6, PT, R7, R16, PT
WAIT = (0x0000000908097221, 0x004FC80000000000)  # FADD R9, R8, R9, waits for barrier 2
MOVE = (0x0000000400037C02, 0x000FE20008000F00)  # MOV R3, UR4
TRAP = (0x000000040000795C, 0x000FE20000300000)  # BPT.TRAP 0x1
EXIT = (0x000000000000794D, 0x000FEA0003800000)


@dataclass
class Lane:
    """One thread."""

    pc: int
    exception: int = 0
    thread: tuple[int, int, int] = (0, 0, 0)
    registers: tuple[int, ...] = ()
    predicates: tuple[int, ...] = ()
    return_addrs: tuple[int, ...] = ()


@dataclass
class Warp:
    """One warp; `error_pc` None: the device did not report it. `active`: of its 32 lanes; `broken`: at a breakpoint."""

    lanes: list[Lane]
    error_pc: int | None = None
    block: tuple[int, int, int] = (0, 0, 0)
    active: int = 0xFFFFFFFF
    broken: bool = False
    uniform: tuple[int, ...] = ()


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
    """One device, one SM, one grid. `tail`: bytes that a newer driver appends to each row.

    `code` is the kernel's; `functions` are (name, offset, size) inside of it; `lines` is .debug_line.
    """

    warps: list[Warp] = field(default_factory=list)
    parameters: bytes = b""
    kernel: str | None = KERNEL
    sm_exception: int = 0
    sm_pc: int = 0
    tail: int = 0
    machine: int = 190
    code: bytes = b""
    functions: tuple[tuple[str, int, int], ...] = ()
    lines: bytes = b""
    capability: tuple[int, int] = (9, 0)

    def content(self) -> bytes:
        """The file."""
        strings = b"\0NVIDIA H200\0GH100\0sm_90\0"
        sections = [_Section("", 0, b""), _Section(".strtab", 3, strings)]

        def table(name: str, type: int, rows: list[bytes], link: int = 0, info: int = 0) -> int:
            padded = [row + bytes(self.tail) for row in rows]
            sections.append(_Section(name, type, b"".join(padded), link, info, len(padded[0])))
            return len(sections) - 1

        def words(name: str, type: int, values: tuple[int, ...], link: int, info: int) -> None:
            if values:
                sections.append(_Section(name, type, struct.pack(f"<{len(values)}I", *values), link, info))

        device = struct.pack("<QQQIII", 1, 13, 19, 0, 0x41, 0) + struct.pack(
            "<9I", 132, 64, 32, 255, 7, *self.capability, 16, 0
        )
        devices = table(".cudbg.devtbl", DEVICES, [device])
        grid = struct.pack("<QQQQQQQ10I", 7, 1, 0, KERNEL_ADDR, 5, 0, 0, 0, 0, 1, 32, 40, 1, 1, 256, 1, 1) + bytes(8)
        grids = table(".cudbg.gridtbl", GRIDS, [grid], devices)
        if self.parameters:
            sections.append(_Section(".cudbg.param", PARAMETERS, self.parameters, grids, 0))
        error_pc = next((warp.error_pc for warp in self.warps if warp.error_pc is not None), self.sm_pc)
        sm = struct.pack("<IIIIQ", 3, 0, self.sm_exception, bool(self.sm_exception), error_pc) + bytes(24)
        sms = table(".cudbg.smtbl", SMS, [sm], devices)
        blocks = list(dict.fromkeys(warp.block for warp in self.warps))
        if blocks:
            ctas = table(".cudbg.ctatbl", CTAS, [struct.pack("<QIIII", 7, *block, 0) for block in blocks], sms)
        for number, block in enumerate(blocks):
            own = [warp for warp in self.warps if warp.block == block]
            rows = [
                struct.pack("<Q6I", w.error_pc or 0, i, 0xFFFFFFFF, w.active, w.broken, w.error_pc is not None, 0)
                for i, w in enumerate(own)
            ]
            warps = table(".cudbg.wptbl", WARPS, rows, ctas, number)
            for index, warp in enumerate(own):
                words(".cudbg.uregs", UNIFORM, warp.uniform, warps, index)
                lanes = [
                    struct.pack("<QQ8I", lane.pc, 0, i, *lane.thread, lane.exception, 1, 0, 0)
                    for i, lane in enumerate(warp.lanes)
                ]
                at = table(".cudbg.lntbl", LANES, lanes, warps, index)
                for i, lane in enumerate(warp.lanes):
                    words(".cudbg.regs", REGISTERS, lane.registers, at, i)
                    words(".cudbg.pred", PREDICATES, lane.predicates, at, i)
                    if lane.return_addrs:
                        callers = [struct.pack("<QQII", 0, addr, n, 0) for n, addr in enumerate(lane.return_addrs)]
                        table(".cudbg.bt", CALLERS, callers, at, i)
        if self.kernel is not None:
            sections.append(_Section(".cudbg.relfimg", IMAGE, self._image()))
        return _elf(sections, 4, self.machine)

    def _image(self) -> bytes:
        names, symbols = b"\0", b""
        for name, offset, nbytes in self.functions:
            symbols += struct.pack("<IBBHQQ", len(names), 2, 0, 1, KERNEL_ADDR + offset, nbytes)
            names += name.encode() + b"\0"
        parts = [_Section("", 0, b""), _Section(f".text.{self.kernel}", 1, self.code.ljust(0x400, b"\0"))]
        parts[1].addr = KERNEL_ADDR
        parts += [_Section(".strtab", 3, names), _Section(".symtab", 2, symbols, 2, row_bytes=24)] if symbols else []
        parts += [_Section(".debug_line", 1, self.lines)] if self.lines else []
        return _elf(parts, 2, 190)

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


def accessing(
    code: int,
    addrs: tuple[int, ...],
    *words: tuple[int, int],
    predicates: tuple[int, ...] = (0,) * 8,
    parameters: bytes = b"",
    **more: object,
) -> Core:
    """One warp, whose thread i used the address i by the first of the instructions; it stands at the last of them."""
    pc = KERNEL_ADDR + FAULT
    stop = pc + 16 * (len(words) - 1)
    lanes = [Lane(stop, code, (i, 0, 0), (0, 0, *halves(addr), *[0] * 12), predicates) for i, addr in enumerate(addrs)]
    warp = Warp(lanes, pc, (2, 0, 0), active=(1 << len(addrs)) - 1)
    return Core([warp], parameters, code=bytes(FAULT) + instructions(*words), **more)  # type: ignore[arg-type]


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
