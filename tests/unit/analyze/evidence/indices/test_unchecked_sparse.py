"""Overwritten memory in a program that makes one sparse tensor of unchecked indices: that line is the first suspect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import advice, died, summary
from tests.support.synth import Box

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


HALF = 0x3F905169_53E5EB80  # float32 1.127 over the upper half of 0x55b753e5eb80


@needs_capstone
@pytest.mark.parametrize(
    ("base", "nbytes", "kept"),
    [(0x55B7_53E5_EB80, 7872, True), (0x55B7_53E5_EBC0, 7872, False), (0x55B7_53E5_EB00, 7872, False)],
    ids=["its address", "one beside it", "one that it lies in"],
)
def test_a_kept_lower_half_shows_that_four_bytes_were_written(base: int, nbytes: int, kept: bool, run: Path) -> None:
    """Else the eight bytes may be one float64; the line that made the sparse tensor is in the headline then, too."""
    file = run / "graphs.py"
    source = SOURCE.format(options="").replace("return x + torch", "agg = torch") + "    return x + agg\n"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    report = died(
        run, box=Box(pid=101).alloc(base, nbytes), addr=0, code=128, registers={"rdx": HALF, "trapno": 13},
        code_bytes=LOAD, python=[("collate", str(file), 4)], stack_of=COPIES, images=(),
    )  # fmt: skip
    words = "which holds the float32 number 1.127 in the upper half of the address of a tensor of 7872 bytes"
    assert (words in summary(report)) == kept
    assert ("the float64 number" in summary(report)) != kept
    first = "memory was overwritten; the first suspect is torch.sparse_coo_tensor() at line 5, which does not check"
    assert (first in summary(report)) == kept
    assert "operators write where they say (line 6: `return x + agg`)" in advice(report)
    assert "Each index in `dst[None]` must be less than its dimension of `x.shape`." in advice(report)
