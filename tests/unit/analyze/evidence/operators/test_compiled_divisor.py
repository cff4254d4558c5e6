"""The integer division of a compiled function: named where it is the only one, and may have divided by 0."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import advice, died, summary

SOURCE = """import torch
from torch import nn
class Bins(nn.Module):
    def __init__(self, low, high, bins):
        self.register_buffer("width", (high - low) // bins)
    @torch.compile
    def slots(self, x):
        {line}
        return bucket
    def forward(self, x):
        return self.slots(x)
"""
KERNEL = [("/tmp/torchinductor_user/ab/cab.main.so", "kernel"), (s.PYTHON, "_PyEval_EvalFrameDefault")]
IDIV = bytes.fromhex("48f7fb")  # idiv rbx


def report(run: Path, line: str) -> tuple[str, str]:
    script = run / "bins.py"
    script.write_text(SOURCE.format(line=line), encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    made = "/tmp/torchinductor_user/3s/c3s2redamvum3e44mnwf3v2nkjkjnf46d5x4nitcn7h3zlkugh7s.py"
    python = [("call", made, 9), ("Bins.slots", str(script), 6), ("Bins.forward", str(script), 11)]
    found = died(
        run, signal=8, code=1, addr=0x7F00_0000_1000, registers={"rbx": 0, "rax": 2, "rdx": 0}, code_bytes=IDIV,
        python=python, stack_of=KERNEL,
    )  # fmt: skip
    return summary(found), advice(found)


@pytest.mark.parametrize(
    "division",
    [
        "torch.div(x, self.width, rounding_mode='trunc')",
        "x // self.width",
        "x % self.width",
        "torch.remainder(x, self.width)",
    ],
)
def test_the_only_integer_division_is_named_with_what_made_its_divisor(division: str, run: Path) -> None:
    said, told = report(run, f"bucket = {division} + 1")
    assert f"line 8 (`{division}`) has its only integer division: `self.width` has a 0" in said
    assert 'Keep `self.width`, which line 5 (`self.register_buffer("width", (high - low) // bins)`) makes' in told


@pytest.mark.parametrize(
    "line",
    [
        "bucket = x // self.width % self.bins",  # one of two
        "bucket = x // 8",
        "bucket = x / self.width",  # no integer division
        "bucket = torch.div(x, self.width)",
    ],
)
def test_others_are_not(line: str, run: Path) -> None:
    assert "integer division:" not in report(run, line)[0]
