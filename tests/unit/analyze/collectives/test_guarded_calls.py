"""A function that a rank has called once less: the call of it that stands below a condition; and look-alikes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.guarded_calls import guarded_call
from pytracer.report.job import PythonFrame

PROGRAM = """\
class MeanMetric:
    def compute(self):
        dist.barrier()
class Trainer:
    def validate(self, loader, epoch):
        metrics = {{}}
        for number in range(3):
            pass
        {guard}
            metrics["iou"] = self.iou.compute()
        metrics["recall"] = self.recall.compute()
        {behind}
    def run(self):
        self.validate(loader, 3)
"""
AT = (("Trainer.run", 14), ("Trainer.validate", 11), ("MeanMetric.compute", 3))


def found_in(folder: Path, guard: str, behind: str = "pass", at: tuple[tuple[str, int], ...] = AT) -> Any:
    """With a rank in compute(), which line 11 called."""
    file = folder / "train.py"
    file.write_text(PROGRAM.format(guard=guard, behind=behind), encoding="utf-8")
    way = [PythonFrame(function=function, file=str(file), line=line) for function, line in at]
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, threads=(), pid=1)
    return guarded_call(SimpleNamespace(process=SimpleNamespace(snapshot=snapshot)), way, str(file))  # type: ignore[arg-type]


@pytest.mark.parametrize("guard", ["if self.iou.count > 0:", "if crowns.any():", "if epoch > 1 and self.iou.seen:"])
def test_call_below_a_condition_of_the_rank_is_the_one(guard: str, tmp_path: Path) -> None:
    """It asks what each rank has for itself."""
    found = found_in(tmp_path, guard)
    assert found is not None
    assert found.subject("rank 1") == (
        f"rank 1 has called compute() less often, which line 10 calls only where `{guard[3:-1]}` holds (line 9)"
    )
    assert f"see whether line 9 (`{guard}`) came out differently on rank 1" in found.advice("rank 1", "said")


@pytest.mark.parametrize(
    ("guard", "behind", "at"),
    [
        ("if epoch % 5 == 0:", "pass", AT),  # the same on all ranks
        ("if self.args.with_iou:", "pass", AT),
        ("if number == 2:", "pass", AT),
        ("if True:", "pass", AT),
        ("with self.timer:", "pass", AT),
        ("with self.timer:", "self.last.compute() if self.last.count else None", AT),  # behind it, in another round
        ("if self.iou.count > 0:", "pass", (AT[0], ("Trainer.validate", 10), AT[2])),  # the rank is in that one
    ],
)
def test_other_calls_explain_nothing(guard: str, behind: str, at: tuple[tuple[str, int], ...], tmp_path: Path) -> None:
    """All ranks decide alike, or it comes later."""
    assert found_in(tmp_path, guard, behind, at) is None
