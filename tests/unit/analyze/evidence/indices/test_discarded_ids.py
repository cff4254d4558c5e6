"""Ids that were numbered anew and thrown away, behind a sparse tensor whose indices are the old ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import sparse_source as sparse
from pytracer.analyze.evidence.indices.sparse_source import sparse_advice, sparse_source
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of

UNIQUE = """\
def graph(src, dst):
    nodes, _ = torch.unique(src, return_inverse=True)
    adj = torch.sparse_csr_tensor(dst, src, ones, size=(8, len(nodes)))
    return adj @ x
"""
OWN = """\
class Sampler:
    def relabel(self, seeds, col):
        nodes = torch.unique(col)
        self.lookup[nodes] = torch.arange(len(nodes))
        local = self.lookup[col]
        return nodes, local

    def full(self, seeds):
        rowptr, col = self.layer(seeds)
        nodes, _ = self.relabel(seeds, col)
        return nodes, [(rowptr, col, (len(seeds), len(nodes)))]

def forward(x, blocks):
    for rowptr, col, shape in blocks:
        adj = torch.sparse_csr_tensor(rowptr, col, ones, size=shape)
        x = adj @ x

def main():
    sampler = Sampler()
    nodes, blocks = sampler.full(seeds)
    forward(x, blocks)
"""


def advice_of(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, line: int, outer: int | None = None) -> str:
    view: Any = view_of(folder, source, line)
    if outer is not None:
        frame = view.crash.python_stack[0]
        view.crash.python_stack = (type(frame)("forward", frame.file, line), type(frame)("main", frame.file, outer))
    monkeypatch.setattr(sparse, "find_operator", lambda _: None)
    view.fault = None
    found = sparse_source(view)
    assert found is not None
    return sparse_advice(view, found)


def test_inverse_of_unique_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = advice_of(tmp_path, monkeypatch, UNIQUE.replace("def graph", "def step"), 4)
    assert words.startswith(
        "See first line 2 in step (`nodes, _ = torch.unique(src, return_inverse=True)`): it throws away the second "
        "value, `src` numbered anew, and `src` itself is passed on."
    )
    assert "`nodes, src = torch.unique(src, return_inverse=True)` passes the new numbers." in words


def test_variable_of_a_stack_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of a COO tensor, made by a line of its own."""
    old = "    adj = torch.sparse_csr_tensor(dst, src, "
    source = UNIQUE.replace("def graph", "def step").replace(old, old.replace("csr_tensor(dst, src", "coo_tensor(both"))
    source = source.replace("    adj", "    both = torch.stack([dst, src])\n    adj", 1)
    assert advice_of(tmp_path, monkeypatch, source, 5).startswith("See first line 2 in step")


def test_value_of_a_function_of_the_program_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a loop over blocks, an argument, and what a method returns."""
    words = advice_of(tmp_path, monkeypatch, OWN, 16, 21)
    assert words.startswith("See first line 10 in Sampler.full (`nodes, _ = self.relabel(seeds, col)`)")
    assert "`col` numbered anew (line 5: `local = self.lookup[col]`)" in words


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nodes, _ = self", "nodes, col = self"),  # passed on
        ("nodes, _ = self.relabel(seeds, col)", "nodes, _ = self.relabel(seeds, seeds)"),  # of others
        ("local = self.lookup[col]", "local = col.bincount()"),  # how often each comes
        ("        return nodes, [(", "        col = fresh(col)\n        return nodes, [("),  # made anew behind
    ],
)
def test_look_alikes(old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = OWN.replace(old, new)
    more = source.count("\n") - OWN.count("\n")
    assert "See first" not in advice_of(tmp_path, monkeypatch, source, 16 + more, 21 + more)


def test_counts_are_no_numbers_of_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = UNIQUE.replace("def graph", "def step").replace("inverse", "counts")
    assert "See first" not in advice_of(tmp_path, monkeypatch, source, 4)


def test_check_of_a_compressed_tensor_also_refuses_unsorted_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it may raise for right ones; of COO tensors it does not."""
    source = UNIQUE.replace("def graph", "def step")
    assert "but also for columns that are not sorted, or repeat" in advice_of(tmp_path, monkeypatch, source, 4)
    coo = source.replace("csr_tensor(dst, src", "coo_tensor(src")
    assert "raises an error that says what is wrong." in advice_of(tmp_path, monkeypatch, coo, 4)
