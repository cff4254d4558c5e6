"""Writes into a part of a tensor that backward() still needs; and what only looks like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program

NET = """class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 1)
        self.other = nn.Conv1d(4, 4, 1)
    def forward(self, x):
        h = x.size(2) // 2
        {}
        return out
def inside(x, mix):
    body = mix.conv(x)
    return body * mix(x)
x = torch.ones(2, 4, 8) * nn.Parameter(torch.ones(1))
mix = Mix()
inside(x, mix).sum().backward()
"""
ALIAS = NET.format(
    """a, b = self.other(x).chunk(2, 2)
        out = x
        out[:, :, :h] = a
        out[:, :, h:] = b"""
)
NARROWED = NET.format(
    """out = x
        out.narrow(2, 0, h).mul_(self.other(x).mean())"""
)
PARAMETER = NET.replace("return out", "return x").format("x[:, 0] += x[:, 1]")
STATES = """cell = nn.Linear(3, 3)
def run(steps):
    states = torch.zeros(steps + 1, 3)
    for t in range(steps):
        states[t + 1] = cell(states * states)[t]
    return states.sum()
run(4).backward()
"""
UNLIKE = (
    ALIAS
    + """
def crop(image):
    image[0] = 0
    return image
"""
)


@pytest.mark.parametrize(
    ("source", "words", "advice"),
    [
        (
            ALIAS,
            "and 1 more line in Mix.forward write into parts of `out`, which is `x` itself (line 9: `out = x`)",
            "Write `out = x.clone()` at line 9, or make a new tensor of the parts",
        ),
        (
            NARROWED,
            "in Mix.forward writes into a part of `out`, which is `x` itself",
            "Write `out = x.clone()` at line 8",
        ),
        (
            PARAMETER,
            "Line 8 (`x[:, 0] += x[:, 1]`) in Mix.forward writes into a part of `x`",
            "Put `x = x.clone()` before",
        ),
        (STATES, "Line 5 (`states[t + 1] =", "Collect the parts in a list, and torch.stack()"),
        (UNLIKE, "Line 10 (`out[:, :, :h] = a`) and 1 more line in Mix.forward", "Write `out = x.clone()` at line 9"),
    ],
    ids=["another name", "a view's method", "a parameter", "states of a loop", "as many as torch counted"],
)
def test_write_into_a_part_is_told_with_the_tensor(source: str, words: str, advice: str, tmp_path: Path) -> None:
    """With its other name, where `out = x` made no copy; what is read between the writes needs a list."""
    found = of_program(tmp_path, source) or ""
    assert words in found, found
    assert advice in found, found


def test_headline_has_the_first_write(tmp_path: Path) -> None:
    """And how many there are."""
    found = of_program(tmp_path, ALIAS, lambda *given: explained(*given).subject) or ""
    assert found.startswith("line 10 (`out[:, :, :h] = a`) and 1 more line in Mix.forward write into parts of `out`")


EQUAL = ALIAS + (
    """
def crop(image):
    image[0] = 0
    image[1] = 0
    return image
"""
)
MASKED = NET.format(
    """out = x
        out[x > 0] = 0.0
        out[0].tolist()"""
)


@pytest.mark.parametrize("source", [EQUAL, MASKED], ids=["two functions", "by a mask"])
def test_write_that_may_be_another_is_not_told(source: str, tmp_path: Path) -> None:
    """A mask makes no view, so that torch's message has no CopySlices; of two functions nothing shows which it was."""
    assert "into" not in (of_program(tmp_path, source) or "")
