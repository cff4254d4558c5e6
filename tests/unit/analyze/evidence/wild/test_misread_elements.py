"""Indices that are two integers of 32 bits, read as one: by the C source, by the array's memory, by the number."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.native_bounds import line_before, native_bounds
from pytracer.analyze.evidence.wild import misread_elements as module
from pytracer.analyze.evidence.wild.far_index import FarIndex
from pytracer.analyze.evidence.wild.misread_elements import misread_elements
from pytracer.decode.types.snapshot import HeldArray, MemoryBlock, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdint.h>
void step(long *pos, const int64_t *act, long n, const int32_t *keys, long slot)
{
    for (long i = 0; i < n; i++) {
        long x = pos[i] + dx[act[i]];
        if (x > 0) pos[i] = x;
        total += table[keys[i] + slot];
    }
}
"""
PROGRAM = """def run(lib, pos, acts, keys):
    {call}


run(1, 2, 3, 4)
"""
CALL = "lib.step(pos.ctypes.data, acts.ctypes.data, 64, keys.ctypes.data, 3)"
ACTS, KEYS = 0x5600_0000_1000, 0x5600_0000_8000
TWO = 3 * 2**32 + 1


def view_of(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: int = TWO,
    *,
    acts: str | None = "int32",
    keys: str | None = None,
    source: bool = True,
    memory: bytes = b"",
    line: int = 6,
) -> Any:
    """A process that died in a C function at a line; `acts`, `keys`: types of arrays; `memory`: where `acts` begins."""
    file, library, program = folder / "ops.c", folder / "libops.so", folder / "train.py"
    if source:
        file.write_text(SOURCE, encoding="utf-8")
        os.utime(file, (1000, 1000))
    library.write_bytes(b"")
    program.write_text(PROGRAM.format(call=CALL), encoding="utf-8")
    frame = PythonFrame("run", str(program), 2)
    at = [SourceLine(function="step", file=str(file), line=line)] if source else None
    own = NativeFrame(function="step", image=str(library), lines=at)
    arrays = tuple(
        HeldArray(name, data, dtype, (64,), (8 if dtype == "int64" else 4,), frame, 0)
        for name, data, dtype in (("acts", ACTS, acts), ("keys", KEYS, keys))
        if dtype is not None
    )
    crash = SimpleNamespace(
        arrays=arrays, numbers=(), holders=(), arguments=(), python_stack=(frame,), python_threads=(), registers={},
        images=(SimpleNamespace(path=str(library), start=1, end=2),), native_stack=(), complete=True,
        memory=(MemoryBlock("r10", ACTS, ACTS - 4, bytes(4) + memory),) if memory else (),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    monkeypatch.setattr(module, "far_index", lambda view: FarIndex("r9", "r15", value, 8, stack=False))
    return SimpleNamespace(
        native_stack=[own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), space=SimpleNamespace(live_around=lambda addr: None), fault=SimpleNamespace(access="read"),
        instruction=SimpleNamespace(index="r15", text="add rdx, qword ptr [r9 + r15*8]", size=8),
    )  # fmt: skip


def test_array_that_the_source_reads_with_another_type_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(tmp_path, monkeypatch)
    found = misread_elements(view)
    assert found is not None and found.confidence(view) == "likely"
    assert found.clause(view) == (
        ": the index 12884901889 is 1 + 3 * 2**32, two integers of 32 bits read as one; `acts` [64] int32, which "
        "line 2 passes, has elements of 4 bytes, and step() (ops.c:2) takes int64_t, of 8, for `act`"
    )
    assert found.advice(view).startswith("Make `acts` int64 before line 2, or let step() (ops.c:2) take elements of 4")
    used = found.evidence(view, None)[1]
    assert used is not None and used.sentence == "ops.c:5 indexes by an element of `act`: `dx[act[i]]`"


@pytest.mark.parametrize(
    ("memory", "confidence"), [(b"\1\0\0\0\3\0\0\0", "likely"), (b"\7\0\0\0\1\0\0\0\3\0", "possible")]
)
def test_without_source_the_memory_of_the_array_shows_it(
    memory: bytes, confidence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At an even element; else only the number is like that."""
    view = view_of(tmp_path, monkeypatch, source=False, memory=memory)
    found = misread_elements(view)
    assert found is not None and found.confidence(view) == confidence
    assert "of `acts` [64] int32, which line 2 passes" in found.clause(view)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (TWO, {"acts": "int64"}),
        (TWO, {"acts": "int64", "keys": "int32"}),
        (10**12, {}),
        (0x7F8A_1234_5678, {}),
        (-7, {}),
        (1 << 40, {"source": False}),
        (TWO, {"source": False, "keys": "int32"}),
        (TWO, {"source": False, "acts": "int64"}),
    ],
    ids=[
        "its type",
        "a right array beside it",
        "a large half",
        "an address",
        "negative",
        "a power of two",
        "two",
        "none",
    ],
)
def test_other_indices_are_not_two(
    value: int, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-alikes: the array has the type that C reads, or the number says nothing."""
    assert misread_elements(view_of(tmp_path, monkeypatch, value, **options)) is None


def test_line_that_only_sets_elements_read_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizing compiler gives the load of `dx[act[i]]` the line of the next statement."""
    view = view_of(tmp_path, monkeypatch)
    bounds = native_bounds(view)
    assert bounds is not None and bounds.words.startswith("ops.c:5 is `long x = pos[i] + dx[act[i]];`")
    assert line_before(view) == "ops.c:5-6"


@pytest.mark.parametrize("change", ["line", "access", "plain"])
def test_a_line_that_may_have_made_the_access_is_kept(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-alikes: it reads an element, it was a write, or what was read is no element."""
    view = view_of(tmp_path, monkeypatch, line=7 if change == "line" else 6)
    if change == "access":
        view.fault.access = "write"
    if change == "plain":
        view.instruction.index = None
    bounds = native_bounds(view)
    assert line_before(view) is None
    assert bounds is not None and bounds.place == ("ops.c:7" if change == "line" else "ops.c:6")
