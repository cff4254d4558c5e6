"""Values of another dtype than the tensor that takes them: the cast, or autocast, that made them so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program, torch

ORTHOGONAL = """def orthogonalize(G, rounds=2):
    X = G.{cast}
    turned = G.size(0) > G.size(1)
    if turned:
        X = X.mT
    for _ in range(rounds):
        X = 1.5 * X - X @ X.mT @ X
    return X.mT if turned else X
def update(grad, average):
    step = orthogonalize(grad)
    rows = torch.mean(step * step, dim=-1, keepdim=True)
    average.lerp_(rows, 0.1)
update(torch.ones(4, 3), torch.zeros(4, 1))
"""
METHOD = """DTYPE = torch.float16
class Whiten:
    def whiten(self, g):
        if g.ndim > 1:
            return g.flatten().to(DTYPE).abs()
        return g.to(DTYPE)
class Opt:
    def __init__(self):
        self.tool = Whiten()
        self.average = torch.zeros(4)
    def step(self, g):
        scaled = 2 * self.tool.whiten(g)
        torch.lerp(self.average, end=scaled, weight=0.5)
Opt().step(torch.ones(2, 2))
"""
HETERO = """import torch.nn.functional as F
def fill(x, weight, kinds):
    out = x.new_empty(3, 2)
    for i in range(2):
        out[kinds == i] = F.linear(x[kinds == i], weight[i])
    return out
def train(amp):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
        return fill(torch.ones(3, 4), torch.ones(2, 2, 4), torch.tensor([0, 1, 0]))
train(True)
"""
SCATTERED = """class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    def forward(self, x, group):
        pooled = torch.zeros(2, 2)
        scores = self.value(x)
        pooled.index_add_(0, group, scores)
        return pooled
@torch.autocast("cpu", dtype=torch.bfloat16)
def lose(net, x):
    return net(x, torch.tensor([0, 1, 0])).sum()
lose(Pool(), torch.ones(3, 4))
"""
GIVEN = """def store(table, rows):
    table[0] = rows
    table[torch.tensor([0, 1])] = rows
store(torch.zeros(2, 2), torch.load(PATH))
"""


def words(folder: Path, source: str) -> tuple[str, str]:
    """The headline's clause, and the advice."""
    return (
        str(of_program(folder, source, lambda *given: explained(*given).subject)),
        str(of_program(folder, source)),
    )


PACKED = """def compress(t):
    scale = t.abs().amax()
    packed = (t / scale).to(torch.float16)
    return packed, scale
class Wire:
    def carry(self, t):
        packed, scale = compress(t)
        return packed.mul(float(scale))
wire = Wire()
def update(shadow, value):
    fresh = wire.carry(value)
    shadow["w"].lerp_(fresh, 0.1)
update({"w": torch.zeros(2)}, torch.ones(2))
"""


def test_element_of_a_returned_tuple_is_followed(tmp_path: Path) -> None:
    """Through two functions."""
    subject, advice = words(tmp_path, PACKED)
    assert subject.endswith("`fresh` float16, as line 3 (`(t / scale).to(torch.float16)`) makes it float16")
    assert "let compress() return the dtype that it is given" in advice


@pytest.mark.parametrize("cast", ["bfloat16()", "to(torch.bfloat16)", "to(dtype=torch.bfloat16)"])
def test_cast_in_a_helper_is_named(cast: str, tmp_path: Path) -> None:
    """Through what it returns, a loop and a reduction."""
    subject, advice = words(tmp_path, ORTHOGONAL.format(cast=cast))
    assert subject == f"`average` is float32, and `rows` bfloat16, as line 2 (`G.{cast}`) makes it bfloat16"
    assert "write `rows.to(average.dtype)`, or let orthogonalize() return the dtype that it is given" in advice
    assert "model.to" not in advice


def test_several_casts_are_not_one(tmp_path: Path) -> None:
    """Which of two returned is not followed: only the cast at the line itself is advised."""
    subject, advice = words(tmp_path, METHOD)
    assert "as line" not in subject
    assert "write `scaled.to(self.average.dtype)`, or make both of one dtype" in advice


def test_cast_by_a_constant_is_named(tmp_path: Path) -> None:
    """Of a method of an object that an attribute holds."""
    source = METHOD.replace("        if g.ndim > 1:\n            return g.flatten().to(DTYPE).abs()\n", "")
    subject, _ = words(tmp_path, source)
    assert subject == "`self.average` is float32, and `scaled` float16, as line 4 (`g.to(DTYPE)`) makes it float16"


def test_autocast_of_a_caller_is_named(tmp_path: Path) -> None:
    """With the operation that it computes in the lower dtype."""
    subject, advice = words(tmp_path, HETERO)
    assert subject.endswith("bfloat16, as below autocast (line 8) `linear()` gives bfloat16")
    assert ".to(out.dtype)`, or make `out` with dtype=bfloat16" in advice


def test_autocast_of_a_decorator_is_named_with_the_layer(tmp_path: Path) -> None:
    """nn.Sequential whose last layer keeps what the linear one made."""
    subject, advice = words(tmp_path, SCATTERED)
    assert (
        subject
        == "`pooled` is float32, and `scores` bfloat16, as below autocast (line 10) `self.value()` gives bfloat16"
    )
    assert "write `scores.to(pooled.dtype)`" in advice


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[kinds == i], weight[i])", "x[kinds == i].double(), weight[i].double())"),  # a cast of its own
        ("enabled=amp", "enabled=not amp"),
    ],
)
def test_autocast_is_not_blamed_for_another_dtype(old: str, new: str, tmp_path: Path) -> None:
    """Of a layer in float64, and where autocast is off."""
    source = HETERO.replace(old, new)
    if "not amp" in new:
        source = source.replace("F.linear(x[kinds == i], weight[i])", "F.linear(x[kinds == i], weight[i]).half()")
    subject, _ = words(tmp_path, source)
    assert "autocast" not in subject


def test_cast_that_was_undone_is_not_blamed(tmp_path: Path) -> None:
    """`.float()` lies between it and the line; the values are float64 for another reason."""
    source = ORTHOGONAL.format(cast="bfloat16().float()").replace("grad, average):", "grad, average):\n    grad = grad")
    source = source.replace("torch.ones(4, 3), torch.zeros(4, 1)", "torch.ones(4, 3), torch.zeros(4, 1).double()")
    subject, advice = words(tmp_path, source)
    assert "makes it float32" in subject and "bfloat16()`" not in subject.replace("bfloat16().float()`", "")
    assert "write `rows.to(average.dtype)`" in advice


def test_loaded_values_have_no_cast(tmp_path: Path) -> None:
    """What a file holds has the dtype of the file."""
    file = tmp_path / "rows.pt"
    torch.save(torch.zeros(2, 2, dtype=torch.float16), file)
    source = GIVEN.replace("    table[0] = rows\n", "").replace("PATH", repr(str(file)))
    subject, advice = words(tmp_path, source)
    assert "as " not in subject
    assert "write `rows.to(table.dtype)`, or make both of one dtype" in advice
