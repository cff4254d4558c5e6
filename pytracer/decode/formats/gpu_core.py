"""A core dump of a CUDA device: which kernel met which exception, where, and with which register contents.

Such a file is an ELF core for EM_CUDA; `gpu_core_tables` reads its tables, `gpu_core_code` the kernels in it. It
contains the location in the program, not the accessed address: that is computed from the instruction there and the
registers of the threads, where that is certain (`sass`).
"""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pytracer.decode.files import Window, regular_file
from pytracer.decode.formats.gpu_core_tables import Tables
from pytracer.decode.formats.name_pattern import NamePattern
from pytracer.decode.symbols.elf_sections import Elf, NotElf
from pytracer.decode.types.devices import GpuCore

DIRECTORY = "gpu-cores"
SUFFIX = ".nvcudmp"
_EM_CUDA, _ET_CORE = 190, 4
_MOST_NAMES = 100_000  # of a directory
_MOST_FILES = 256
_CUT = "it is cut off: the process ended before the driver had written all of it, or the disk was full"


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
    if _is_begun(content):
        return replace(core, problem=_CUT)
    elf = Elf(content)
    if elf.machine != _EM_CUDA or elf.type != _ET_CORE:
        return replace(core, problem="it is an ELF file, but not a core dump of a CUDA device")
    tables = Tables(elf)
    exceptions = tuple(tables.exceptions())
    problem = _CUT if elf.truncated else "it is damaged: some of its tables are missing" if tables.broken else None
    if not exceptions and problem is None:
        problem = "it holds no exception"
    return replace(core, device=tables.device(), exceptions=exceptions, problem=problem)


def _is_begun(content: Window) -> bool:
    """The driver writes the header first, and the table of sections, to whose place it points, last."""
    head = content.read(0, 64)
    if len(head) < 64 or head[:4] != b"\x7fELF":
        return False
    kind, machine, _, _, _, table = struct.unpack_from("<HHIQQQ", head, 16)
    return (kind, machine) == (_ET_CORE, _EM_CUDA) and int(table) >= content.nbytes
