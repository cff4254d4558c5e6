"""Indices beyond a tensor's rows in index_select(): kept from an earlier call, or given so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analyze.evidence.test_failing import of_program

LINE = "    def forward(self, x, edges):\n"
CACHED = f"""class Conv(nn.Module):
    def __init__(self, cached=False):
        super().__init__()
        self.cached, self._edges = cached, None
{LINE}        if self._edges is None:
            edges = edges.flip(0)
            if self.cached:
                self._edges = edges
        else:
            edges = self._edges
        row, col = edges
        return x.index_select(0, row)
"""
HASATTR = f"""class Conv(nn.Module):
{LINE}        if not hasattr(self, "adjacency"):
            self.adjacency = edges.clone()
        sources = self.adjacency[0]
        return torch.index_select(x, 0, sources)
"""
HELPER = f"""class Conv(nn.Module):
    kept = None
    def prepared(self, edges):
        if self.kept is not None:
            return self.kept
        self.kept = edges.long()
        return self.kept
{LINE}        src, dst = self.prepared(edges).unbind(0)
        return torch.index_select(input=x, dim=0, index=src)
"""
FLAG = f"""class Conv(nn.Module):
    ready = False
{LINE}        if not self.ready:
            self.src = edges[0]
            self.ready = True
        return nn.functional.embedding(self.src, x)
"""
CHOICE = f"""class Conv(nn.Module):
    table = None
{LINE}        self.table = edges if self.table is None else self.table
        return x.index_select(0, self.table[0])
"""
EACH = f"""class Conv(nn.Module):
{LINE}        self.edges = edges + 3
        row, col = self.edges
        return x.index_select(0, row)
"""
FIRST = f"""class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.edges = torch.tensor([[0, 7], [7, 0]])
{LINE}        row, col = self.edges
        return x.index_select(0, row)
"""
CALLS = """
def train(conv, graphs):
    for x, edges in graphs:
        conv(x, edges)
train(Conv({option}), [(torch.ones(n, 2), torch.tensor([[0, m], [m, 0]])) for n, m in {sizes}])
"""
LARGER_FIRST, OWN = "[(8, 7), (9, 8), (4, 3)]", "[(8, 7), (4, 6)]"


@pytest.mark.parametrize(
    ("source", "option", "attribute", "set_at"),
    [
        (CACHED, "cached=True", "self._edges", 9),
        (HASATTR, "", "self.adjacency", 4),
        (HELPER, "", "self.kept", 6),
        (FLAG, "", "self.src", 5),
    ],
    ids=["cached", "hasattr", "helper", "flag"],
)
def test_indices_of_an_earlier_input(source: str, option: str, attribute: str, set_at: int, tmp_path: Path) -> None:
    """Those that this call was given would have fitted."""
    words = of_program(tmp_path, source + CALLS.format(option=option, sizes=LARGER_FIRST)) or ""
    assert "[4, 2] has 4 in dimension 0, 0 to 3, and" in words
    assert "reaches 7, kept from an earlier call: line " in words
    assert f"takes it from `{attribute}`, which line {set_at} sets once, for the first input" in words
    assert "`edges` of this call reaches 3 only. Make it for each call" in words
    assert ("(without `cached=True`, line 18)" in words) == bool(option)


@pytest.mark.parametrize(
    ("source", "option", "sizes"),
    [(CACHED, "", OWN), (HASATTR, "", "[(4, 6)]"), (EACH, "", LARGER_FIRST), (FIRST, "", LARGER_FIRST)],
    ids=["given so", "first call", "each call", "always"],
)
def test_indices_that_no_earlier_call_made(source: str, option: str, sizes: str, tmp_path: Path) -> None:
    """The look-alikes: an input that does not fit itself, an attribute that each call sets, and one of __init__."""
    words = of_program(tmp_path, source + CALLS.format(option=option, sizes=sizes)) or ""
    assert "it was made for another tensor, or by a wrong count" in words
    assert "earlier call" not in words


def test_attribute_that_is_taken_away_again_may_be_of_this_call(tmp_path: Path) -> None:
    """By a method that a training loop may call for each input."""
    source = HASATTR.replace(LINE, f"    adjacency = None\n    def reset(self):\n        self.adjacency = None\n{LINE}")
    source = source.replace('not hasattr(self, "adjacency")', "self.adjacency is None")
    words = of_program(tmp_path, source + CALLS.format(option="", sizes=LARGER_FIRST)) or ""
    assert "reaches 7, perhaps kept from an earlier call" in words


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("torch.ones(2, 4).index_select(1, rows)", None),  # a tensor without a name
        ("x.index_select(1, rows)", "`x` [5, 3] has 3 in dimension 1, 0 to 2, and `rows` (line 2: "),
        ("torch.index_select(x, -1, rows)", "`x` [5, 3] has 3 in dimension 1, 0 to 2, and `rows` (line 2: "),
    ],
)
def test_indices_of_any_dimension(line: str, says: str | None, tmp_path: Path) -> None:
    """What is said has no embedding in it."""
    words = of_program(tmp_path, f"x = torch.ones(5, 3)\nrows = torch.tensor([0, 4])\n{line}\n") or ""
    assert (says or "") in words
    assert "embedding" not in words and "tokenizer" not in words
