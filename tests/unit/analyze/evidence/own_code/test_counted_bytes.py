"""A count in bytes that a C function takes for a number of elements: by the source and the recorded numbers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.counted_bytes import counted_bytes
from pytracer.decode.types.snapshot import HeldArray, HeldNumber, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """float absmax(const float *w, long n, long k) {
    float m = 0.f;
    {before}
    for (long i = 0; i < {bound}; i++) {
        {use}
    }
    return m;
}
"""
PROGRAM = """import numpy as np


def scale(lib, weights, other):
    w = np.ascontiguousarray(weights)
    n = {count}
    return lib.absmax({pointer}, {passed}, 3) / 127


scale(1, 2, 3)
"""


def view_of(
    folder: Path,
    *,
    count: str = "w.nbytes",
    passed: str = "n",
    pointer: str = "w.ctypes.data",
    bound: str = "n",
    before: str = "",
    use: str = "if (w[i] > m) m = w[i];",
    value: int = 4096 * 4,
    dtype: str = "float32",
) -> Any:
    """A process that died in that loop; `w` has 4096 elements."""
    file, library, program = folder / "quant.c", folder / "libquant.so", folder / "train.py"
    text = SOURCE
    for name, words in (("before", before), ("bound", bound), ("use", use)):
        text = text.replace(f"{{{name}}}", words)
    file.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM.format(count=count, passed=passed, pointer=pointer), encoding="utf-8")
    os.utime(file, (1000, 1000))
    frame = PythonFrame("scale", str(program), 7)
    crash = SimpleNamespace(
        arrays=(HeldArray("w", 0x5600_0000_0000, dtype, (64, 64), (256, 4), frame, 0),),
        numbers=(HeldNumber("n", value, frame, 0),), holders=(), arguments=(),
        python_stack=(frame, PythonFrame("<module>", str(program), 10)), python_threads=(), native_stack=(),
        registers={}, images=(SimpleNamespace(path=str(library), start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[NativeFrame(function="absmax", image=str(library), lines=[SourceLine("absmax", str(file), 5)])],
        crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=(),
        space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_size_in_bytes_that_is_taken_for_elements_is_named_with_the_line_that_made_it(tmp_path: Path) -> None:
    found = counted_bytes(view_of(tmp_path))
    assert found is not None
    assert found.summary == (
        "`n` = 16384 is the size of `w` in bytes, and quant.c:5 counts elements of float by it, of which there are 4096"
    )
    assert found.advice == (
        "Pass `w`'s number of elements at line 7, 4096 (numel() of a tensor, size of an array), instead of `n`: line 6 "
        "(`w.nbytes`) counts bytes, and an element of float has 4."
    )


@pytest.mark.parametrize(
    "how", [{"passed": "w.nbytes"}, {"passed": "w.size * w.itemsize"}, {"count": "weights.nbytes"}]
)
def test_other_ways_to_write_the_size_are_found(how: dict[str, Any], tmp_path: Path) -> None:
    found = counted_bytes(view_of(tmp_path, **how))
    assert found is not None and found.value == 4096 * 4


@pytest.mark.parametrize(
    "how",
    [
        {"count": "other.size"},  # of four times as many elements
        {"value": 4096},
        {"value": 4096 * 4 + 1},
        {"dtype": "float64"},
        {"pointer": "w[8:].ctypes.data"},
        {"before": "n /= 4;"},
        {"before": "n >>= 2;"},
        {"bound": "n / 4"},
        {"bound": "k"},
        {"use": "if (w[i / 4] > m) m = w[i / 4];"},
        {"use": "if (table[i] > m) m = table[i];"},
    ],
)
def test_numbers_that_are_no_bytes_or_that_the_line_does_not_count_by_are_not_told(
    how: dict[str, Any], tmp_path: Path
) -> None:
    assert counted_bytes(view_of(tmp_path, **how)) is None
