"""The tables of a core dump of a CUDA device: which warps met which exception, where, with which registers.

Sections are tables: devices, grids (launches), SMs, CTAs (blocks), warps and lanes (threads). sh_link and sh_info of a
table's section identify the row of the table above to which its rows belong. The layout is NVIDIA's cudacoredump.h;
newer drivers append members to rows, whose size is sh_entsize, so only the oldest members are read, or those that the
size covers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from pytracer.decode.formats.gpu_core_code import Code, Function
from pytracer.decode.formats.sass import (
    ALWAYS,
    INSTRUCTION_BYTES,
    Access,
    access_of,
    is_trap,
    predicate_valid,
    still_valid,
)
from pytracer.decode.symbols.elf_sections import Elf, Section
from pytracer.decode.types.devices import TRAP, GpuAccess, GpuException, GpuThread

_FIRST_TYPE = 0x80000000
_CALLERS = _FIRST_TYPE + 8
_REGISTERS, _DEVICES, _SMS, _GRIDS = _FIRST_TYPE + 5, _FIRST_TYPE + 9, _FIRST_TYPE + 11, _FIRST_TYPE + 12
_CTAS, _WARPS, _LANES, _PREDICATES = _FIRST_TYPE + 13, _FIRST_TYPE + 14, _FIRST_TYPE + 15, _FIRST_TYPE + 17
_PARAMETERS, _UNIFORM_REGISTERS = _FIRST_TYPE + 18, _FIRST_TYPE + 19
_DEVICE = struct.Struct("<QQQIII")  # name, type, architecture: in the string table; id, PCI bus, PCI device
_CAPABILITY = struct.Struct("<56xII")  # of a device's row
_GRID = struct.Struct(
    "<QQQQQQQIIIIIIIIII"
)  # id, context, function, entry ... kind, origin, state, registers, dimensions
_SM = struct.Struct("<IIIIQ")  # id, -; since driver 555: exception, whether its pc is valid, pc
_CTA = struct.Struct("<QIII")  # grid, index
_WARP = struct.Struct("<QIIIII")  # pc of the error, id, valid lanes, active lanes, broken, whether that pc is valid
_LANE = struct.Struct("<QQIIIII")  # pc, physical pc, number, index, exception
_CALLER = struct.Struct("<8xQ")  # return address: offset, address
# All warps of a GPU have a million threads; tables of a hostile file may overlap, and so have any number of rows.
_MOST_ROWS = 2_000_000
_MOST_TABLES, _MOST_BROKEN = 1 << 16, 1000  # of lanes: a GPU has 10,000 warps
_ROWS_AT_ONCE = 4096
_LONGEST_ROW = 4096  # bytes
_MOST_EXCEPTIONS = 16
_MOST_REGISTERS = 256
_MOST_PARAMETER_BYTES = 8192
_LANES_OF_A_WARP = 32
_MOST_CALLERS = 64
_MOST_ACCESS_WARPS = 4


class _Warp(NamedTuple):
    """A warp that met an exception: its table of lanes, and the row of the first lane that met it."""

    lanes: Section
    row: int


class _Found(NamedTuple):
    code: int
    pc: int
    exact: bool


class Tables:
    """The tables of one file, by section; rows are found by (section, row)."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self.code = Code(elf)
        self._broken = 0
        self._rows_left = _MOST_ROWS

    @property
    def broken(self) -> int:
        """Tables and images that could not be used."""
        return self._broken + self.code.broken

    def device(self) -> str | None:
        """Name and PCI bus of the first device."""
        for section in self.elf.of_type(_DEVICES):
            for row in self._rows(section):
                name, _, kind, _, bus, slot = _DEVICE.unpack_from(row)
                words = self.elf.string(name) or self.elf.string(kind) or "a device"
                return f"{words} (PCI {bus:02x}:{slot:02x})"
        return None

    def exceptions(self) -> Iterator[GpuException]:
        """Equal ones are counted together; those whose place the device itself reported come first."""
        found: dict[_Found, list[_Warp]] = {}
        covered: set[tuple[int, int]] = set()  # SMs of warps that met an exception
        for section in islice(self.elf.of_type(_LANES), _MOST_TABLES):
            if self._broken > _MOST_BROKEN:
                break
            try:
                exception, row = self._of_warp(section)
                if exception is not None:
                    self._up(section, _DEVICES)
                    sms, sm = self._up(section, _SMS)
                    covered.add((sms.number, sm))
                    found.setdefault(exception, []).append(_Warp(section, row))
            except (ValueError, IndexError, struct.error):
                self._broken += 1
        ordered = sorted(found.items(), key=lambda item: (not item[0].exact, -len(item[1])))
        for exception, warps in ordered[:_MOST_EXCEPTIONS]:
            yield self._describe(exception, warps)
        yield from self._of_ended_warps(covered, {item.pc for item in found}, _MOST_EXCEPTIONS - len(ordered))

    def _of_warp(self, lanes: Section) -> tuple[_Found | None, int]:
        """The exception of a warp, and the row of the first lane that met it."""
        pc, _, _, active, broken, told = _WARP.unpack_from(self._row(self.elf.section(lanes.link), lanes.info))
        first: tuple[int, int] | None = None  # pc and row of the first active lane
        for number, row in enumerate(self._rows(lanes)):
            lane_pc, _, lane, _, _, _, code = _LANE.unpack_from(row)
            if code:
                return _Found(code, pc if told else lane_pc, bool(told)), number
            if first is None and lane < _LANES_OF_A_WARP and active >> lane & 1:
                first = lane_pc, number
        if told:
            code = self._of_sm(lanes)
            return (_Found(code, pc, True), 0) if code else (None, 0)
        trap = self._trap(lanes, *first) if broken and first is not None else None
        return (trap, first[1]) if trap is not None and first is not None else (None, 0)

    def _trap(self, lanes: Section, pc: int, row: int) -> _Found | None:
        """What a warp that "has hit a breakpoint" ran into; the driver's own code for assertions is in no image."""
        at = pc - INSTRUCTION_BYTES
        if self.code.function(at) is not None:
            return _Found(TRAP, at, True) if is_trap(self.code.instruction(at)) else None
        number = self._value_sections(_CALLERS).get((lanes.number, row))
        if number is not None:
            for caller in islice(self._rows(self.elf.section(number)), _MOST_CALLERS):
                (back,) = _CALLER.unpack_from(caller)
                if self.code.function(back) is not None:
                    return _Found(TRAP, back, False)
        return None

    def _of_sm(self, lanes: Section) -> int:
        """Drivers since 555 report it once for the SM."""
        sms, number = self._up(lanes, _SMS)
        row = self._row(sms, number)
        return int(_SM.unpack_from(row)[2]) if len(row) >= _SM.size else 0

    def _of_ended_warps(self, covered: set[tuple[int, int]], places: set[int], most: int) -> Iterator[GpuException]:
        """Atomics and stores fail when their warps may have ended: then only the SM has the exception and its place."""
        found: dict[tuple[int, int], tuple[int, int]] = {}  # code and pc -> SM, device
        for section in self.elf.of_type(_SMS):
            for number, row in enumerate(self._rows(section)):
                if len(row) < _SM.size or (section.number, number) in covered:
                    continue
                sm, _, code, told, pc = _SM.unpack_from(row)
                if code and told and pc not in places:
                    found.setdefault((code, pc), (sm, section.info))
        for (code, pc), (sm, device) in islice(found.items(), max(0, most)):
            function = self.code.function(pc)
            grid, where = self._grid_of(function, device)
            yield self._exception(_Found(code, pc, True), function, sm, grid, where)

    def _up(self, section: Section, type: int) -> tuple[Section, int]:
        """The row of a table above."""
        for _ in range(4):
            parent, number = self.elf.section(section.link), section.info
            if parent.type == type:
                return parent, number
            section = parent
        raise ValueError("a table has no parent")

    def _describe(self, found: _Found, warps: list[_Warp]) -> GpuException:
        section, number = warps[0]
        lane = self._row(section, number)
        grid_id, block = self._block(section)
        sms, sm = self._up(section, _SMS)
        grid, where = self._grid(grid_id, self._up(section, _DEVICES)[1])
        return self._exception(
            found,
            self.code.function(found.pc),
            _SM.unpack_from(self._row(sms, sm).ljust(_SM.size, b"\0"))[0],
            grid,
            where,
            block=block,
            thread=_LANE.unpack_from(lane)[3:6],
            warps=warps,
        )

    def _exception(
        self,
        found: _Found,
        function: Function | None,
        sm: int,
        grid: tuple[int, ...] | None,
        where: tuple[Section, int] | None,
        *,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        warps: list[_Warp] | None = None,
    ) -> GpuException:
        launched = self.code.function(grid[3]) if grid else None
        file, line = (self.code.line(function, found.pc) if function else None) or (None, None)
        return GpuException(
            code=found.code,
            pc=found.pc,
            pc_exact=found.exact,
            kernel=launched.kernel if launched else function.kernel if function else None,
            function=function.name if function else None,
            offset=found.pc - function.start if function else None,
            sm=sm,
            block=block,
            thread=thread,
            grid=(grid[11], grid[12], grid[13]) if grid else None,
            block_size=(grid[14], grid[15], grid[16]) if grid else None,
            warps=len(warps or ()),
            registers=self._values(_REGISTERS, *warps[0]) if warps else (),
            parameters=self._parameters(where) if where else b"",
            file=file,
            line=line,
            access=self._access(found, function, warps) if function and warps and found.exact else None,
        )

    def _block(self, lanes: Section) -> tuple[int, tuple[int, int, int]]:
        """Grid and index of the block of a warp."""
        ctas, cta = self._up(lanes, _CTAS)
        grid, x, y, z = _CTA.unpack_from(self._row(ctas, cta))
        return grid, (x, y, z)

    def _grid(self, grid_id: int, device: int) -> tuple[tuple[int, ...] | None, tuple[Section, int] | None]:
        for grid, where in self._grids(device):
            if grid[0] == grid_id:
                return grid, where
        return None, None

    def _grid_of(
        self, function: Function | None, device: int
    ) -> tuple[tuple[int, ...] | None, tuple[Section, int] | None]:
        """The launch of a kernel, if only one of it ran."""
        if function is None:
            return None, None
        start = function.section.addr
        found = list(islice((item for item in self._grids(device) if item[0][3] == start), 2))
        return found[0] if len(found) == 1 else (None, None)

    def _grids(self, device: int) -> Iterator[tuple[tuple[int, ...], tuple[Section, int]]]:
        for section in self.elf.of_type(_GRIDS):
            if section.info != device:
                continue
            for number, row in enumerate(self._rows(section)):
                if len(row) >= _GRID.size:
                    yield _GRID.unpack_from(row), (section, number)

    def _access(self, found: _Found, function: Function, warps: list[_Warp]) -> GpuAccess | None:
        """Which addresses the threads of some of the warps accessed."""
        code, at = self.code.bytes_of(function), found.pc - function.start
        access = access_of(code[at : at + INSTRUCTION_BYTES], self._architecture)
        if access is None:
            return None
        threads: list[GpuThread] = []
        for warp in warps[:_MOST_ACCESS_WARPS]:
            of_warp, known = self._threads(access, found, function, code, warp)
            if of_warp and not known and not threads:  # at least one of them made it
                return GpuAccess(access.kind, access.nbytes, tuple(of_warp), guarded=True)
            threads += of_warp if known else ()
        return GpuAccess(access.kind, access.nbytes, tuple(threads)) if threads else None

    def _threads(
        self, access: Access, found: _Found, function: Function, code: bytes, warp: _Warp
    ) -> tuple[list[GpuThread], bool]:
        """The addresses of a warp's threads, and whether the guarding predicate of each is known."""
        warps, number = self.elf.section(warp.lanes.link), warp.lanes.info
        _, _, valid, active, _, _ = _WARP.unpack_from(self._row(warps, number))
        lanes = [_LANE.unpack_from(row) for row in islice(self._rows(warp.lanes), _LANES_OF_A_WARP)]
        stood = [(row, lane) for row, lane in enumerate(lanes) if lane[2] < 32 and active >> lane[2] & 1]
        if any(lane[6] for lane in lanes):
            stood = [(row, lane) for row, lane in stood if lane[6] == found.code]
        stops = {lane[0] for _, lane in stood}
        start, stop = found.pc - function.start, (stops.pop() if len(stops) == 1 else 0) - function.start
        called, divergent = not function.is_kernel, valid != active
        if not still_valid(access, code, start, stop, self._architecture, called=called, divergent=divergent):
            return [], True
        known = predicate_valid(access, code, start, stop)
        block, uniform = self._block(warp.lanes)[1], self._values(_UNIFORM_REGISTERS, warps, number)
        threads = []
        for row, lane in stood:
            addr = _address(access, self._values(_REGISTERS, warp.lanes, row), uniform)
            if addr is not None and (not known or self._makes(access, warp.lanes, row)):
                threads.append(GpuThread(block, (lane[3], lane[4], lane[5]), addr))
        return threads, known

    def _makes(self, access: Access, lanes: Section, row: int) -> bool:
        """Whether the guarding predicate of a thread lets it make the access."""
        if access.predicate == ALWAYS:
            return not access.negated
        values = self._values(_PREDICATES, lanes, row)
        return access.predicate < len(values) and bool(values[access.predicate]) != access.negated

    @cached_property
    def _architecture(self) -> int:
        """90 for sm_90; 0 if it is not recorded, or devices differ."""
        found = set()
        for section in self.elf.of_type(_DEVICES):
            for row in islice(self._rows(section), _LANES_OF_A_WARP):
                found.add(_CAPABILITY.unpack_from(row) if len(row) >= _CAPABILITY.size else (0, 0))
        major, minor = found.pop() if len(found) == 1 else (0, 0)
        return major * 10 + minor if minor < 10 else 0

    def _values(self, type: int, table: Section, row: int) -> tuple[int, ...]:
        """Registers or predicates of a thread or a warp."""
        at = self._value_sections(type).get((table.number, row))
        if at is None:
            return ()
        data = self.elf.content(self.elf.section(at)).read(0, _MOST_REGISTERS * 4)
        return struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])

    def _value_sections(self, type: int) -> dict[tuple[int, int], int]:
        """A real dump has one for each thread of a GPU that was resident: hundreds of thousands."""
        if type not in self._values_by_type:
            found = self._values_by_type[type] = {}
            for section in self.elf.of_type(type):
                found.setdefault((section.link, section.info), section.number)
        return self._values_by_type[type]

    @cached_property
    def _values_by_type(self) -> dict[int, dict[tuple[int, int], int]]:
        return {}

    def _parameters(self, grid: tuple[Section, int]) -> bytes:
        for section in self.elf.of_type(_PARAMETERS):
            if (section.link, section.info) == (grid[0].number, grid[1]):
                return self.elf.content(section).read(0, _MOST_PARAMETER_BYTES)
        return b""

    def _row(self, section: Section, number: int) -> bytes:
        stride = section.row_bytes
        row = self.elf.content(section).read(number * stride, min(stride, _LONGEST_ROW))
        if not row or len(row) < min(stride, _LONGEST_ROW):
            raise ValueError(f"section {section.number} has no row {number}")
        return row

    def _rows(self, section: Section) -> Iterator[bytes]:
        content, stride = self.elf.content(section), section.row_bytes
        if not 0 < stride <= _LONGEST_ROW:
            return
        for start in range(0, content.nbytes - stride + 1, stride * _ROWS_AT_ONCE):
            part = content.read(start, stride * _ROWS_AT_ONCE)
            for at in range(0, len(part) - stride + 1, stride):
                self._rows_left -= 1
                if self._rows_left < 0:
                    raise ValueError("its tables have too many rows")
                yield part[at : at + stride]


def _address(access: Access, registers: tuple[int, ...], uniform: tuple[int, ...]) -> int | None:
    addr = _number(registers, access.base, access.base_bits)
    beside = _number(uniform, access.uniform, 64) if access.uniform is not None else 0
    return None if addr is None or beside is None else addr + beside + access.offset & (1 << 64) - 1


def _number(registers: tuple[int, ...], first: int, bits: int) -> int | None:
    """The value of a register, or of two."""
    if first + (bits == 64) >= len(registers):
        return None
    return registers[first] | (registers[first + 1] << 32 if bits == 64 else 0)
