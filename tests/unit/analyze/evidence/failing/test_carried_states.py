"""State that an object carries on with a freed graph: also in buffers, and below an autograd function."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analyze.evidence.test_failing import of_program

FUNCTION = """
class Fire(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()
    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1.0 + v.abs())
"""
CELL = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('level', torch.zeros(1, 4))
    def clear(self):
        {clear}
    def fits(self, x):
        return self.level.shape[0] == x.shape[0]
    def forward(self, x):
        if {test}:
            self.level = torch.zeros(x.shape[0], 4)
        level = 0.9 * self.level + x
        out = {out}
        self.level = level - out
        return out
fc, cell = nn.Linear(3, 4), Cell()
def train(batches):
    {before}
    for x in batches:
        {reset}
        loss = cell(fc(x)).mean()
        loss.backward()
        {after}
train([torch.rand(2, 3) for _ in range(3)])
"""
STORED = "`self.level` (line 25: `self.level = level - out`)"


def said(folder: Path, **parts: str) -> str | None:
    """Of a program with those parts."""
    given = {
        "clear": "pass", "test": "not self.fits(x)", "out": "Fire.apply(level)", "before": "pass",
        "reset": "cell.clear()", "after": "pass",
    }  # fmt: skip
    return of_program(folder, FUNCTION + CELL.format(**{**given, **parts}))


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"clear": "self.level.zero_()"}, "`self.level.zero_()` (line 17)"),
        ({"clear": "self.level.fill_(0)"}, "`self.level.fill_(0)` (line 17)"),
        ({"clear": "self.level[:] = 0"}, "`self.level[:] = 0` (line 17)"),
        ({"clear": "nn.init.zeros_(self.level)"}, "`nn.init.zeros_(self.level)` (line 17)"),
        ({"clear": "for b in self.buffers(): b.zero_()"}, "`b.zero_()` (line 17)"),
        ({"reset": "cell.level.zero_()"}, "`cell.level.zero_()` (line 31)"),
    ],
)
def test_buffer_that_is_only_overwritten_keeps_the_graph(parts: dict[str, str], line: str, tmp_path: Path) -> None:
    """The state, the line that reads it, and the one that does not cut it; the function applied there proves it."""
    words = said(tmp_path, **parts) or ""
    assert words.startswith(f"What Cell keeps in {STORED} is a result with its graph, which the next step reads")
    assert f"{line} overwrites its values and keeps the graph" in words
    assert ".detach_()" in words
    assert "retain_graph=True would only" in words


@pytest.mark.parametrize(
    "test", ["self.level is None or not self.fits(x)", "self.level.shape[0] != x.shape[0]", "not self.fits(x)"]
)
def test_state_that_is_made_only_where_none_fits_is_carried(test: str, tmp_path: Path) -> None:
    """A first value, and one of another batch's size, are no reset of each step."""
    words = said(tmp_path, test=test) or ""
    assert f"keeps in {STORED}" in words
    assert "overwrites" not in words


def test_function_of_several_places_proves_less(tmp_path: Path) -> None:
    """The graph that was freed may be of another place."""
    words = said(tmp_path, clear="self.level.zero_()", after="Fire.apply(torch.ones(1))") or ""
    assert words.startswith(f"Most likely by what Cell keeps in {STORED}")


def test_operations_of_torch_s_own_prove_less(tmp_path: Path) -> None:
    """Without an autograd function of the program."""
    words = said(tmp_path, clear="self.level.zero_()", out="level.tanh().square()") or ""
    assert words.startswith(f"Most likely by what Cell keeps in {STORED}")
    assert "`self.level.zero_()` (line 17) overwrites" in words


@pytest.mark.parametrize(
    "parts",
    [
        {"clear": "self.level.detach_().zero_()"},
        {"clear": "self.level = torch.zeros(2, 4)"},
        {"clear": "self.level = self.level.detach()"},
        {"clear": "setattr(self, 'level', torch.zeros(2, 4))"},
        {"reset": "cell.level = torch.zeros(2, 4)"},
        {"test": "x.requires_grad", "reset": "pass"},  # not known to be only for the first batch
    ],
)
def test_state_that_is_cut_in_each_step_is_not_named(parts: dict[str, str], tmp_path: Path) -> None:
    """Then it is another graph: here, of a second backward()."""
    words = said(tmp_path, **parts, after="again(loss)\ndef again(loss):\n    loss.backward()") or ""
    assert "self.level" not in words


LOGGED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.mean = nn.Linear(3, 4), None
    def forward(self, x):
        h = self.fc(x)
        if self.mean is None:
            self.mean = h.mean()
        self.mean = 0.9 * self.mean + 0.1 * h.mean()
        return {returned}
net, weights = Net(), torch.softmax(nn.Parameter(torch.ones(4)), 0)
def train(batches):
    for x in batches:
        loss = (weights * net(x)).mean()
        loss.backward()
        {after}
train([torch.rand(2, 3) for _ in range(3)])
"""


@pytest.mark.parametrize("after", ["print(float(net.mean))", "print(f'{net.mean:.3f}')", "pass"])
def test_state_that_is_only_logged_is_no_part_of_the_loss(after: str, tmp_path: Path) -> None:
    """What has been freed is another graph: here, of weights that were computed once."""
    assert "self.mean" not in (of_program(tmp_path, LOGGED.format(returned="h", after=after)) or "")


def test_state_that_is_part_of_what_is_returned_is_carried(tmp_path: Path) -> None:
    """The same class, with the mean in its result."""
    assert "self.mean" in (of_program(tmp_path, LOGGED.format(returned="h - self.mean", after="pass")) or "")


HELPED = """
def repackage(h):
    return {cut}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.h = nn.RNN(3, 4), None
    def forward(self, x):
        if self.h is None or self.h.shape[1] != x.shape[1]:
            self.h = torch.zeros(1, x.shape[1], 4)
        h = repackage(self.h)
        out, self.h = self.fc(x, h)
        return out
net, weights = Net(), torch.softmax(nn.Parameter(torch.ones(4)), 0)
def train(batches):
    for x in batches:
        loss = (weights * net(x)).mean()
        loss.backward()
train([torch.rand(5, 2, 3) for _ in range(3)])
"""


def test_state_that_a_function_detaches_is_not_named(tmp_path: Path) -> None:
    """As in torch's example of a language model; a function that only passes it on cuts nothing."""
    assert "self.h" not in (of_program(tmp_path, HELPED.format(cut="h.detach()")) or "")
    assert "self.h" in (of_program(tmp_path, HELPED.format(cut="h.contiguous()")) or "")


@pytest.mark.parametrize(
    "after",
    [
        "setattr(net, 'h', None)",
        "for name in ('h',): setattr(net, name, getattr(net, name).detach())",
        "for name in ('h',): setattr(net, name, None)",
    ],
)
def test_state_that_others_set_by_its_name_is_not_named(after: str, tmp_path: Path) -> None:
    """A callback that cuts the attributes of all layers."""
    text = HELPED.replace("loss.backward()\n", "loss.backward()\n        AFTER\n").replace("AFTER", after)
    assert "self.h" not in (of_program(tmp_path, text.format(cut="h.contiguous()")) or "")
    kept = text.replace(after, "setattr(net, 'rate', 0.5)")
    assert "self.h" in (of_program(tmp_path, kept.format(cut="h.contiguous()")) or "")
