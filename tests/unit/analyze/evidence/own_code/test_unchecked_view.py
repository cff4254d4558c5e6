"""Views by as_strided() that are larger than what they are made of, and those that are right."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import HeldArray, HeldNumber, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support.deaths import PROGRAM, advice, died, evidence, summary, verdict

pytestmark = needs_capstone

DATA, COUNT = 0x7F00_0000_0000, 960_000
END = DATA + 4 * COUNT
MAPPED = (DATA - 0x1000, END + 0xC00, "rw-p", 0, "")
LOAD = bytes.fromhex("8b02")  # mov eax, dword ptr [rdx]
IMPORT = "from numpy.lib.stride_tricks import as_strided\n"
BOUND = "def mean(wave, n):\n    windows = as_strided(wave, ({}), strides={})\n    return windows.mean()\n"
PASSED = """def frames(wave, size, hop):
    count = 1 + (len(wave) - size) // hop
    step = wave.strides[0]
    return as_strided(wave, (count, size), ({}, step))
def features(wave, size, hop):
    return frames(wave, size, hop) * 2
features(load(), 400, 160)
"""


def crashed(run: Path, source: str, line: int, arrays: dict[str, Any], addr: int, **how: Any) -> Report:
    """`arrays`: shape and strides of variables of the line, all of one type."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    past = time.time() - 10**9  # before the recorded process began
    os.utime(file, (past, past))
    function = "features" if "def features" in source else "mean"
    at = PythonFrame(function, str(file), line)
    dtype = how.pop("dtype", "float32")
    held = [HeldArray(name, DATA, dtype, shape, steps, at, 0) for name, (shape, steps) in arrays.items()]
    numbers = [HeldNumber(name, value, at, 0) for name, value in how.pop("numbers", {}).items()]
    python = [(function, str(file), line), *how.pop("below", [])]
    of_tensors = [Holder("local", name, base, at, True, 1, elements=COUNT) for name, base in how.pop("of", {}).items()]
    return died(
        run, addr=addr, registers={"rdx": addr}, code_bytes=LOAD, python=python, arrays=tuple(held),
        numbers=tuple(numbers), holders=tuple(of_tensors), mappings=[PROGRAM, MAPPED], **how,
    )  # fmt: skip


def test_a_view_that_a_variable_held_is_beyond_its_array_for_certain(run: Path) -> None:
    """Strides as of float64."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((COUNT - 19, 20), (8, 8))}
    report = crashed(run, IMPORT + BOUND.format("n, 20", "(8, 8)"), 4, arrays, END + 0x2000)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert "`windows`, a view of `wave` that as_strided() makes at line 3, reaches 7.3 MiB" in summary(report)
    assert summary(report).endswith("; its strides are of elements of 8 bytes, not 4.")
    assert advice(report).startswith("Use `wave.strides` at line 3, not (8, 8): an element of `wave` has 4 bytes.")
    assert f"{END + 0x2000 - END} bytes behind it" in evidence(report)


def test_a_shape_that_is_too_large_is_told_with_what_fits(run: Path) -> None:
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((6000, 400), (1600, 4))}
    report = crashed(run, IMPORT + BOUND.format("n, 400", "(1600, 4)"), 4, arrays, END + 0x2000)
    assert "for these strides `wave` has 2400 of 6000 in the first dimension" in advice(report)


@pytest.mark.parametrize("stride", ["hop * wave.itemsize * step", "wave.strides[0] * step * hop"])
def test_a_stride_with_the_bytes_of_an_element_twice_is_computed_from_the_source(stride: str, run: Path) -> None:
    """No variable held the view: the function that made it has returned."""
    arrays = {"wave": ((COUNT,), (4,))}
    report = crashed(
        run, IMPORT + PASSED.format(stride), 7, arrays, END + 0x1000, numbers={"size": 400, "hop": 160}
    )  # fmt: skip
    assert verdict(report) == ("out-of-bounds", "likely")
    assert f"the stride `{stride}` has the bytes of an element twice" in summary(report)
    assert "shape [5998, 400] and strides [2560, 4] in bytes" in evidence(report)
    assert advice(report).startswith(f"Take the element size out of the stride `{stride}` at line 5")


def test_elements_of_one_byte_make_no_stride_too_large(run: Path) -> None:
    """Their size changes nothing: the shape is what does not fit."""
    source = IMPORT + BOUND.format("n, 400", "(wave.strides[0] * wave.itemsize, 1)")
    arrays = {"wave": ((4 * COUNT,), (1,)), "windows": ((8 * COUNT, 400), (1, 1))}
    report = crashed(run, source, 4, arrays, END + 0x2000, dtype="uint8")
    assert "`windows`, a view of `wave`" in summary(report) and "twice" not in summary(report)
    assert "has 3839601 of 7680000 in the first dimension" in advice(report)


def test_a_stride_of_a_number_like_the_size_is_no_such_product(run: Path) -> None:
    """Four elements further: right where the count fits."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((COUNT, 400), (16, 4))}
    report = crashed(run, IMPORT + BOUND.format("n, 400", "(wave.strides[0] * 4, 4)"), 4, arrays, END + 0x2000)
    assert "twice" not in summary(report) and advice(report).startswith("Correct the shape (960000, 400)")


def test_the_memory_of_a_tensor_is_told_by_its_name(run: Path) -> None:
    """Where no other array has its first byte, the tensor's storage is what counts; here none is known."""
    source = IMPORT + BOUND.format("n, 20", "(8, 8)").replace("wave, (", "wave.numpy(), (")
    arrays = {"windows": ((COUNT - 19, 20), (8, 8))}
    assert "as_strided() makes" not in summary(crashed(run, source, 4, arrays, END + 0x2000, of={"wave": DATA}))


@pytest.mark.parametrize(
    ("source", "arrays", "addr"),
    [
        (BOUND.format("n, 400", "(4, 4)"), {"windows": ((COUNT - 399, 400), (4, 4))}, END + 0x2000),
        (BOUND.format("n, 20", "(8, 8)"), {"windows": ((COUNT - 19, 20), (8, 8))}, END + (64 << 20)),
        (BOUND.replace("as_strided", "torch.as_strided").format("n, 20", "(8, 8)"), {"windows": ((9, 9), (8, 8))}, END),
        (BOUND.replace("windows.mean", "windows.copy").format("n, 20", "(8, 8)"), {}, END + 0x2000),
        (BOUND.replace("return windows", "return wave").format("n, 20", "(8, 8)"), {}, END + 0x2000),
    ],
    ids=["a view that fits", "an address elsewhere", "torch's, which checks", "size not known", "not of the line"],
)
def test_other_faults_are_not_the_view_s(source: str, arrays: dict[str, Any], addr: int, run: Path) -> None:
    report = crashed(run, IMPORT + source, 4, {"wave": ((COUNT,), (4,)), **arrays}, addr)
    assert "as_strided() makes" not in summary(report)


def test_a_fault_is_told_once(run: Path) -> None:
    """Another explanation of it is a finding, marked as such."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((COUNT - 19, 20), (8, 8))}
    report = crashed(run, IMPORT + BOUND.format("n, 20", "(8, 8)"), 4, arrays, END + 0x2000)
    causes = [
        (item.id, item.same_fault) for item in report.findings or () if item.id in ("unchecked-view", "wild-pointer")
    ]
    assert causes == [("unchecked-view", None), ("wild-pointer", True)]
