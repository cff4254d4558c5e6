"""Indices of floats that are read with another size than the array has, by the C source and the array's type."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.wild.misread_floats import misread_floats
from pytracer.decode.types.snapshot import HeldArray, MemoryBlock, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdint.h>
void deposit(double *grid, const {x} *x, const double *weight, int64_t n)
{{
    for (int64_t i = 0; i < n; i++) {{
        int64_t cell = (int64_t)(x[i] / 4.0);
        {store}
    }}
}}
"""
STORE = "grid[cell] += weight[i];"
PROGRAM = """def run(lib, grid, rows):
    {call}


run(1, 2, 3)
"""
CALL = 'lib.deposit(grid.ctypes.data, rows["x"].ctypes.data, rows["w"].ctypes.data, 64)'
GRID, X, WEIGHT = 0x5600_0000_1000, 0x5600_0000_8000, 0x5600_0001_0000


def view_of(
    folder: Path,
    *,
    x: str = "float32",
    weight: str = "float64",
    taken: str = "double",
    store: str = STORE,
    call: str = CALL,
    memory: bytes = b"",
    source: bool = True,
) -> Any:
    """A process that died in `deposit()`; `x`, `weight`: types of the arrays; `memory`: where `x` begins."""
    file, library, program = folder / "grid.c", folder / "libgrid.so", folder / "train.py"
    if source:
        file.write_text(SOURCE.format(x=taken, store=store), encoding="utf-8")
    library.touch()
    program.write_text(PROGRAM.format(call=call), encoding="utf-8")
    frame = PythonFrame("run", str(program), 2 + call.count("\n"))
    at = [SourceLine(function="deposit", file=str(file), line=6)]
    own = NativeFrame(function="deposit", image=str(library), lines=at)
    arrays = tuple(
        HeldArray(name, data, dtype, (64,), (int(dtype[-2:]) // 8,), frame, 0)
        for name, data, dtype in (("grid", GRID, "float64"), ("rows['x']", X, x), ("rows['w']", WEIGHT, weight))
    )
    crash = SimpleNamespace(
        arrays=arrays, numbers=(), holders=(), arguments=(), python_stack=(frame,), python_threads=(), registers={},
        images=(SimpleNamespace(path=str(library), start=1, end=2),), native_stack=(), complete=True,
        memory=(MemoryBlock("rsi", X, X - 8, bytes(8) + memory),) if memory else (),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=()
    )


def test_array_whose_floats_are_read_by_twos_is_named(tmp_path: Path) -> None:
    """With what the first of them becomes."""
    view = view_of(tmp_path, memory=struct.pack("<4f", 45.25, 49.5, 3.0, 8.0))
    found = misread_floats(view)
    assert found is not None and found.confidence(view) == "likely"
    assert found.clause(view) == (
        ": `rows['x']` [64] float32, which line 2 passes, has elements of 4 bytes, and deposit() (grid.c:2) takes "
        "double, of 8, for `x`, and makes an index of it"
    )
    assert found.advice(view).startswith(
        "Make `rows['x']` float64 (`.astype(np.float64)`, kept in a variable until the call has returned) before line 2"
    )
    numbers = found.evidence(view, None)[0]
    assert numbers is not None
    assert numbers.sentence == "element 0 of `rows['x']` is read wrong: 45.25 and 49.5 are 1.89e+11 as one double"


def test_halves_of_doubles_that_are_read_as_floats_lead_anywhere_too(tmp_path: Path) -> None:
    view = view_of(tmp_path, x="float64", taken="float", memory=struct.pack("<2d", 1.1, 45.3))
    found = misread_floats(view)
    assert found is not None and found.unfit.name == "rows['x']" and "takes float, of 4" in found.clause(view)


@pytest.mark.parametrize(
    ("memory", "confidence"),
    [(b"", "likely"), (struct.pack("<4f", 0.25, 0.5, 0.125, 0.75), "possible")],
    ids=["not recorded", "only small numbers"],
)
def test_memory_without_a_large_number_says_less(memory: bytes, confidence: str, tmp_path: Path) -> None:
    view = view_of(tmp_path, memory=memory)
    found = misread_floats(view)
    assert found is not None and found.confidence(view) == confidence and found.evidence(view, None)[0] is None


def test_others_of_the_call_are_named_in_the_advice(tmp_path: Path) -> None:
    """By a list of pointers that the call unpacks."""
    call = 'c = [rows[k].ctypes.data for k in ("x", "w")]\n    lib.deposit(grid.ctypes.data, *c, 64)'
    found = misread_floats(view := view_of(tmp_path, weight="float32", call=call))
    assert found is not None and found.unfit.name == "rows['x']"
    assert found.advice(view).startswith("Make `rows['x']` and `rows['w']` float64 (")
    assert " before line 2, or let deposit() (grid.c:2) take elements of 4 bytes" in found.advice(view)


@pytest.mark.parametrize(
    "options",
    [
        {"x": "float64"},
        {"x": "float64", "weight": "float32"},
        {"x": "float32", "taken": "float"},
        {"x": "float64", "taken": "char"},
        {"store": "grid[i] += x[i] * weight[i] + cell * 0;"},
        {"call": CALL.replace('rows["x"].', 'rows["x"].astype(float).')},
        {"call": CALL.replace("lib.deposit(", "lib.other(")},
        {"source": False},
    ],
    ids=[
        "its type",
        "no index is made of it",
        "float",
        "any memory",
        "no index",
        "a copy",
        "another call",
        "no source",
    ],
)
def test_other_calls_pass_nothing_that_is_misread(options: dict[str, Any], tmp_path: Path) -> None:
    """The look-alikes: the type fits, what does not is only computed with, or is not known."""
    assert misread_floats(view_of(tmp_path, **options)) is None
