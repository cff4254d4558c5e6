"""view() of the output of a layer that tensor parallelism cut: what the size of each rank is."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

SOURCE = "def forward(x):\n    return x.view(2, 5, 3, 6, 8)\nplan = {0}\nforward(1)\n"


@pytest.mark.parametrize(
    ("plan", "size", "named"),
    [
        ("{'qkv': ColwiseParallel()}", 720, True),
        ("{'qkv': ColwiseParallel()}", 800, False),  # no whole share
        ("{'qkv': RowwiseParallel()}", 720, False),
    ],
)
def test_share_of_a_rank(plan: str, size: int, named: bool, tmp_path: Path) -> None:
    """Where the sizes are a whole number apart."""
    file = tmp_path / "train.py"
    file.write_text(SOURCE.format(plan), encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [
        PythonFrame(function="forward", file=str(file), line=2),
        PythonFrame(function="<module>", file=str(file), line=4),
    ]
    message = f"shape '[2, 5, 3, 6, 8]' is invalid for input of size {size}"
    words = explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames).words or ""
    assert ("takes 1440, 2 times as many. ColwiseParallel leaves each rank its share" in words) == named
    assert ("ColwiseParallel" in words) == named


LAYER = """class Net(nn.Module):
    def __init__(self, width, {out}=64):
        self.heads = 8
        self.up = nn.Linear(width, out)
        self.down = nn.Linear(out, width)
    def forward(self, x):
        h = {made}
        return {use}
parallelize_module(net, mesh, {{'{key}': {style}}})
net = Net(16)
net.forward(1)
"""
VIEW = ("shape '[2, 8, 8]' is invalid for input of size 64", "h.view(2, self.heads, 8)")
PRODUCT = ("mat1 and mat2 shapes cannot be multiplied (2x32 and 64x16)", "self.down(h)")


def cut(folder: Path, error: tuple[str, str], *, out: str = "out", world: int = 2, **parts: str) -> Explanation:
    file = folder / "train.py"
    texts = {"made": "F.gelu(self.up(x))", "key": "layers.0.up", "style": "ColwiseParallel()", "use": error[1], **parts}
    file.write_text(LAYER.format(out=out, **texts), encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        argv=(), created_wall_ns=time.time_ns() + 10**9, rank=SimpleNamespace(world_size=world)
    )
    frames = [
        PythonFrame(function="linear", file="/x/site-packages/torch/nn/functional.py", line=1),
        PythonFrame(function="forward", file=str(file), line=8),
        PythonFrame(function="<module>", file=str(file), line=11),
    ]
    held = [VariableReport(name="h", value="[2, 32] float32"), VariableReport(name="self.heads", value="8")]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=error[0], variables=held), frames)


def test_view_by_the_number_of_all_heads(tmp_path: Path) -> None:
    """With the line of the plan, and the variable that is still that of the whole layer."""
    found = cut(tmp_path, VIEW)
    assert found.subject == (
        "`self.up` is ColwiseParallel (line 9), `h` [2, 32] has this rank's 1/2 of it, and `self.heads` is still 8"
    )
    assert found.words is not None and "has 32 of 64. `self.heads` 8" in found.words and "(8 // 2 = 4)" in found.words


def test_layer_behind_one_that_was_cut(tmp_path: Path) -> None:
    """It needs the other half of the plan."""
    found = cut(tmp_path, PRODUCT)
    assert found.subject == "`self.up` is ColwiseParallel (line 9), `h` [2, 32] has this rank's 1/2 of it"
    assert found.words is not None and "give it RowwiseParallel() in the plan" in found.words


@pytest.mark.parametrize(
    "parts",
    [
        {"key": "layers.0.down"},
        {"style": "RowwiseParallel()"},
        {"style": "ColwiseParallel(output_layouts=Replicate())"},
        {"made": "self.other(x)"},
        {"out": "size"},  # a layer of unknown columns, with more ranks than shares
    ],
)
def test_tensors_that_were_not_cut(parts: dict[str, Any], tmp_path: Path) -> None:
    """Another layer, another style, or a size that does not prove it."""
    world = 4 if "out" in parts else 2
    found = cut(tmp_path, PRODUCT, world=world, **parts)
    assert "ColwiseParallel" not in f"{found.subject}{found.words}"
    assert found.failure is None
