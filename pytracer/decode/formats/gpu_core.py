"""A core dump of a CUDA device: which kernel met which exception, where, and with which register contents.

Such a file is an ELF core for EM_CUDA whose sections are tables: devices, grids (launches), SMs, CTAs (blocks), warps
and lanes (threads). sh_link and sh_info of a table's section identify the row of the table above to which its rows
belong. The layout is NVIDIA's cudacoredump.h; newer drivers append members to rows, whose size is sh_entsize, so only
the oldest members are read, or those that the size covers.

The file contains the location in the program, not the accessed address: that may be in a register of the thread, or in
a parameter of the kernel.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from pytracer.decode.files import Window, regular_file
from pytracer.decode.formats.name_pattern import NamePattern
from pytracer.decode.symbols.demangle import demangle
from pytracer.decode.symbols.elf_sections import Elf, NotElf, Section
from pytracer.decode.types.devices import GpuCore, GpuException

DIRECTORY = "gpu-cores"
SUFFIX = ".nvcudmp"
_EM_CUDA, _ET_CORE = 190, 4
_FIRST_TYPE = 0x80000000
_REGISTERS, _RELOCATED_IMAGE = _FIRST_TYPE + 5, _FIRST_TYPE + 7
_DEVICES, _SMS, _GRIDS, _CTAS = _FIRST_TYPE + 9, _FIRST_TYPE + 11, _FIRST_TYPE + 12, _FIRST_TYPE + 13
_WARPS, _LANES, _PARAMETERS = _FIRST_TYPE + 14, _FIRST_TYPE + 15, _FIRST_TYPE + 18
_DEVICE = struct.Struct("<QQQIII")  # name, type, architecture: in the string table; id, PCI bus, PCI device
_GRID = struct.Struct(
    "<QQQQQQQIIIIIIIIII"
)  # id, context, function, entry ... kind, origin, state, registers, dimensions
_SM = struct.Struct("<IIIIQ")  # id, -; since CUDA 12: exception, whether its pc is valid, pc
_CTA = struct.Struct("<QIII")  # grid, index
_WARP = struct.Struct("<QIIIII")  # pc of the error, id, valid lanes, active lanes, broken, whether that pc is valid
_LANE = struct.Struct("<QQIIIII")  # pc, physical pc, number, index, exception
_TEXT = ".text."
# All warps of a GPU have a million threads; tables of a hostile file may overlap, and so have any number of rows.
_MOST_ROWS = 2_000_000
_MOST_TABLES, _MOST_BROKEN = 1 << 16, 1000  # of lanes: a GPU has 10,000 warps
_ROWS_AT_ONCE = 4096
_LONGEST_ROW = 4096  # bytes
_MOST_IMAGE_SECTIONS = 1 << 20
_MOST_NAMES = 100_000  # of a directory
_MOST_FILES = 256
_MOST_EXCEPTIONS = 16
_MOST_REGISTERS = 256
_MOST_PARAMETER_BYTES = 8192


def read_gpu_cores(directory: Path, pattern: str | None, since_ns: int = 0) -> tuple[GpuCore, ...]:
    """Every core dump of a run.

    Args:
        directory: the run directory, whose own folder is looked at in any case: it may have been copied here.
        pattern: CUDA_COREDUMP_FILE of the user's, if that sent them elsewhere.
        since_ns: files there that are older are another run's.
    """
    own = _matching(str(directory / DIRECTORY / f"%h.%p{SUFFIX}"), 0)
    return own + (_matching(pattern, since_ns) if pattern else ())


def _matching(pattern: str, since_ns: int) -> tuple[GpuCore, ...]:
    """The pattern comes from run.json, which may be forged: it only selects names of one directory."""
    folder, name = os.path.split(pattern)
    if not os.path.isabs(folder) or not name or "\0" in pattern:
        return ()
    form, found = NamePattern(name), []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_NAMES):
                parts = form.match(entry.name)
                if parts is None or not entry.is_file(follow_symlinks=False):
                    continue
                if entry.stat(follow_symlinks=False).st_mtime_ns >= since_ns:
                    found.append((entry.path, parts))
    except OSError:
        return ()
    return tuple(read_gpu_core(path, *parts) for path, parts in sorted(found)[:_MOST_FILES])


def read_gpu_core(path: str | Path, host: str | None = None, pid: int | None = None) -> GpuCore:
    """One file; anything that is wrong with it is its `problem`."""
    core = GpuCore(str(path), host, pid)
    try:
        with regular_file(path) as file:
            content = Window(file)
            if content.nbytes == 0:
                return replace(core, problem="the file is empty: the driver did not get to write it")
            return _read(core, content)
    except OSError as error:
        return replace(core, problem=f"cannot be read: {error.strerror}")
    except (NotElf, struct.error, ValueError, IndexError) as error:
        return replace(core, problem=f"cannot be understood: {error}")


def _read(core: GpuCore, content: Window) -> GpuCore:
    if content.read(0, 2) == b"\x1f\x8b":
        return replace(core, problem="it is compressed: unpack it with gunzip")
    elf = Elf(content)
    if elf.machine != _EM_CUDA or elf.type != _ET_CORE:
        return replace(core, problem="it is an ELF file, but not a core dump of a CUDA device")
    tables = _Tables(elf)
    exceptions = tuple(tables.exceptions())
    cut = elf.truncated or tables.broken
    problem = "it is truncated or damaged: some of its tables are missing" if cut else None
    if not exceptions and problem is None:
        problem = "it holds no exception"
    return replace(core, device=tables.device(), exceptions=exceptions, problem=problem)


class _Tables:
    """The tables of one file, by section; rows are found by (section, row)."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self.broken = 0  # tables that could not be used
        self._rows_left = _MOST_ROWS

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
        found: dict[tuple[int, int, bool], list[tuple[Section, int, bytes]]] = {}
        for section in islice(self.elf.of_type(_LANES), _MOST_TABLES):
            if self.broken > _MOST_BROKEN:
                break
            try:
                code, pc, exact, row = self._of_warp(section)
                if code:
                    self._up(section, _DEVICES)
                    found.setdefault((code, pc, exact), []).append((section, row, self._row(section, row)))
            except (ValueError, IndexError, struct.error):
                self.broken += 1
        ordered = sorted(found.items(), key=lambda item: (not item[0][2], -len(item[1])))
        for (code, pc, exact), lanes in ordered[:_MOST_EXCEPTIONS]:
            yield self._describe(code, pc, exact, lanes)

    def _of_warp(self, lanes: Section) -> tuple[int, int, bool, int]:
        """Exception, pc, whether the device reported the pc, and the row of the first lane that met it."""
        pc, _, _, _, _, told = _WARP.unpack_from(self._row(self.elf.section(lanes.link), lanes.info))
        for number, row in enumerate(self._rows(lanes)):
            lane_pc, _, _, _, _, _, code = _LANE.unpack_from(row)
            if code:
                return code, pc if told else lane_pc, bool(told), number
        if told:
            return self._of_sm(lanes), pc, True, 0
        return 0, 0, False, 0

    def _of_sm(self, lanes: Section) -> int:
        """Drivers of CUDA 12 and later report it once for the SM."""
        sms, number = self._up(lanes, _SMS)
        row = self._row(sms, number)
        return int(_SM.unpack_from(row)[2]) if len(row) >= _SM.size else 0

    def _up(self, section: Section, type: int) -> tuple[Section, int]:
        """The row of a table above."""
        for _ in range(4):
            parent, number = self.elf.section(section.link), section.info
            if parent.type == type:
                return parent, number
            section = parent
        raise ValueError("a table has no parent")

    def _describe(self, code: int, pc: int, exact: bool, lanes: list[tuple[Section, int, bytes]]) -> GpuException:
        section, number, lane = lanes[0]
        ctas, cta = self._up(section, _CTAS)
        grid_id, *block = _CTA.unpack_from(self._row(ctas, cta))
        sms, sm = self._up(section, _SMS)
        grid, where = self._grid(grid_id, self._up(section, _DEVICES)[1])
        function = self._function(pc)
        kernel = self._function(grid[3]) if grid else None
        return GpuException(
            code=code,
            pc=pc,
            pc_exact=exact,
            kernel=(kernel or function or (None, 0))[0],
            function=function[0] if function else None,
            offset=pc - function[1] if function else None,
            sm=_SM.unpack_from(self._row(sms, sm).ljust(_SM.size, b"\0"))[0],
            block=(block[0], block[1], block[2]),
            thread=_LANE.unpack_from(lane)[3:6],
            grid=(grid[11], grid[12], grid[13]) if grid else None,
            block_size=(grid[14], grid[15], grid[16]) if grid else None,
            warps=len(lanes),
            registers=self._registers(section, number),
            parameters=self._parameters(where) if where else b"",
        )

    def _grid(self, grid_id: int, device: int) -> tuple[tuple[int, ...] | None, tuple[Section, int] | None]:
        for section in self.elf.of_type(_GRIDS):
            if section.info != device:
                continue
            for number, row in enumerate(self._rows(section)):
                if struct.unpack_from("<Q", row)[0] == grid_id and len(row) >= _GRID.size:
                    return _GRID.unpack_from(row), (section, number)
        return None, None

    def _registers(self, lanes: Section, number: int) -> tuple[int, ...]:
        at = self._register_sections.get((lanes.number, number))
        if at is None:
            return ()
        data = self.elf.content(self.elf.section(at)).read(0, _MOST_REGISTERS * 4)
        return struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])

    @cached_property
    def _register_sections(self) -> dict[tuple[int, int], int]:
        """A real dump has one for each thread of a GPU that was resident: hundreds of thousands."""
        found: dict[tuple[int, int], int] = {}
        for section in self.elf.of_type(_REGISTERS):
            found.setdefault((section.link, section.info), section.number)
        return found

    def _parameters(self, grid: tuple[Section, int]) -> bytes:
        for section in self.elf.of_type(_PARAMETERS):
            if (section.link, section.info) == (grid[0].number, grid[1]):
                return self.elf.content(section).read(0, _MOST_PARAMETER_BYTES)
        return b""

    def _function(self, addr: int) -> tuple[str, int] | None:
        """The function around an address, and its start."""
        for image, section in self._functions:
            if section.addr <= addr < section.addr + section.nbytes:
                return demangle(image.name(section)[len(_TEXT) :]), section.addr
        return None

    @cached_property
    def _functions(self) -> list[tuple[Elf, Section]]:
        """Of the images as they were loaded: a kernel has a section of its own, at its address."""
        found: list[tuple[Elf, Section]] = []
        left = _MOST_IMAGE_SECTIONS
        for section in self.elf.of_type(_RELOCATED_IMAGE):
            try:
                image = Elf(self.elf.content(section))
            except (NotElf, struct.error):
                self.broken += 1
                continue
            left -= image.count
            if left < 0:
                self.broken += 1
                break
            found += [(image, part) for part in image.sections() if image.named(part, _TEXT.encode())]
        return found

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
