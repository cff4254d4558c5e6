"""Tensors on device meta, whose address is null in native code of an extension."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, evidence, summary

pytestmark = needs_capstone

LOAD = bytes.fromhex("f30f1000")  # movss xmm0, dword ptr [rax]
NATIVE = [
    ("/home/me/scale.so", "scale_rows(at::Tensor, at::Tensor)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
SOURCE = """class Scale(nn.Module):
    def forward(self, x):
        return ext.scale_rows(x, self.gain)
with torch.device("meta"):
    layer = Scale(512)
if layer.gain.device == torch.device("meta"):
    print("no weights yet")
layer(x)
"""


def told(run: Path, device: str | None, source: str = SOURCE) -> str:
    """Headline, evidence and advice. `device`: of the tensor that the function was given."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))
    frame = PythonFrame("Scale.forward", str(file), 3)
    gain = Argument(
        0x5581_0000_00FF, 0, 512, 0, (512,), 1, "float32", device, minimum=None, maximum=None, frame=0, outer_frame=1,
        register=None, how="reference",
    )  # fmt: skip
    how: dict[str, Any] = {"arguments": (gain,)} if device is not None else {}
    report = died(
        run, addr=0, stack_of=NATIVE, python=[("Scale.forward", str(file), 3), ("<module>", str(file), 8)],
        registers={"rax": 0}, code_bytes=LOAD, mappings=[PROGRAM],
        holders=(Holder("local", "self._parameters['gain']", 0, frame, True, elements=512),), **how,
    )  # fmt: skip
    return f"{summary(report)} {evidence(report)} {advice(report)}"


def test_a_tensor_on_device_meta_was_not_resized(run: Path) -> None:
    said = told(run, "meta")
    assert "`self.gain` (512 elements) is on device meta, which has no memory; line 4 makes tensors there." in said
    assert "Give `self.gain` memory before line 3: module.to_empty(device='cpu')" in said
    assert "line 4 (`torch.device('meta')`) makes tensors that have none" in said
    assert "resize" not in said


def test_no_line_is_named_where_several_make_such_tensors(run: Path) -> None:
    said = told(run, "meta", SOURCE.replace("layer(x)", 'layer.to("meta")(x)'))
    assert "is on device meta, which has no memory." in said and "line 4" not in said


@pytest.mark.parametrize("device", ["cpu", None])
def test_a_tensor_of_the_cpu_or_of_an_unknown_device_is_none_of_these(device: str | None, run: Path) -> None:
    assert "on device meta" not in told(run, device)
