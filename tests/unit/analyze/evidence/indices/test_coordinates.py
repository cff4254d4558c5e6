"""Floats that an operator of torch makes indices of, and that are NaN."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import advice, died, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

IMAGE, NBYTES = 0x5582_0000_0040, 73728
SMALLEST = -(1 << 31)
GATHER = bytes.fromhex("c4a25d923ca7")  # vgatherdps ymm7, ymmword ptr [rdi + ymm12*4], ymm4
STACK = [
    (s.TORCH_CPU, "at::native::grid_sampler_2d_backward_cpu_kernel_impl(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::grid_sampler_2d_backward::call(at::Tensor const&, at::Tensor const&)"),
    (s.TORCH_CPU, "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
PROGRAM = """\
import torch.nn.functional as F
def warp(image, flow):
    grid = base() + flow / {divisor}
    return F.grid_sample(image, grid{options})
def train(net, images):
    for image in images:
        loss = (warp(image, net(image)) - image).{loss}
        loss.backward()
train(net, images)
"""


def crashed(
    run: Path, source: str, index: int = SMALLEST, stack: list[tuple[str, str]] = STACK, step: int = 0
) -> Report:
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    box = Box(pid=101).alloc(IMAGE, NBYTES)
    return died(
        run, box=box.step(step) if step else box, addr=IMAGE + 4 * index, registers={"rdi": IMAGE}, code_bytes=GATHER,
        stack_of=stack, python=[("train", str(file), 8), ("<module>", str(file), 9)],
    )  # fmt: skip


def program(options: str = ", padding_mode='border'", divisor: str = "flow.norm()", loss: str = "mean()") -> str:
    return PROGRAM.format(options=options, divisor=divisor, loss=loss)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (", padding_mode='border'", "NaN"),
        (", 'bilinear', 'reflection', False", "NaN or inf"),
        (", padding_mode=MODE", "NaN or inf"),
    ],
)
def test_smallest_index_of_a_gather_is_laid_to_the_grid(options: str, kind: str, run: Path) -> None:
    report = crashed(run, program(options))
    assert verdict(report) == ("out-of-bounds", "certain")
    assert f"`grid`, which line 4 passes to grid_sample(), has {kind}; line 3 divides by" in summary(report)
    assert "Line 3 divides by `flow.norm()`, which may be 0" in advice(report)
    assert "torch.isfinite(grid)" in advice(report)


def test_a_row_beside_it_is_as_well(run: Path) -> None:
    """Where only one coordinate is NaN."""
    assert "`grid`, which line 4 passes to grid_sample(), has NaN" in summary(crashed(run, program(), SMALLEST + 288))


@pytest.mark.parametrize(
    ("source", "index"),
    [
        (program(""), SMALLEST),
        (program(", padding_mode='zeros'"), SMALLEST),
        (program(", 'nearest', 'border'"), SMALLEST),
        (program(), 1 << 28),
        ("import torch\ndef train():\n    pass\n\n\n\n\n    loss.backward()\ntrain()\n", SMALLEST),
    ],
    ids=["checked by default", "checked", "not interpolated", "another index", "of a library"],
)
def test_other_calls_and_other_indices_are_not(source: str, index: int, run: Path) -> None:
    report = crashed(run, source, index)
    assert verdict(report) == ("out-of-bounds", "certain")  # the index follows from the address
    assert "grid_sample()" not in summary(report) and "grid_sample()" not in advice(report)


def test_another_operator_is_not(run: Path) -> None:
    stack = [(image, name.replace("grid_sampler_2d", "col2im")) for image, name in STACK]
    assert "grid_sample()" not in summary(crashed(run, program(), stack=stack))


def test_gradients_count_after_an_update_only(run: Path) -> None:
    """The root's value is finite: only a weight that its gradient changed can have brought NaN into the grid."""
    source = program(divisor="2", loss="square().sum().sqrt()")
    assert "root" not in summary(crashed(run, source))
    (run / "later").mkdir()
    later = crashed(run / "later", source, step=1)
    assert "line 7 takes the root of" in summary(later)
    assert "the next step of the optimizer makes weights NaN" in advice(later)
