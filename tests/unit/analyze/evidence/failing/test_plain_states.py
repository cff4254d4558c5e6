"""A state of plain tensors that is loaded into the optimizer of sharded parameters; and look-alikes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

SOURCE = """def run_steps(net, optimizer, steps):
    for step in range(steps):
        net(x).sum().backward()
        optimizer.step()
def restore(optimizer, path):
    saved = torch.load(path)
    {load}
def main():
    net = Net()
    {shards}
    optimizer = torch.optim.AdamW(net.parameters())
    restore(optimizer, "state.pt")
    run_steps(net, optimizer, 9)
main()
"""
LOAD = "optimizer.load_state_dict(saved['optimizer'])"
MIXED = "aten.lerp_.Scalar got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before"
ADAM = ("/x/site-packages/torch/optim/adam.py", "_single_tensor_adam")


def found_in(
    folder: Path, load: str = LOAD, shards: str = "fully_shard(net)", message: str = MIXED, above: Any = ADAM
) -> Explanation:
    """Of step(), in a function that main() called."""
    file = folder / "train.py"
    file.write_text(SOURCE.format(load=load, shards=shards), encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, named={}, rank=None)
    frames = [
        PythonFrame(file=above[0], function=above[1], line=456),
        PythonFrame(function="run_steps", file=str(file), line=4),
        PythonFrame(function="main", file=str(file), line=13),
        PythonFrame(function="<module>", file=str(file), line=14),
    ]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames)


def test_line_that_loads_plain_tensors_is_named(tmp_path: Path) -> None:
    """In a helper that the optimizer was passed to."""
    found = found_in(tmp_path)
    assert found.subject is not None
    assert "the state that line 7 loads into `optimizer` is plain tensors" in found.subject
    assert "set_optimizer_state_dict(net, optimizer, state, options=StateDictOptions(full" in (found.words or "")


@pytest.mark.parametrize(
    "change",
    [
        {"load": "return saved"},
        {"load": "set_optimizer_state_dict(net, optimizer, saved)"},
        {"shards": "net = DDP(net)"},
        {"message": "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0"},
        {"above": ("/x/site-packages/torch/nn/functional.py", "linear")},
    ],
)
def test_other_mixtures_are_not_of_the_loaded_state(change: dict[str, Any], tmp_path: Path) -> None:
    """Nothing was loaded, or in parts; nothing is sharded; the forward failed."""
    found = found_in(tmp_path, **change)
    assert "is plain tensors" not in (found.subject or "")
    assert "gives `optimizer` plain tensors" not in (found.words or "")
