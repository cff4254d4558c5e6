"""cuda-error: operators that were given a tensor whose storage had been resized to 0."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary
from tests.support.synth import Box

DEVICE, MIB = 0x7F60_0000_0000, 1 << 20
NO_MEMORY = 1  # in place of an address
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
ASSERT = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
GIVEN = "aten::mul at train.py:20 in step was given a tensor whose storage had been resized to 0 bytes"


def at(box: Box, line: int, script: str = s.SCRIPT) -> Any:
    """A line of the program."""
    return box.code("step", script, line)


def used(name: str = "aten::mul", storages: tuple[int, ...] = (DEVICE, NO_MEMORY), script: str = s.SCRIPT) -> Box:
    """Three launches, of which the second has an operand without memory."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE, 20 * MIB)
    box.devices.alloc(DEVICE, 4 * MIB, at(box, 10), box.epoch)
    box.devices.alloc(DEVICE + 4 * MIB, MIB, at(box, 11, script), box.epoch)
    box.devices.free(DEVICE + 4 * MIB, at(box, 2, script), box.epoch)
    box.device_op("aten::add", at(box, 15), [DEVICE]).device_op(name, at(box, 20), storages)
    return box.device_op("aten::abs", at(box, 30), [DEVICE])


def ended(run: Path, box: Box, message: str = ILLEGAL) -> Any:
    """With a CUDA error."""
    box.at(500).exception("torch.AcceleratorError", message, [("step", s.SCRIPT, 40)]).exit(1)
    launcher = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}
    return build_report(s.load(run, box, launcher=launcher))


def test_an_operand_without_memory_explains_an_illegal_access(run: Path) -> None:
    """It leads what else may have been the one."""
    report = ended(run, used())
    assert GIVEN in summary(report)
    assert "may have been launched by aten::mul at train.py:20" in evidence(report)
    assert "aten::mul may have been the one, and was given a tensor that has elements but no memory" in evidence(report)
    assert "run only after aten::mul at train.py:20 in step" in advice(report)


def test_the_line_that_resized_memory_to_nothing_is_quoted(run: Path, tmp_path: Path) -> None:
    """With where that memory came from."""
    script = tmp_path / "model.py"
    script.write_text("full = 1\nfull.untyped_storage().resize_(0)\n", encoding="utf-8")
    os.utime(script, (1, 1))  # older than the process
    report = ended(run, used(script=str(script)))
    assert "freed in this way at model.py:2 in step (allocated at model.py:11 in step)" in evidence(report)
    assert "Let `full.untyped_storage().resize_(0)` at model.py:2 in step run only after aten::mul" in advice(report)


def test_memory_that_was_freed_otherwise_is_not_said_to_be_the_one(run: Path, tmp_path: Path) -> None:
    """`del` frees as well."""
    script = tmp_path / "model.py"
    script.write_text("full = 1\ndel full\n", encoding="utf-8")
    os.utime(script, (1, 1))  # older than the process
    report = ended(run, used(script=str(script)))
    assert GIVEN in summary(report) and "freed in this way" not in evidence(report)


@pytest.mark.parametrize(
    ("name", "storages"),
    [
        ("aten::mul", (DEVICE, DEVICE + MIB)),  # nothing of the kind
        ("aten::t", (NO_MEMORY,)),  # a view
        ("aten::zeros_like", (NO_MEMORY,)),  # the shape is what it needs
        ("inductor::resize_storage_bytes_", (NO_MEMORY,)),  # gives it memory
    ],
)
def test_what_does_not_touch_the_memory_explains_nothing(run: Path, name: str, storages: tuple[int, ...]) -> None:
    """No line is blamed."""
    report = ended(run, used(name, storages))
    assert "resized to 0" not in summary(report) + advice(report) + evidence(report)


def test_a_launch_that_is_over_explains_nothing(run: Path) -> None:
    """item() has waited for it."""
    box = used()
    box.device_op("aten::_local_scalar_dense", at(box, 35), [DEVICE]).device_op("aten::mm", at(box, 36), [DEVICE])
    report = ended(run, box)
    assert "resized to 0" not in summary(report) + advice(report) + evidence(report)


def test_another_error_is_not_explained_by_it(run: Path) -> None:
    """An assertion has read its values."""
    report = ended(run, used(), ASSERT)
    assert "resized to 0" not in summary(report) + advice(report)
