"""What was computed once, before the loop whose first backward() frees its graph: the line, and what to do there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analyze.evidence.test_failing import of_program

ENCODED = """class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
    def forward(self, x):
        code = self.inner(x).tanh()
        return code, code.sum()
    def encode(self, x):
        return self.inner(x).tanh()
def fit(head, features):
    for start in range(0, 4, 2):
        loss = head(features[start : start + 2]).sum()
        loss.backward()
def main():
    coder = Coder().eval()
    {made}
    fit(nn.Linear(2, 1), codes)
main()
"""
PENALTY = """w = torch.ones(3, requires_grad=True)
reg = (w ** 2).sum()
for step in range(2):
    loss = (w * step).sum() + reg
    loss.backward()
"""


@pytest.mark.parametrize(
    ("made", "owner"),
    [("codes, extra = coder(torch.ones(4, 3))", "coder"), ("codes = coder.encode(torch.ones(4, 3))", "coder")],
)
def test_features_of_a_module_are_computed_without_a_graph(made: str, owner: str, tmp_path: Path) -> None:
    """At the caller's line that made them, and not at the one in forward()."""
    words = of_program(tmp_path, ENCODED.format(made=made)) or ""
    assert words.startswith(f"`features` (line 16: `{made[:30]}")
    assert "compute it below `with torch.no_grad():` at line 16, or detach() it there; if " in words
    assert f"if `{owner}` is to be trained in that loop, call it in each round" in words


def test_penalty_of_weights_is_computed_in_each_round(tmp_path: Path) -> None:
    """Without its graph it would not count."""
    words = of_program(tmp_path, PENALTY) or ""
    assert "`reg` (line 2: `reg = (w ** 2).sum()`) was computed once" in words
    assert words.endswith("compute it in each round.") and "no_grad" not in words
