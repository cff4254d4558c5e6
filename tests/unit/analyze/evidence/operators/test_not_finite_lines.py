"""Lines that can make NaN of what a failing line passes, by the source alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import not_finite_lines as lines
from pytracer.report.job import PythonFrame

SAMPLES = """\
class Clips(Dataset):
    def __getitem__(self, n):
        x = self.clips[n]
        return (x - x.mean()) / {divisor}

def radius(a):
    return torch.linalg.eigvals(a)

def train():
    loader = DataLoader(Clips())
    for x in loader:
        radius(x.T @ x)

train()
"""
WALK = """\
def radius(adj):
    degree = adj.sum(1)
    p = adj / degree[:, None]
    return torch.linalg.eigvals(p)

radius(torch.zeros(2, 2))
"""


def found(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str, *places: tuple[str, int]) -> str | None:
    """What is said of a crash there, innermost place first."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    stack = [PythonFrame(function=function, file=str(file), line=line) for function, line in places]
    monkeypatch.setattr(lines, "program_frames", lambda view: stack)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=snapshot))
    told = lines.not_finite_lines(view)
    return told.subject if told is not None else None


@pytest.mark.parametrize(
    ("divisor", "words"),
    [("x.std()", "; line 4 divides by `x.std()`, which may be 0"), ("(x.std() + 1e-6)", None), ("255.0", None)],
    ids=["may be 0", "guarded", "a number"],
)
def test_samples_of_a_dataset_are_looked_at(
    divisor: str, words: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = SAMPLES.format(divisor=divisor)
    places = [("radius", 7), ("train", 12), ("<module>", 14)]
    assert found(monkeypatch, tmp_path, source, *places) == words


def test_a_divisor_that_only_has_another_shape_is_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = found(monkeypatch, tmp_path, WALK, ("radius", 4), ("<module>", 6))
    assert told == "; line 3 divides by `degree[:, None]`, which may be 0"


POOLED = """\
CONFIG = {{"divisor": {number}, "gain": {number}}}
class Features(nn.Module):
    def __init__(self, config):
        self.divisor = config["divisor"]
        self.layer = nn.AvgPool2d(2, divisor_override=config["divisor"])
        self.gain = config["gain"]
    def forward(self, x):
        pooled = {made}
        level = torch.log2(pooled)
        return torch.linalg.eigvals(level)
Features(CONFIG)(torch.rand(4, 4))
"""


@pytest.mark.parametrize(
    ("made", "how"),
    [
        ("F.avg_pool2d(x, 2, divisor_override=self.divisor)", "divides (`divisor_override`) by -1 (line 1: "),
        ("self.layer(x).mean(1)", "divides (`divisor_override`) by -1 (line 1: "),
        ("x * self.gain", "multiplies (`x * self.gain`) by -1 (line 1: `'gain': -1`)"),
    ],
    ids=["an argument", "a layer's", "a factor"],
)
def test_number_that_makes_the_operand_of_a_logarithm_negative(
    made: str, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = POOLED.format(number=-1, made=made)
    told = found(monkeypatch, tmp_path, source, ("Features.forward", 10), ("<module>", 11))
    assert told is not None and told.startswith(f"; line 9 takes the log of `pooled`, NaN below 0: line 8 {how}")


@pytest.mark.parametrize(
    ("number", "made"),
    [
        (4, "F.avg_pool2d(x, 2, divisor_override=self.divisor)"),
        (2, "x * self.gain"),
        (-1, "-1 * x"),
        (-1, "x + self.gain"),
    ],
    ids=["positive", "positive factor", "written there", "a sum"],
)
def test_other_numbers_do_not_make_it_negative(
    number: int, made: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sign that is written beside the operand is meant: it may be negative itself."""
    source = POOLED.format(number=number, made=made)
    told = found(monkeypatch, tmp_path, source, ("Features.forward", 10), ("<module>", 11))
    assert told == "; line 9 takes the log of `pooled`, -inf at 0 and NaN below"


PRODUCT = """\
def radius(cell, rows):
    total = torch.eye(4)
    for row in rows:
        {round}
    return torch.linalg.eigvals(total)

radius(cell, rows)
"""


@pytest.mark.parametrize(
    ("round", "factor"),
    [
        ("total = cell.jacobian(row) @ total", "cell.jacobian(row)"),
        ("total = torch.matmul(total, row)", "row"),
        ("total = total.mm(row)", "row"),
        ("total = row @ total; total = total / total.norm()", None),
        ("total = row @ total; total /= total.norm()", None),
        ("total = row @ total; total.clamp_(-1, 1)", None),
        ("total = torch.linalg.qr(row @ total)[0]", None),
        ("total = torch.tanh(row @ total)", None),
        ("total = row @ cell", None),
        ("total = row @ total + cell", None),
    ],
)
def test_product_that_a_loop_multiplies_again(
    round: str, factor: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What scales it, or bounds it, in the same round is no overflow."""
    told = found(monkeypatch, tmp_path, PRODUCT.format(round=round), ("radius", 5), ("<module>", 7))
    known = (
        f"; line 4 multiplies `total` by `{factor}` again in each round of the loop of line 3, which overflows to inf"
    )
    assert (told or "").startswith(known) if factor is not None else "multiplies" not in (told or "")


def test_product_of_a_few_rounds_does_not_overflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for few, said in (("range(3)", False), ("range(1000)", True), ("(a, b)", False)):
        source = PRODUCT.format(round="total = row @ total").replace("in rows", f"in {few}")
        told = found(monkeypatch, tmp_path, source, ("radius", 5), ("<module>", 7))
        assert ("multiplies `total`" in (told or "")) == said


def test_what_the_failing_line_does_with_the_result_comes_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = PRODUCT.format(round="total = row @ total").replace("eigvals(total)", "eigvals(total).abs().log()")
    told = found(monkeypatch, tmp_path, source, ("radius", 5), ("<module>", 7))
    assert told is not None and told.startswith("; line 4 multiplies") and "log of" not in told
