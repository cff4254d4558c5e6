"""An end that the program asks for where its loss is not finite: the line that can have made it so."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.not_finite.refused_loss import refused_loss
from pytracer.report.job import PythonFrame

PROGRAM = """
import math, sys
def normalized(target):
    return (target - target.mean(-1)) / target.var(-1) ** 0.5
def train(data):
    for batch in data:
        loss = (batch - normalized(batch)).pow(2).mean()
        value = loss.item()
        if {test}:
            sys.exit(1)
"""


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (
            "not math.isfinite(value)",
            "`value` is not finite; line 4 divides by `target.var(-1) ** 0.5`, which may be 0",
        ),
        ("torch.isnan(loss).any()", "`loss` is not finite; line 4 divides by `target.var(-1) ** 0.5`, which may be 0"),
        ("math.isfinite(value)", None),  # the program's end is due
        ("value > 10", None),
        ("not math.isfinite(value) and len(data) > 3", None),
    ],
)
def test_a_number_that_is_refused_has_a_line_that_can_make_it(test: str, says: str | None, tmp_path: Path) -> None:
    """Where the condition says that it is not finite, and nothing else."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.replace("{test}", test), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={}, step=3)
    found = refused_loss(snapshot, [PythonFrame(function="train", file=str(file), line=10)])
    assert (found[0] if found is not None else None) == says


LOADED = """
import math, sys
class Tiles:
    def __getitem__(self, n):
        tile = self.tiles[n]
        return {first}
class Others:
    def __getitem__(self, n):
        return self.tiles[n] / self.tiles[n].std()
def collate(items):
    return torch.stack(items) / items[0].norm()
def train(model, loader):
    for n, (x, y) in enumerate(loader):
        value = criterion(model(x), y).item()
        if not math.isfinite(value):
            sys.exit(1)
Others()
train(Net(), DataLoader(Tiles(){more}))
"""


@pytest.mark.parametrize(
    ("first", "more", "says"),
    [
        ("(tile - tile.mean()) / tile.std()", "", "Line 6 divides by `tile.std()`, which may be 0: divide by"),
        ("tile", ", collate_fn=collate", "Line 11 divides by `items[0].norm()`, which may be 0: divide by"),
        ("(tile - tile.mean()) / (tile.std() + 1e-6)", "", None),
        ("tile", "", None),  # the loader has none of the other dataset
    ],
)
def test_what_the_dataset_returns_is_to_be_checked(first: str, more: str, says: str | None, tmp_path: Path) -> None:
    """Where no line from the model to the loss can: only of the dataset that the loss is computed from, and no more
    than an advice.
    """
    advice = loaded(tmp_path, first, more)
    assert says in advice if advice is not None and says is not None else advice is says
    assert advice is None or "If the batch is finite, the loss has probably diverged" in advice


def loaded(
    folder: Path, first: str, more: str = "", test: str = "not math.isfinite(value)", step: int = 3, said: str = ""
) -> str | None:
    """The advice."""
    file = folder / "train.py"
    program = LOADED.replace("{first}", first).replace("{more}", more)
    file.write_text(program.replace("not math.isfinite(value)", test), encoding="utf-8")
    about = {"created_wall_ns": time.time_ns() + 10**9, "argv": ("train.py",), "environment": {}}
    snapshot: Any = SimpleNamespace(**about, step=step)
    stack = [
        PythonFrame(function="train", file=str(file), line=16),
        PythonFrame(function="<module>", file=str(file), line=18),
    ]
    found = refused_loss(snapshot, stack, said)
    assert found is not None and found[0] == "`value` is not finite"
    return found[1]


DIVIDES = "(tile - tile.mean()) / tile.std()"


@pytest.mark.parametrize("how", [{"test": "math.isinf(value)"}, {"said": "Loss is inf, stopping"}])
def test_loss_that_is_infinite_is_none_of_the_dataset(how: dict[str, str], tmp_path: Path) -> None:
    """A division by 0 of a sample minus its mean is NaN: the loss has diverged."""
    assert loaded(tmp_path, DIVIDES, **how) is None  # type: ignore[arg-type]


def test_loss_before_the_first_update_has_not_diverged(tmp_path: Path) -> None:
    assert "diverged" not in (loaded(tmp_path, DIVIDES, step=0) or "diverged")


STARTED = """
import math, sys
def evaluate(model, loader):
    best = {start}
    for x in loader:
        {keeps}
    return best
def main():
    best = evaluate(net, val)
    if {test}:
        sys.exit(1)
"""


@pytest.mark.parametrize(
    ("start", "keeps", "test", "says"),
    [
        ('float("inf")', "best = min(best, model(x))", "math.isinf(best)", "it keeps the inf of line 4"),
        ("-math.inf", "best = max(model(x), best)", "not math.isfinite(best)", "it keeps the -inf of line 4"),
        ('float("inf")', "best = min(best, model(x))", "math.isnan(best)", None),
        ('float("inf")', "best = model(x)", "math.isinf(best)", None),
        ("100.0", "best = min(best, model(x))", "math.isinf(best)", None),
    ],
    ids=["least", "most", "it is NaN", "any value", "finite"],
)
def test_start_value_that_no_round_has_changed(
    start: str, keeps: str, test: str, says: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    program = STARTED.replace("{start}", start).replace("{keeps}", keeps).replace("{test}", test)
    file.write_text(program, encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={}, step=3)
    found = refused_loss(snapshot, [PythonFrame(function="main", file=str(file), line=11)])
    kept = f"`best` is not finite; {says} where the loop of line 5 has no round, or only NaN"
    assert found is not None and (found[0] == kept) is (says is not None)
    assert "it keeps" not in found[0] or "an empty loader" in (found[1] or "")
