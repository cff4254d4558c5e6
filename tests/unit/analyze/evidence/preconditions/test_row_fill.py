"""Rows that are padded with another number than the one that does not fit: that one is data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Holder, PythonFrame
from pytracer.report.job import Report
from tests.support.deaths import PROGRAM, advice, died, summary
from tests.support.synth import Box
from tests.unit.analyze.evidence.preconditions.test_padded_targets import ABORT, LENGTHS, SCORES, TARGETS, held

SOURCE = """import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def collate(batch):
    targets = torch.zeros(len(batch), 7, dtype=torch.long)
    for row, ids in zip(targets, batch):
        row[:len(ids)] = ids
    return targets, torch.tensor([len(ids) for ids in batch])


def train(scores):
    loader = DataLoader(DATA, 4, collate_fn=collate)
    for targets, lengths in loader:
        loss = F.ctc_loss(scores, targets, (50,) * 4, lengths)
        loss.backward()
"""
PADS = SOURCE.replace("torch.zeros(len(batch), 7, dtype=torch.long)", "pad_sequence(batch, batch_first=True)").replace(
    "    for row, ids in zip(targets, batch):\n        row[:len(ids)] = ids\n", ""
)


def report_of(run: Path, source: str, numbers: tuple[int, int] = (0, 62)) -> Report:
    """The lengths differ: 3 to 7 of 7."""
    script = run / "ocr.py"
    script.write_text(source, encoding="utf-8")
    os.utime(script, (0, 0))
    line = source[: source.index("loss.backward")].count("\n") + 1
    frame = PythonFrame("train", str(script), line)
    arguments = (
        held(SCORES, 50, 4, 37, dtype="float32"),
        held(TARGETS, 4, 7, numbers=numbers),
        held(LENGTHS, 4, numbers=(3, 7)),
    )
    holders = tuple(
        Holder("local", name, item.base, frame, True, elements=item.elements)
        for name, item in zip(("scores", "targets", "lengths"), arguments, strict=True)
    )
    box = Box(pid=101).alloc(SCORES, 4 * 50 * 4 * 37).alloc(TARGETS, 224).alloc(LENGTHS, 32)
    return died(
        run, box=box, python=[("train", str(script), line)], holders=holders, arguments=arguments, mappings=[PROGRAM],
        images=(), **ABORT,
    )  # fmt: skip


PARTIAL = SOURCE.replace("collate_fn=collate", "collate_fn=functools.partial(collate)")


@pytest.mark.parametrize("source", [SOURCE, PADS, PARTIAL], ids=["zeros", "pad_sequence", "partial"])
def test_a_number_that_rows_are_not_padded_with_is_a_fact_of_the_headline(source: str, run: Path) -> None:
    report = report_of(run, source)
    assert "`targets` [4, 7] holds 62, where ctc_loss at line" in summary(report)
    assert "rows are padded with 0 (line 8)" in summary(report)
    assert "they must be less than 37" in advice(report) and "unless 62 is padding" not in advice(report)


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        (SOURCE.replace("row[:len(ids)] = ids", "row[:len(ids)] = ids; row[len(ids):] = PAD"), (0, 62)),
        (
            SOURCE.replace("    return targets,", "    targets.masked_fill_(targets == 0, PAD)\n    return targets,"),
            (0, 62),
        ),
        (SOURCE.replace("zeros(len(batch), 7, dtype", "full((len(batch), 7), PAD, dtype"), (0, 62)),  # not known
        (SOURCE.replace("zeros(len(batch), 7, dtype", "full((len(batch), 7), 62, dtype"), (0, 62)),  # it is the padding
        (
            SOURCE.replace("row[:len(ids)] = ids", "row[:len(ids)] = ids; set_end(row, len(ids))")
            + "def set_end(row, n):\n    row[n:] = PAD\n",
            (0, 62),
        ),
        (SOURCE.replace(", collate_fn=collate", ""), (0, 62)),
        (SOURCE, (1, 62)),  # the tensor has no 0: the rows are padded otherwise
    ],
    ids=["set behind", "set by a mask", "unknown", "the number itself", "set by a helper", "no collate", "not there"],
)
def test_a_number_that_may_be_padding_stays_a_suspicion(source: str, numbers: tuple[int, int], run: Path) -> None:
    report = report_of(run, source, numbers)
    assert "rows are padded with" not in summary(report) and "`targets` [4, 7] holds" not in summary(report)
    assert "62 and 37 here, unless 62 is padding" in advice(report)
