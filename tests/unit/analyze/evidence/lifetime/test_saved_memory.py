"""Tensors that the forward saved, and whose memory was taken away: their name, and the line that did it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import saved_memory as module
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor
from pytracer.decode.types.snapshot import Argument, Holder, NamedTensor, NativeFrame, PythonFrame
from pytracer.decode.types.storage_table import StorageTable

ENGINE, KERNEL = "torch::autograd::Engine::evaluate_function(...)", "at::native::mul_kernel(at::TensorIteratorBase&)"
SOURCE = """class Block(nn.Module):
    def forward(self, x):
        return self.linear(x) * self.gamma
def park(p):
    p.data.untyped_storage().resize_(0)
loss = model(x)
loss.backward()
"""
LAST = 80


def argument(*, base: int = 0, elements: int = 256) -> Argument:
    return Argument(
        1, base, elements, 0, (256,), 1, "float32", "cpu", None, None, 3, 13, None, "reference", False, (1,)
    )


def operator(item: Argument) -> Operator:
    return Operator("aten::mul", None, (OperatorTensor(item, None, None, passed=True),))


def view_of(
    folder: Path,
    *names: tuple[str, int],
    node: str | None = "MulBackward0",
    source: str = SOURCE,
    held: str | None = None,
    functions: tuple[str, ...] = (KERNEL, ENGINE),
) -> Any:
    """A process that crashed in backward(). `names`: of parameters of 1 KiB, and when their addresses were read."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    frame = PythonFrame("<module>", str(file), 7)
    holders = (Holder("local", held, 0, frame, True, elements=256),) if held is not None else ()
    stack = tuple(NativeFrame(n, None, None, None, "exact", name) for n, name in enumerate(functions))
    crash = SimpleNamespace(
        python_stack=(frame,), native_stack=stack, threads=(), node=node, holders=holders, steps_done=("NAMES",),
        arguments=(argument(),),
    )  # fmt: skip
    named = [NamedTensor(f"parameter {name}", "parameter", n, n, 1024, at, False) for n, (name, at) in enumerate(names)]
    snapshot = SimpleNamespace(
        argv=(),
        created_wall_ns=time.time_ns() + 10**9,
        named={item.base: (item,) for item in named},
        storages=StorageTable.of(),
    )
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), region_opener=None)


def test_parameter_that_a_hook_offloaded(tmp_path: Path) -> None:
    """By its size, and the line that multiplies by it: the bias of the same size is not saved."""
    names = [("blocks.0.gamma", 21), ("blocks.1.gamma", 26), ("blocks.0.linear.bias", 17), ("head.weight", LAST)]
    found = module.saved_without_memory(view_of(tmp_path, *names), operator(argument()))
    assert found is not None
    assert found.summary == (
        "`blocks.*.gamma` ([256] float32), which the forward saved for MulBackward0, has no memory any more: line 5 "
        "(`p.data.untyped_storage().resize_(0)`) took it away"
    )
    assert found.advice.startswith(
        "Autograd still needs `blocks.*.gamma` of line 3 (`self.linear(x) * self.gamma`) in the backward of line 7. "
        "Give it its memory back before that"
    )
    assert "run line 5" in found.advice and "torch.is_grad_enabled()" in found.advice


def test_activation_has_no_name_but_its_shape(tmp_path: Path) -> None:
    """Nor has one that a variable does not hold; else it has the variable's."""
    found = module.saved_without_memory(view_of(tmp_path, ("head.weight", LAST)), operator(argument()))
    assert found is not None and found.summary.startswith("the [256] float32, which the forward saved")
    assert "full_backward_pre_hook" not in found.advice
    held = module.saved_without_memory(view_of(tmp_path, held="hidden"), operator(argument()))
    assert held is not None and held.summary.startswith("`hidden` ([256] float32), which")


def test_without_a_line_that_takes_memory_away_none_is_named(tmp_path: Path) -> None:
    source = SOURCE.replace("resize_(0)", "resize_(size)")
    found = module.saved_without_memory(view_of(tmp_path, source=source), operator(argument()))
    assert found is not None and found.summary.endswith("saved for MulBackward0, has no memory")


@pytest.mark.parametrize(
    ("how", "item"),
    [
        ({"functions": (KERNEL, "_PyEval_EvalFrameDefault")}, argument()),
        ({"functions": (KERNEL, "_PyEval_EvalFrameDefault", ENGINE)}, argument()),
        ({"node": "torch::autograd::AccumulateGrad"}, argument()),
        ({"node": None}, argument()),
        ({}, argument(elements=0)),
        ({}, argument(base=4096)),
    ],
    ids=["in the forward", "in a backward of Python", "a gradient", "no node", "an empty tensor", "with memory"],
)
def test_what_autograd_did_not_save_is_left_alone(how: dict[str, Any], item: Argument, tmp_path: Path) -> None:
    assert module.saved_without_memory(view_of(tmp_path, **how), operator(item)) is None
