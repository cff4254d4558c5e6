"""A number that is what the program pads rows with: the lengths are wrong, and the numbering of labels is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Holder, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary
from tests.support.synth import Box
from tests.unit.analyze.evidence.preconditions.test_padded_targets import LENGTHS, SCORES, TARGETS, held

FAR = (1 << 31) - 1
SOURCE = """import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

FILL = torch.iinfo(torch.int32).max


def collate(labels):
    targets = pad_sequence(labels, batch_first=True, padding_value=FILL)
    lengths = torch.full((len(targets),), targets.size(1))
    return targets, lengths


def train(scores, targets, lengths):
    loss = F.ctc_loss(scores, targets, (50,) * 4, lengths)
    return loss
"""
BY_HAND = SOURCE.replace(
    "pad_sequence(labels, batch_first=True, padding_value=FILL)", "torch.full((4, 7), FILL)"
).replace("    loss =", "    lengths = torch.tensor([targets.shape[-1]] * 4)\n    loss =")
BY_HAND = BY_HAND.replace("    lengths = torch.full((len(targets),), targets.size(1))\n", "    lengths = 0\n")
STACK = [
    (s.TORCH_CPU, "at::native::(anonymous namespace)::ctc_loss_cpu_template(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::_ctc_loss::call(at::Tensor const&, at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]


def report_of(run: Path, source: str, numbers: tuple[int, int]) -> Report:
    """Rows have room for 7, and all lengths are that."""
    script = run / "ocr.py"
    script.write_text(source, encoding="utf-8")
    os.utime(script, (0, 0))
    line = source[: source.index("F.ctc_loss")].count("\n") + 1
    arguments = (
        held(SCORES, 50, 4, 37, dtype="float32"),
        held(TARGETS, 4, 7, numbers=numbers),
        held(LENGTHS, 4, numbers=(7, 7)),
    )
    frame = PythonFrame("train", str(script), line)
    holders = tuple(
        Holder("local", name, item.base, frame, True, elements=item.elements)
        for name, item in zip(("scores", "targets", "lengths"), arguments, strict=True)
    )
    box = Box(pid=101).alloc(SCORES, 4 * 50 * 4 * 37).alloc(TARGETS, 224).alloc(LENGTHS, 32)
    return died(
        run, box=box, python=[("train", str(script), line)], holders=holders, arguments=arguments, mappings=[PROGRAM],
        images=(), stack_of=STACK, addr=SCORES + (1 << 33),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "pads", "counts"),
    [
        (SOURCE, "line 9 pads with it", "Line 10 (`lengths = "),
        (BY_HAND, "line 9 fills with it", "Line 15 (`lengths = "),
    ],
    ids=["pad_sequence", "by hand"],
)
def test_padding_that_the_lengths_count_is_no_label(source: str, pads: str, counts: str, run: Path) -> None:
    report = report_of(run, source, (2, FAR))
    assert f"{pads}, and the lengths in `lengths` count the padding: 7 for each row, the padded wid" in summary(report)
    assert counts in advice(report) and "Pass the length that each row had before" in advice(report)
    assert ("`torch.tensor([len(row) for row in labels])`" in advice(report)) == (source is SOURCE)
    assert "Number the characters" not in advice(report) and "Check the values" not in advice(report)


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        (SOURCE.replace("FILL)", "0)"), (2, FAR)),  # another number
        (SOURCE, (2, FAR - 1)),
        (SOURCE, (300, FAR)),  # the others do not fit either
        (SOURCE + "\n\nEMPTY = [FILL] * 9\n", (2, FAR)),  # two lines may have
    ],
)
def test_other_numbers_are_no_padding(source: str, numbers: tuple[int, int], run: Path) -> None:
    told = summary(report_of(run, source, numbers))
    assert "for granted" in told and "pads with it" not in told


@pytest.mark.parametrize(("largest", "told"), [(90, True), (0x10FFFF, True), (0x110000, False)])
def test_a_number_beyond_any_character_is_no_numbering(largest: int, told: bool, run: Path) -> None:
    then = advice(report_of(run, SOURCE, (2, largest)))
    assert "they must be less than 37" in then
    assert ("Number the characters as the classes of `scores` are" in then) == told
