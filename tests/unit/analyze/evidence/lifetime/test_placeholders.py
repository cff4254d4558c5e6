"""The line that makes a tensor with 0 elements, and what left it so; a tensor that was emptied later is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary

pytestmark = needs_capstone

LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
STACK = [
    (s.TORCH_CPU, "at::native::lu_unpack(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::lu_unpack::call(at::Tensor const&, at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
SOURCE = """import torch


class Mix(torch.nn.Module):
    def __init__(self):
        self.register_buffer("order", {made})

    def fit(self, x):
        self.order = {fitted}

    def forward(self, x):
        return torch.lu_unpack(self.lu, self.order)


def save(model):
    state = {state}
    torch.{saves}(state, "model.pt")


def load(model):
    model.load_state_dict(torch.load("model.pt"), strict={strict})
"""
EMPTY, FITTED = "torch.empty(0, dtype=torch.int32)", "torch.linalg.lu_factor(x)[1]"
FLOATS = "{k: v for k, v in model.state_dict().items() if v.is_floating_point()}"
PARAMETERS = "{k: v for k, v in model.named_parameters()}"
ALL = "{k: v for k, v in model.state_dict().items()}"


def crashed(
    run: Path, *, made: str = EMPTY, fitted: str = FITTED, state: str = ALL, saves: str = "save", strict: bool = False
) -> Report:
    script = run / "train.py"
    text = SOURCE.format(made=made, fitted=fitted, state=state, saves=saves, strict=strict)
    script.write_text(text, encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    frame = PythonFrame("Mix.forward", str(script), 12)
    holder = Holder("local", "self._buffers['order']", 0, frame, True, elements=0)
    order = Argument(
        0xFF00, 0, 0, 0, (0,), 1, "int32", "cpu", minimum=None, maximum=None, frame=0, outer_frame=2, register=None,
        how="reference",
    )  # fmt: skip
    return died(
        run, addr=0, stack_of=STACK, python=[("Mix.forward", str(script), 12)], registers={"rdx": 0}, code_bytes=LOAD,
        holders=(holder,), arguments=(order,), mappings=[PROGRAM],
    )  # fmt: skip


@pytest.mark.parametrize("made", [EMPTY, "torch.zeros((0, 3))", "torch.tensor([], dtype=torch.int32)"])
def test_line_that_makes_a_placeholder(made: str, run: Path) -> None:
    report = crashed(run, made=made)
    assert "`self.order` in Mix.forward() has 0 elements, as line 6 makes it." in summary(report)
    assert "makes it with 0 elements, and of its class only fit() (line 9) sets it" in advice(report)
    assert "line 21 loads with strict=False, which leaves what the state lacks as it is." in advice(report)


@pytest.mark.parametrize(
    ("state", "why"),
    [(FLOATS, "`if v.is_floating_point()`: it is int32"), (PARAMETERS, "named_parameters() has no buffers")],
)
def test_state_that_was_saved_without_it(state: str, why: str, run: Path) -> None:
    report = crashed(run, state=state)
    assert f"and line 16 leaves it out of the saved state ({why})." in summary(report)
    assert "Keep `self.order` as well at line 16" in advice(report)


@pytest.mark.parametrize(
    "how",
    [{"state": FLOATS, "saves": "use"}, {"state": FLOATS, "strict": True}, {"state": ALL}],
    ids=["not saved", "nothing loads a part", "all is saved"],
)
def test_other_dicts_leave_nothing_out(how: dict[str, object], run: Path) -> None:
    assert "leaves it out" not in summary(crashed(run, **how))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "how",
    [{"made": "torch.zeros(8)"}, {"fitted": "self.order[x > 0]"}, {"made": "torch.empty(n)"}],
    ids=["not empty", "a part of itself", "a size that is not known"],
)
def test_a_tensor_that_was_emptied_is_no_placeholder(how: dict[str, str], run: Path) -> None:
    report = crashed(run, **how)  # type: ignore[arg-type]
    assert "has 0 elements." in summary(report)
    assert "Check the size of `self.order` before line 12" in advice(report)


BUFFER = """import torch


class Mix(torch.nn.Module):
    def __init__(self):
        self.register_buffer("order", {made})

    def fit(self, x):
        self.order = torch.linalg.lu_factor(x)[1]

    def forward(self, x):
        return torch.lu_unpack(self.lu, self.order)


def restore(model):
    model.load_state_dict(torch.load("model.pt"))


def main(path):
    model = Mix()
    {loads}
    model(torch.ones(4))
"""


@pytest.mark.parametrize(
    ("made", "loads", "said"),
    [
        (f"{EMPTY}, persistent=False", "restore(model)", True),
        (f"{EMPTY}, False", "restore(model)", True),
        (EMPTY, "restore(model)", False),
        (f"{EMPTY}, persistent=True", "restore(model)", False),
        (f"{EMPTY}, persistent=False", "model.fit(x)", False),  # the line that loads was not passed
    ],
)
def test_buffer_that_no_state_has(made: str, loads: str, said: bool, run: Path) -> None:
    script = run / "train.py"
    script.write_text(BUFFER.format(made=made, loads=loads), encoding="utf-8")
    os.utime(script, (0, 0))
    frame = PythonFrame("Mix.forward", str(script), 12)
    holder = Holder("local", "self._buffers['order']", 0, frame, True, elements=0)
    order = Argument(
        0xFF00, 0, 0, 0, (0,), 1, "int32", "cpu", minimum=None, maximum=None, frame=0, outer_frame=2, register=None,
        how="reference",
    )  # fmt: skip
    report = died(
        run, addr=0, stack_of=STACK, python=[("Mix.forward", str(script), 12), ("main", str(script), 22)],
        registers={"rdx": 0}, code_bytes=LOAD, holders=(holder,), arguments=(order,), mappings=[PROGRAM],
    )  # fmt: skip
    assert (
        "no state_dict() has it (persistent=False), so load_state_dict() does not set it" in summary(report)
    ) == said
    assert ("register it at line 6 without persistent=False" in advice(report)) == said
    assert ("call it after line 16 instead" in advice(report)) == said
