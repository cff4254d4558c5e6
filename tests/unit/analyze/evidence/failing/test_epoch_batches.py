"""A schedule that counts to other epochs than its loader has batches for: both numbers, by the record of the loader."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.decode.types.journal import Loader
from pytracer.decode.types.snapshot import PythonFrame as RecordedFrame
from pytracer.report.job import ExceptionReport, OuterFrameReport, PythonFrame, VariableReport

MESSAGE = "Tried to step 201 times. The specified number of total steps is 200"
PROGRAM = """\
class Method:
    def __init__(self, args, steps_per_epoch):
        self.schedule = OneCycleLR(
            self.optimizer, max_lr=args.lr, steps_per_epoch=steps_per_epoch, epochs=args.epochs
        )

    def train(self, loader):
        for x, y in enumerate(loader):
            BEFORE
            self.schedule.step()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    train_loader = DataLoader(Rows(args), 4, shuffle=True)
    method = Method(args, steps_per_epoch=STEPS)
    for epoch in range(args.epochs):
        method.train(train_loader)

main()
"""


def found(folder: Path, steps: str = "40", before: str = "pass", *batches: int, line: int = 17) -> Explanation:
    file = folder / "train.py"
    file.write_text(PROGRAM.replace("STEPS", steps).replace("BEFORE", before), encoding="utf-8")
    stack = [
        PythonFrame(function=name, file=str(file), line=at)
        for name, at in (("Method.train", 10), ("main", 20), ("", 22))
    ]
    made = RecordedFrame("main", str(file), line)
    facts = tuple(SimpleNamespace(data=Loader(samples=4 * count, batches=count, at=made)) for count in batches or (80,))
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={}, step=201, rank=None, facts=facts,
        created_mono_ns=0, named={},
    )  # fmt: skip
    held = [VariableReport(name="args.epochs", value="5"), VariableReport(name="args.steps", value="40")]
    outer = OuterFrameReport(frame=1, variables=held)
    report = ExceptionReport(type="ValueError", message=MESSAGE, variables=[], outer=[outer])
    return explained(snapshot, report, stack)


def test_both_numbers_are_named_with_their_lines(tmp_path: Path) -> None:
    explanation = found(tmp_path)
    assert explanation.subject == (
        "the schedule was made for 5 epochs of 40 steps (line 18: `steps_per_epoch=40`), and the DataLoader of line 17 "
        "has 80 batches an epoch"
    )
    assert "its 200 steps last for 2.5 epochs" in (explanation.words or "")
    assert "Pass steps_per_epoch=len(train_loader) instead" in (explanation.words or "")


def test_an_option_is_named_with_its_line(tmp_path: Path) -> None:
    subject = found(tmp_path, "args.steps").subject or ""
    assert "5 epochs of 40 steps (line 15: `--steps`)" in subject


@pytest.mark.parametrize(
    ("steps", "before", "batches", "line"),
    [
        ("40", "pass", (40,), 17),  # as many: it is stepped for other reasons, such as a second run
        ("40", "pass", (30,), 17),
        ("40", "if x % 2:\n                continue", (80,), 17),  # not after each batch
        ("40", "pass", (80, 20), 17),  # two loaders of one line
        ("40", "pass", (80,), 99),  # another loader
        ("len(train_loader)", "pass", (40,), 17),
    ],
)
def test_what_does_not_differ_or_is_not_known_is_no_reason(
    steps: str, before: str, batches: tuple[int, ...], line: int, tmp_path: Path
) -> None:
    assert "batches an epoch" not in (found(tmp_path, steps, before, *batches, line=line).words or "")


@pytest.mark.parametrize(
    "step",
    [
        "self.schedule.step()\n            if x == limit: break",
        "self.schedule.step()\n            if x == limit: return",
        "synced and self.schedule.step()",
        "self.schedule.step() if synced else None",
    ],
)
def test_loop_that_may_end_early_or_leave_out_steps_is_no_epoch(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of batches, or accumulated gradients, may be what the schedule was made for."""
    blank = "" if "\n" in step else "\n"  # each line has its number
    monkeypatch.setitem(globals(), "PROGRAM", PROGRAM.replace("self.schedule.step()\n\n", f"{step}\n{blank}"))
    assert "batches an epoch" not in (found(tmp_path).words or "")


@pytest.mark.parametrize("more", ["method.train(other_loader)", "method.schedule.step()"])
def test_loop_that_also_goes_over_others_does_not_tell_the_epoch(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of several loops come to the number that raised."""
    text = PROGRAM.replace("\nmain()\n", f"    {more}\n\nmain()\n")
    monkeypatch.setitem(globals(), "PROGRAM", text)
    assert "batches an epoch" not in (found(tmp_path).words or "")


def test_calls_without_a_loader_are_of_another_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`model.train()` is no call of the loop's function."""
    monkeypatch.setitem(globals(), "PROGRAM", PROGRAM.replace("\nmain()\n", "    model.train(True)\n\nmain()\n"))
    assert "batches an epoch" in (found(tmp_path).words or "")
