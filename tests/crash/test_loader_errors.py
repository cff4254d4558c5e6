"""An exception that a DataLoader worker hands over is told with the variables of the worker, and the sample."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytracer.decode.types.journal import UncaughtException
from tests.conditions import needs_native
from tests.support.crash import traced_run
from tests.support.deaths import advice, summary, verdict

pytestmark = needs_native

PROGRAM = """\
import torch
from torch.utils.data import DataLoader, Dataset

class Reviews(Dataset):
    rows = [[1, 2], [3, 4], [5], [], [6], [7], [8], [9]]

    def __len__(self):
        return 8

    def __getitem__(self, number):
        words = self.rows[number]
        return torch.tensor(words[0])

def train():
    loader = iter(DataLoader(Reviews(), batch_size=2, num_workers=1))
    for _ in range(4):
        try:
            next(loader)
        except IndexError:
            {}

train()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def test_variables_and_sample_of_the_worker_are_told(program: Path, tmp_path: Path) -> None:
    """The process that reads from the loader has the traceback as a text only."""
    program.write_text(PROGRAM.format("raise"), encoding="utf-8")
    report = traced_run(sys.executable, program, run=tmp_path / "run").report
    assert verdict(report) == ("python-exception", "certain")
    assert "in DataLoader worker process 0, at train.py:12 in __getitem__" in summary(report)
    assert summary(report).endswith(": `words` is empty.")
    said = advice(report)
    assert said.startswith("`words` is empty (line 11: `words = self.rows[number]`).")
    assert "`dataset[3]` should repeat it in one process" in said


def test_worker_whose_error_was_caught_is_healthy(program: Path, tmp_path: Path) -> None:
    """The look-alike: the program skips the batch, and the worker goes on; nothing died."""
    program.write_text(PROGRAM.format("pass"), encoding="utf-8")
    done = traced_run(sys.executable, program, run=tmp_path / "run")
    assert done.status == 0
    assert [fact.data.on_its_way for box in done.boxes for fact in box.recorded(UncaughtException)] == ["fetch"]
    assert not done.report.findings
