"""An address that an unchecked index of a sparse tensor leads to, and what the size of that tensor counts."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import sparse_source as sparse
from pytracer.analyze.evidence.indices.sparse_source import sparse_advice, sparse_source
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor
from pytracer.analyze.evidence.syntax.lines import attributes_of_line
from pytracer.analyze.evidence.wild import sparse_index as module
from pytracer.analyze.evidence.wild.sparse_index import sparse_index
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of
from tests.unit.analyze.rules.test_operators import tensor

BASE, ELEMENT = 0x5581_0000_1000, 1_000_000
PLAIN = "adj = torch.sparse_coo_tensor(edges, ones, (800, 500))\nout = adj.to_dense()\n"
IDS = """n = len(torch.unique(items))
{between}
adj = torch.sparse_coo_tensor(torch.stack([users, items]), stars, (m, n))
out = adj.to_dense()
"""
NESTED = """class Data:
    def __init__(self, edges, n):
        self.adj = torch.sparse_coo_tensor(edges, ones, (n, n))
class Net:
    def __init__(self, data):
        self.data = data
    def forward(self):
        return self.data.adj.to_dense()
def main():
    data = Data(load(), 5)
    net = Net(data)
    net()
"""


def crashed(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str = PLAIN,
    line: int = 2,
    name: str = "aten::to_dense",
    **how: Any,
) -> Any:
    view = view_of(run, source, line)
    dense = tensor(BASE, 800, 500, **how)
    monkeypatch.setattr(
        module, "find_operator", lambda _: Operator(name, None, (OperatorTensor(dense, None, None, passed=True),))
    )
    view.crash.registers = {"r10": BASE, "rax": 4}
    view.place = SimpleNamespace(addr=BASE + 4 * ELEMENT, kind="unmapped")
    return view


def test_index_is_likely_where_the_address_is_an_element_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = crashed(tmp_path, monkeypatch)
    found = sparse_index(view)
    assert found is not None and found.element == ELEMENT and found.confidence(view) == "likely"
    assert "an index of `adj` (constructed at line 1, unchecked) is beyond its size `(800, 500)`" in found.clause(view)
    own = found.evidence(view, None)[0]
    assert own is not None and "row 2000, or in a right row one of 600500..1000000 in the last" in own.sentence


@pytest.mark.parametrize(
    "how",
    [
        {"dtype": "int64"},  # its own indices
        {"name": "f"},  # an extension's function
        {"source": PLAIN.replace("500))", "500), check_invariants=True)")},
        {"source": PLAIN.replace("sparse_coo_tensor(edges, ", "sparse_csr_tensor(rows, edges, ")},  # by reached rows
        {"source": "out = x.to_dense()\n", "line": 1},
    ],
)
def test_address_stays_wild_where_the_indices_are_checked_or_unknown(
    how: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sparse_index(crashed(tmp_path, monkeypatch, **how)) is None


def test_address_between_elements_is_reached_by_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch)
    view.place.addr += 2
    assert sparse_index(view) is None


@pytest.mark.parametrize(
    ("between", "numbered"), [("", True), ("items = torch.searchsorted(known, items)", False), ("items -= 1", False)]
)
def test_ids_whose_different_values_are_the_size_are_to_be_numbered(
    between: str, numbered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless they are set anew behind that line."""
    view = view_of(tmp_path, IDS.replace("{between}", between), 4)
    source = sparse_source(view)
    monkeypatch.setattr(sparse, "find_operator", lambda _: None)
    view.fault = None
    assert source is not None
    assert sparse_advice(view, source).startswith("Number the ids of `items` from 0 on before line 3") == numbered


def test_attribute_of_an_attribute_is_followed(tmp_path: Path) -> None:
    view = view_of(tmp_path, NESTED, 8)
    view.crash.python_stack += (type(view.crash.python_stack[0])("main", view.crash.python_stack[0].file, 12),)
    source = sparse_source(view)
    assert source is not None and (source.name, source.line) == ("self.data.adj", 3)


def test_attributes_of_a_line_are_those_that_are_read_whole() -> None:
    text = "y = f(self.graph.adj.t(), batch.x, self.w, torch.float32) + self.data.x.y\n"
    found = attributes_of_line(ast.parse(text), 1)
    assert sorted(found) == ["batch.x", "self.data.x.y", "self.graph.adj", "torch.float32"]
