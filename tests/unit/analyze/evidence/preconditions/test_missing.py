"""Arguments that are None where an operator reads them; a look-alike must not be blamed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary
from tests.support.synth import Box

pytestmark = needs_capstone

LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
WEIGHT, INPUT = 0x5581_0000_1000, 0x5581_0010_0000
STACK = [
    (s.TORCH_CPU, "at::native::batch_norm_cpu(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::native_batch_norm::call(at::Tensor const&, double)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
SOURCE = """import torch


class Norm(torch.nn.Module):
    def __init__(self, track=True):
        self.register_buffer("mean", torch.zeros(8) if track else None)
        self.register_buffer("var", {var})

    def forward(self, x):
        return torch.native_batch_norm(x, self.weight, None, self.mean, self.var, {training}, 0.1, 1e-5)


def validate(x):
    model = Norm({made})
    {mode}
    return model(x)
"""
CALL = 10


def crashed(
    run: Path, *, training: str = "self.training", mode: str = "model.eval()", var: str = "None",
    made: str = "track=False", held: tuple[str, ...] = (), operator: str = "native_batch_norm", addr: int = 0,
) -> Report:  # fmt: skip
    """`held`: more attributes with a tensor."""
    script = run / "train.py"
    script.write_text(SOURCE.format(training=training, mode=mode, var=var, made=made), encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    frame = PythonFrame("Norm.forward", str(script), CALL)
    names = {"self._parameters['weight']": (WEIGHT, 8), "x": (INPUT, 256), **dict.fromkeys(held, (WEIGHT, 8))}
    holders = tuple(Holder("local", name, base, frame, True, elements=n) for name, (base, n) in names.items())
    data = Argument(
        INPUT ^ 0xFF, INPUT, 256, 0, (4, 8, 8), 3, "float32", "cpu", minimum=None, maximum=None, frame=0, outer_frame=2,
        register=None, how="reference",
    )  # fmt: skip
    return died(
        run,
        box=Box(pid=101).alloc(WEIGHT, 32).alloc(INPUT, 1024),
        python=[("Norm.forward", str(script), CALL), ("validate", str(script), 16)],
        holders=holders,
        arguments=(data,),
        addr=addr,
        registers={"rdx": addr},
        code_bytes=LOAD,
        mappings=[PROGRAM],
        stack_of=[(image, name.replace("native_batch_norm", operator)) for image, name in STACK],
    )


def test_none_that_the_operator_reads_is_the_reason(run: Path) -> None:
    """With the lines that make it None, the call that chose that, and the mode."""
    report = crashed(run)
    said = "`self.mean` and `self.var`, which line 10 passes, are None, and native_batch_norm reads them where"
    assert f"{said} `training` is False" in summary(report)
    assert "or `self.training or self.mean is None` for `training`" in advice(report)
    assert "lines 6 and 7 make them None where `track` is false (line 14: `Norm(track=False)`)" in advice(report)
    assert "`self.training` is False after `model.eval()` at line 15." in advice(report)
    row = (report.processes or [])[0].operator
    assert row is not None and (row.says or "").endswith("self.mean None; self.var None")


def test_a_flag_that_is_written_there(run: Path) -> None:
    assert "or True for `training`" in advice(crashed(run, training="False"))


@pytest.mark.parametrize(
    "how",
    [
        {"training": "True"},
        {"mode": "model.train()"},
        {"held": ("self._buffers['mean']", "self._buffers['var']")},
        {"operator": "addmm"},
        {"addr": 0x1357_9BDF_0240},
    ],
    ids=["it trains", "put into training", "not None", "another operator", "not at null"],
)
def test_none_that_may_be_passed_is_not_blamed(how: dict[str, object], run: Path) -> None:
    report = crashed(run, **how)  # type: ignore[arg-type]
    assert "are None" not in summary(report) + advice(report)


OWN = """import ext


def score(x, weight{default}, bias=None):
    return ext.scaled({passed})


def main(x, y):
    return score(x)
"""


@pytest.mark.parametrize(
    ("passed", "default", "named"),
    [
        ("x, weight", "=None", True),
        ("x, None", "", True),
        ("x, weight", "", False),  # what it was is not known
        ("x, bias.T", "=None", False),
        ("bias, x, weight", "=None", False),  # not as many as the function takes
        ("x, y", "=None", False),
    ],
)
def test_none_that_a_function_of_the_program_takes(passed: str, default: str, named: bool, run: Path) -> None:
    """Its signature has a tensor there; whether it tests for None is not known: the headline does not blame it."""
    script = run / "train.py"
    script.write_text(OWN.format(passed=passed, default=default), encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    frame = PythonFrame("score", str(script), 5)
    holders = tuple(Holder("local", name, INPUT, frame, True, elements=256) for name in ("x", "y"))
    signature = "scaled(at::Tensor const&, std::optional<at::Tensor> const&)"
    report = died(
        run, box=Box(pid=101).alloc(INPUT, 1024), python=[("score", str(script), 5), ("main", str(script), 9)],
        holders=holders, addr=0, registers={"rdx": 0}, code_bytes=LOAD, mappings=[PROGRAM],
        stack_of=[("/home/me/ext.so", signature), STACK[-1]],
    )  # fmt: skip
    assert "None" not in summary(report)
    assert ("which line 5 passes to scaled(): it is None" in advice(report)) == named
