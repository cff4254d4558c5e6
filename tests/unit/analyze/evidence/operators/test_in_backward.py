"""Crashes in the backward pass: which line ran it, which made its loss, and what may have changed a saved tensor."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices.index_origins import narrow_words
from pytracer.analyze.evidence.operators import in_backward as module
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from pytracer.decode.types.snapshot import NativeFrame, PythonFrame

KERNEL, ENGINE = "at::native::compute_counts(at::Tensor const&)", "torch::autograd::Engine::evaluate_function(...)"
INTERPRETER = "_PyEval_EvalFrameDefault"
SOURCE = "loss = model(ids)\nlog.read()\nloss.backward()\n"
HOOKS = """def keep(t):
    return t.short()

def bring(t):
    return t.long()

with saved_tensors_hooks(keep, bring):
    loss = model(ids)
loss.backward()
"""
CLASS = """class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        super().__init__(self.pack, self.unpack)
    def pack(self, t):
        return save(t)
    def unpack(self, kept):
        return load(kept)

losses = []
sum(losses).backward()
"""


def view_of(folder: Path, source: str, line: int, *functions: str) -> Any:
    """A process that crashed in these native functions, below that line."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    stack = tuple(NativeFrame(n, None, None, None, "exact", name) for n, name in enumerate(functions))
    frames = (PythonFrame("train", str(file), line),)
    crash = SimpleNamespace(python_stack=frames, native_stack=stack, threads=(), node="EmbeddingBackward0")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    space = SimpleNamespace(live_around=lambda addr: None)
    return SimpleNamespace(
        crash=crash, process=SimpleNamespace(snapshot=snapshot), region_opener=None, space=space, python_stack=frames
    )


def index(low: int, high: int, name: str | None = None, dtype: str = "int64") -> OperatorTensor:
    item: Any = SimpleNamespace(
        minimum=low, maximum=high, dtype=dtype, base=1, sizes=(8,), dimensions=1, undefined=False, elements=8
    )
    return OperatorTensor(item, name, None, passed=True)


def test_line_that_made_the_loss_and_line_that_runs_backward(tmp_path: Path) -> None:
    """What is between them may have changed what the forward saved."""
    view = view_of(tmp_path, SOURCE, 3, KERNEL, ENGINE, INTERPRETER)
    found = module.backward(view)
    assert found is not None
    assert found.between == " between line 1 (`loss = model(ids)`) and line 3"
    says = module.saved_advice(view, found, index(7, 1 << 40, "ids"))
    assert says.startswith(
        f"Look for what changed `ids` (7..{1 << 40}), which the forward saved for EmbeddingBackward0, between line 1"
    )


@pytest.mark.parametrize("functions", [(KERNEL, INTERPRETER), (KERNEL, INTERPRETER, ENGINE)])
def test_an_operator_that_python_called_is_not_of_the_engine(functions: tuple[str, ...], tmp_path: Path) -> None:
    """A forward, and the backward() of a custom function."""
    assert module.backward(view_of(tmp_path, SOURCE, 3, *functions)) is None


@pytest.mark.parametrize(
    ("source", "line", "hook"),
    [(HOOKS, 9, "bring() (line 4)"), (CLASS, 10, "unpack() (line 6)"), (SOURCE, 3, None)],
)
def test_hook_that_returns_saved_tensors(source: str, line: int, hook: str | None, tmp_path: Path) -> None:
    """It is what to look at where a tensor is no variable's."""
    view = view_of(tmp_path, source, line, KERNEL, ENGINE, INTERPRETER)
    found = module.backward(view)
    assert found is not None
    assert found.unpack == hook
    assert (f"Check what {hook} returns" in module.changed_advice(found)) == (hook is not None)
    assert (f"Check what {hook} returns" in module.saved_advice(view, found, index(0, 9))) == (hook is not None)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "words"),
    [
        (-32768, 32767, "int64", ", the range of int16"),
        (-127, 126, "int64", ", the range of int8"),
        (0, 32767, "int64", ""),
        (-32768, 32767, "int16", ""),
        (-20000, 32767, "int64", ""),
        (-32768, 40000, "int64", ""),
    ],
)
def test_values_that_fill_the_range_of_a_narrower_type(low: int, high: int, dtype: str, words: str) -> None:
    """Of both signs, and nearly up to both ends."""
    assert narrow_words(index(low, high, dtype=dtype)) == words


def test_shapes_that_do_not_fit_in_backward_are_those_of_what_the_forward_saved(tmp_path: Path) -> None:
    """The line passes the loss, and none of them."""
    found = module.backward(view_of(tmp_path, HOOKS, 9, KERNEL, ENGINE, INTERPRETER))
    assert found is not None
    says = module.unequal_advice(found, "a tensor [2, 8] of float32 and a tensor [64, 8] of float32")
    assert says.startswith(
        "Compare the shapes of a tensor [2, 8] of float32 and a tensor [64, 8] of float32: the backward"
    )
    assert "what bring() (line 4) returns" in says and "passes" not in says


@pytest.mark.parametrize(
    ("text", "node", "runs"),
    [
        ("loss = model(ids)", "EmbeddingBackward0", True),
        ("loss = self.net.score(ids).sum()", "EmbeddingBackward0", True),
        ("total = torch.stack(losses).mean()", "SegmentReduceBackward0", False),
        ("total = torch.segment_reduce(x, 'sum', lengths=n).sum()", "SegmentReduceBackward0", True),
        ("total = losses.mean()", "SegmentReduceBackward0", False),
    ],
)
def test_line_that_only_sums_losses_is_not_taken_for_the_forward_of_an_operator(
    text: str, node: str, runs: bool
) -> None:
    """What overwrote a saved tensor may be above such a line."""
    assert module._may_run(text, node) is runs
