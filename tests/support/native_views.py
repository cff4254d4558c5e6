"""A process that died in C of its own program, called by ctypes: its sources on disk, and what was recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytracer.decode.types.snapshot import HeldArray, HeldNumber, MemoryBlock, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

DATA, OTHER = 0x5592_1442_D150, 0x5592_1800_0000
_CTYPES = "/usr/lib/python3/_ctypes.cpython-311-x86_64-linux-gnu.so"


def native_view(
    folder: Path, program: str, source: str, *, at: str, way: Sequence[tuple[str, str]], suffix: str = "c",
    numbers: dict[str, int] | None = None, arrays: Sequence[tuple[str, int, str, tuple[int, ...]]] = (),
    memory: Sequence[tuple[str, int, bytes]] = (), registers: dict[str, int] | None = None, addr: int = 1 << 62,
    outer: str | None = None, gone: bool = False, access: str | None = None,
) -> Any:  # fmt: skip
    """A view of the process.

    Args:
        folder: Where program and source are written.
        program: Of Python.
        source: Of the library.
        at: What the failing line of the program has.
        way: The native functions, the innermost first, each with what its running line has.
        suffix: Of the source file.
        numbers: Variables of the failing line.
        arrays: Its arrays: name, address, type and shape.
        memory: Near a register: its name, its value and the content from there on.
        registers: All of them.
        addr: Of the fault.
        outer: What the line that called the failing function has.
        gone: Whether the library was removed, so that no names and lines are known.
        access: How the fault accessed memory: "read" or "write".
    """
    script, code = folder / "train.py", folder / f"ops.{suffix}"
    script.write_text(program, encoding="utf-8")
    code.write_text(source, encoding="utf-8")
    library = folder / "lib" / "libops.so"
    library.parent.mkdir(exist_ok=True)
    if not gone:
        library.write_bytes(b"")

    def line_of(text: str, part: str) -> int:
        return next(n for n, item in enumerate(text.splitlines(), 1) if part in item)

    text = program.splitlines()
    inner = PythonFrame("run", str(script), line_of(program, at))
    frames = [inner, PythonFrame("main", str(script), line_of(program, outer) if outer is not None else len(text))]
    native = [
        NativeFrame(
            function=None if gone else name, image=str(library),
            lines=None if gone else [SourceLine(function=name, file=str(code), line=line_of(source, part))],
        )
        for name, part in way
    ]  # fmt: skip
    shaped = [
        HeldArray(name, data, dtype, shape, _strides(dtype, shape), inner, 0) for name, data, dtype, shape in arrays
    ]
    held = [HeldNumber(name, value, inner, 0) for name, value in (numbers or {}).items()]
    blocks = [MemoryBlock(name, value, value, content) for name, value, content in memory]
    crash = SimpleNamespace(
        arrays=tuple(shaped), holders=(), arguments=(), numbers=tuple(held), memory=tuple(blocks),
        registers=registers or {}, mappings=(), python_stack=tuple(frames), python_threads=(),
        native_stack=(), images=(SimpleNamespace(path=str(library), start=1, end=2),), complete=True,
    )  # fmt: skip
    snapshot = SimpleNamespace(
        pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9), environment={}
    )  # fmt: skip
    return SimpleNamespace(
        native_stack=[*native, NativeFrame(function="ffi_call", image="/lib/libffi.so.8"),
                      NativeFrame(function="_ctypes_callproc", image=_CTYPES)],
        crash=crash, python_stack=None, region_python=(), process=SimpleNamespace(snapshot=snapshot), exception=None,
        space=SimpleNamespace(live_around=lambda base: None), place=SimpleNamespace(addr=addr, kind="unmapped"),
        region_opener=None, fault=SimpleNamespace(access=access) if access is not None else None,
    )  # fmt: skip


def _strides(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    nbytes = int("".join(letter for letter in dtype if letter.isdigit())) // 8
    strides: list[int] = []
    for size in reversed(shape):
        strides.insert(0, nbytes)
        nbytes *= size
    return tuple(strides)
