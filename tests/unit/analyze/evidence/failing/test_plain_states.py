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
    text = SOURCE.format(load=load, shards=shards)
    file.write_text(text, encoding="utf-8")
    last = len(text.splitlines())
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, named={}, rank=None)
    frames = [
        PythonFrame(file=above[0], function=above[1], line=456),
        PythonFrame(function="run_steps", file=str(file), line=4),
        PythonFrame(function="main", file=str(file), line=last - 1),
        PythonFrame(function="<module>", file=str(file), line=last),
    ]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames)


def test_line_that_loads_plain_tensors_is_named(tmp_path: Path) -> None:
    """In a helper that the optimizer was passed to."""
    found = found_in(tmp_path)
    assert found.subject is not None
    assert "the state that line 7 loads into `optimizer` is plain tensors" in found.subject
    assert "set_optimizer_state_dict(net, optimizer, state, options=StateDictOptions(full" in (found.words or "")


def test_whole_model_of_a_trainer_is_sharded(tmp_path: Path) -> None:
    """Its blocks, and then itself."""
    found = found_in(tmp_path, shards="for block in net.blocks: fully_shard(block)\n    fully_shard(net)")
    assert "loads into `optimizer` is plain tensors" in (found.subject or "")


@pytest.mark.parametrize("load", [f"if path: {LOAD}", f"if not path: return\n    {LOAD}"])
def test_load_that_may_not_have_run_is_only_said_to_do_so_if_it_did(load: str, tmp_path: Path) -> None:
    """Not in the headline."""
    found = found_in(tmp_path, load=load)
    assert "is plain tensors" not in (found.subject or "")
    assert ", if it ran, gives `optimizer` plain tensors" in (found.words or "")


@pytest.mark.parametrize("load", [f"if not path: raise ValueError(path)\n    {LOAD}", f"for _ in (1,): {LOAD}"])
def test_load_that_ran_is_in_the_headline(load: str, tmp_path: Path) -> None:
    assert "is plain tensors" in (found_in(tmp_path, load=load).subject or "")


FOREACH = MIXED.replace("lerp_.Scalar", "_foreach_mul_.Scalar")


@pytest.mark.parametrize(
    "change",
    [
        {"shards": "fully_shard(net[0])", "message": FOREACH},
        {"shards": "fully_shard(net.head)"},
        {"shards": "for block in net.blocks: fully_shard(block)"},
        {"shards": "[fully_shard(block) for block in net.blocks]"},
        {"shards": "head = net.head; fully_shard(head)"},
        {"shards": "parallelize_module(net, mesh, plan)", "message": FOREACH},
    ],
)
def test_step_over_sharded_and_plain_parameters_is_not_of_the_loaded_state(
    change: dict[str, Any], tmp_path: Path
) -> None:
    """Only a part of the model is sharded: the step mixes its parameters without any load."""
    found = found_in(tmp_path, **change)
    assert "plain tensors" not in f"{found.subject} {found.words}"


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
