"""An index that wrapped in a C int, and wild addresses near large buffers that mean nothing of the kind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import HeldArray, HeldNumber, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import advice, died, summary, verdict

pytestmark = needs_capstone

DATA = 0x7E00_0000_1000
REACHED = (1 << 31) + 64_000  # the index that was meant
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
SOURCE = "def view(library, pixels, w, h):\n    library.sample(pixels.ctypes.data, w, h)\n"


def crashed(
    run: Path, addr: int, *, rows: int = 48_000, dtype: str = "uint8", item: int = 1, width: int = 64_000, **how: Any
) -> Report:
    file = run / "view.py"
    file.write_text(SOURCE, encoding="utf-8")
    os.utime(file, (0, 0))
    at = PythonFrame("view", str(file), 2)
    array = HeldArray("pixels", DATA, dtype, (rows, 64_000), (64_000 * item, item), at, 0)
    numbers = (HeldNumber("w", width, at, 0), HeldNumber("h", rows, at, 0))
    how = {"stack_of": [(s.VICTIM, "sample"), PYTHON], **how}
    return died(
        run, addr=addr, registers={"rdx": addr}, code_bytes=LOAD, python=[("view", str(file), 2)], arrays=(array,),
        numbers=numbers, **how,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "item"), [("uint8", 1), ("float32", 4)])
def test_address_before_a_large_buffer_is_an_index_beyond_an_int(dtype: str, item: int, run: Path) -> None:
    report = crashed(run, DATA + (REACHED - (1 << 32)) * item, dtype=dtype, item=item)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert f"before `pixels` [48000, 64000] {dtype}, where an index beyond 2**31 leads" in summary(report)
    assert "`w` * `h` = 3072000000 passes 2**31" in advice(report)


def test_without_such_a_product_it_is_merely_possible(run: Path) -> None:
    report = crashed(run, DATA + REACHED - (1 << 32), width=3)
    assert verdict(report) == ("out-of-bounds", "possible")
    assert "passes 2**31" not in advice(report)


@pytest.mark.parametrize(
    ("addr", "how"),
    [
        (DATA + REACHED - (1 << 32), {"rows": 30_000}),  # smaller than that
        (DATA - (1 << 31) - 4096, {}),  # farther than an int leads
        (DATA + (1 << 32), {}),  # behind it
        (DATA + REACHED - (1 << 32), {"stack_of": [(s.TORCH_CPU, "at::native::f(at::Tensor const&)"), PYTHON]}),
    ],
    ids=["small buffer", "too far", "behind", "torch"],
)
def test_other_addresses_do_not_mean_that(addr: int, how: dict[str, Any], run: Path) -> None:
    report = crashed(run, addr, **how)
    assert "2**31" not in summary(report) and "2**31" not in advice(report)
