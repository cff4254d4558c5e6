"""An index that the program's own native code made of floats that are NaN, and what only looks like it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, HeldArray, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import advice, died, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

PLANE, NBYTES = 0x5582_0000_0040, 73728
ROIS, OUT, LOSS, TABLE = 0x5583_0000_0040, 0x5583_0000_8040, 0x5583_0001_0040, 0x5583_0002_0040
SMALLEST = -(1 << 31)
MULSS = bytes.fromhex("f3420f593c9f")  # mulss xmm7, dword ptr [rdi + r11*4]
PROGRAM = """\
import torch
def pool(lib, plane, rois):
    out = torch.empty(len(rois), 5)
    lib.pool(plane.data_ptr(), rois.data_ptr(), table.data_ptr(), len(rois), out.data_ptr())
    return out
def train(lib, net, images):
    optimizer = torch.optim.SGD(net.parameters())
    {loop}:
        loss = pool(lib, image, net(image) / image.norm()).mean()
        loss.backward()
        optimizer.step()
train(lib, net, images)
"""


def crashed(
    run: Path,
    *,
    nans: dict[str, int | None],
    index: int = SMALLEST,
    dtype: str = "float32",
    minimum: int | None = None,
    loop: str = "for image in images",
    step: int = 0,
    library: str = "libpool.so",
    nbytes: int = NBYTES,
    arrays: str | None = None,
) -> Report:
    """`nans`: of each variable how many of its numbers are NaN; None where they were not read."""
    file = run / "train.py"
    file.write_text(PROGRAM.format(loop=loop), encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    inner, outer = PythonFrame("pool", str(file), 4), PythonFrame("train", str(file), 9)
    sizes: dict[str, tuple[int, tuple[int, ...], PythonFrame]] = {
        "plane": (PLANE, (128, 144), inner), "rois": (ROIS, (4, 5), inner), "out": (OUT, (4, 5), inner),
        "table": (TABLE, (6,), inner), "loss": (LOSS, (), outer),
    }  # fmt: skip
    holders, arguments, box = [], [], Box(pid=101).alloc(PLANE, nbytes)
    for name, (base, shape, frame) in sizes.items():
        elements = 1
        for size in shape:
            elements *= size
        of_table = name == "table"
        holders.append(Holder("local", name, base, frame, own=True, pthread=1, elements=elements))
        arguments.append(
            Argument(
                base - 8, base, elements, 0, shape, len(shape), dtype if of_table else "float32", "cpu",
                minimum if of_table else None, 5 if of_table and minimum is not None else None, None, None, None,
                "held",
                strides=(5, 1)[-len(shape) :] if shape else (), nans=nans.get(name, 0), infinite=False,
            )
        )  # fmt: skip
        if base != PLANE:
            box = box.alloc(base, max(4 * elements, 64))
    how: dict[str, Any] = {"holders": tuple(holders), "arguments": tuple(arguments)}
    if arrays is not None:
        how["arrays"] = (HeldArray("table", TABLE, arrays, (6,), (4,), inner, 0),)
    return died(
        run, box=box.step(step) if step else box, addr=PLANE + 4 * index, code_bytes=MULSS,
        registers={"rdi": PLANE, "r11": index % (1 << 64)},
        stack_of=[
            (s.TORCH_CPU if library == "torch" else str(run / library), "pool"),
            (s.PYTHON, "_PyEval_EvalFrameDefault"),
        ],
        python=[("pool", str(file), 4), ("train", str(file), 9), ("<module>", str(file), 12)], **how,
    )  # fmt: skip


def test_floats_that_are_nan_are_named_with_what_can_have_made_them(run: Path) -> None:
    report = crashed(run, nans={"rois": 4})
    assert verdict(report) == ("out-of-bounds", "certain")
    assert "`rois` has NaN in 4 of 20 numbers; line 9 divides by `image.norm()`, which may be 0" in summary(report)
    assert "`assert torch.isfinite(rois).all()` before line 4" in advice(report)
    assert "round before" not in summary(report)


def test_a_column_beside_it_is_as_well(run: Path) -> None:
    """Where only one of both coordinates is NaN."""
    assert "`rois` is all NaN" in summary(crashed(run, nans={"rois": 20}, index=SMALLEST + 300))


def test_loss_of_the_round_before_is_told_where_it_was_nan(run: Path) -> None:
    told = crashed(run, nans={"rois": 20, "loss": 1}, step=3)
    assert "`rois` is all NaN, and `loss` of the round before was NaN" in summary(told)
    assert "Stop where `loss` is not finite, before its backward()" in advice(told)


@pytest.mark.parametrize("how", [{"step": 0}, {"step": 3, "loop": "if image := images"}], ids=["no step", "no loop"])
def test_loss_without_an_update_is_of_no_round_before(how: dict[str, Any], run: Path) -> None:
    assert "round before" not in summary(crashed(run, nans={"rois": 20, "loss": 1}, **how))


@pytest.mark.parametrize(
    "how",
    [
        {"nans": {}},
        {"nans": {"plane": 7}},
        {"nans": {"out": 7}},
        {"nans": {"loss": 1}},
        {"nans": {"rois": 4}, "index": -(1 << 30)},
        {"nans": {"rois": 4}, "dtype": "int32", "minimum": SMALLEST},
        {"nans": {"rois": 4}, "dtype": "int32"},
        {"nans": {"rois": 4}, "arrays": "int32"},
        {"nans": {"rois": 4}, "library": "torch"},
        {"nans": {"rois": 4}, "nbytes": 9 << 30},
    ],
    ids=["all finite", "what is indexed", "room for a result", "of another line", "another index", "an integer before",
         "integers not read", "an array of integers",
         "a kernel of torch", "cut off at 32 bits"],
)  # fmt: skip
def test_other_floats_and_other_indices_are_not(how: dict[str, Any], run: Path) -> None:
    report = crashed(run, **how)
    assert "NaN in" not in summary(report) and "all NaN" not in summary(report)


def test_floats_whose_numbers_were_not_read_are_what_to_check(run: Path) -> None:
    report = crashed(run, nans={"rois": None, "plane": None})
    assert "NaN" not in summary(report)
    assert "Check `rois` with isfinite() before line 4 passes it: -2147483648 is what the processor" in advice(report)
