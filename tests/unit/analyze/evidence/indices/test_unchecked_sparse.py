"""Overwritten memory in a program that makes one sparse tensor of unchecked indices: that line is the first suspect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import advice, died

SOURCE = """import torch

def collate(graphs, dst, messages):
    x = torch.cat(graphs)
    return x + torch.sparse_coo_tensor(dst[None], messages, x.shape{options})
"""
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
COPIES = [(s.TORCH_CPU, "at::native::direct_copy_kernel(at::TensorIteratorBase&)"), (s.PYTHON, "_PyEval_EvalFrame")]
NUMBERS = 0xBF42F612BF42F612  # two float32


@needs_capstone
@pytest.mark.parametrize(
    ("options", "more", "suspected"),
    [
        ("", "", True),
        (", check_invariants=True", "", False),
        ("", "\n\ndef other(i, v):\n    return torch.sparse_coo_tensor(i, v)\n", False),
    ],
    ids=["one", "checked", "two"],
)
def test_the_only_line_that_makes_one_unchecked_is_suspected(
    options: str, more: str, suspected: bool, run: Path
) -> None:
    file = run / "graphs.py"
    file.write_text(SOURCE.format(options=options) + more, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    report = died(
        run, addr=0, code=128, registers={"rdx": NUMBERS, "trapno": 13}, code_bytes=LOAD,
        python=[("collate", str(file), 4)], stack_of=COPIES, images=(),
    )  # fmt: skip
    said = "The first suspect is torch.sparse_coo_tensor() at line 5: nothing checks its indices"
    assert "native code wrote an array over the object" in advice(report)
    assert (said in advice(report)) == suspected
