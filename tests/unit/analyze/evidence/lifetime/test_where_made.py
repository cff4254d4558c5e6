"""The line that made a tensor, and the line that made a sparse one: where it is known, and where nothing is said."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import sparse_source as sparse
from pytracer.analyze.evidence.lifetime import where_made
from pytracer.decode.types.snapshot import CallSite, PythonFrame

BASE = 0x1000
TORCH = "/usr/lib/python3/site-packages/torch/_ops.py"


def view_of(folder: Path, source: str, line: int, site: CallSite | None = None, **storage: Any) -> Any:
    """A process that crashed in what that line of the program calls."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    frame = PythonFrame("step", str(file), line)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    known = {"origin": "CPU_ALLOCATOR", "older": False, "allocated_by": site or CallSite(), "base": BASE, **storage}
    crash = SimpleNamespace(python_stack=(frame,), arguments=(), holders=())
    space = SimpleNamespace(live_around={BASE: SimpleNamespace(**known)}.get)
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), space=space)


def made(folder: Path, line: int, **how: Any) -> str | None:
    file = folder / "train.py"
    site = how.pop("site", CallSite(PythonFrame("prune", str(file), line)))
    view = view_of(folder, "mapping = torch.full((8,), 9)\nuse(mapping)\n", 2, site, **how)
    return where_made.made_words(view, BASE, "`mapping`")


def test_memory_that_the_program_allocated(tmp_path: Path) -> None:
    """With the text of the line."""
    words = made(tmp_path, 1)
    assert words == "The memory of `mapping` was allocated at line 1 in prune (`mapping = torch.full((8,), 9)`)."


def test_memory_of_others_may_change_unseen(tmp_path: Path) -> None:
    """A NumPy array's."""
    words = made(tmp_path, 1, origin="NUMPY")
    assert words is not None
    assert words.startswith("`mapping` has the memory of a NumPy array since line 1 in prune")


@pytest.mark.parametrize(
    "how",
    [{"line": 2}, {"line": 1, "older": True}, {"line": 1, "site": CallSite(PythonFrame("f", TORCH, 7))}],
    ids=["the failing line", "older than the recording", "a library's line alone"],
)
def test_a_line_that_says_nothing_is_left_out(how: dict[str, Any], tmp_path: Path) -> None:
    """It is known already, or not the program's, or not when it was allocated."""
    assert made(tmp_path, **how) is None


@pytest.mark.parametrize(
    ("line", "node", "words"),
    [(1, None, " (made at line 1 in prune)"), (2, "SelectBackward0", " (made by SelectBackward0)"), (2, None, "")],
)
def test_a_storage_without_a_name_is_told_by_what_made_it(
    line: int, node: str | None, words: str, tmp_path: Path
) -> None:
    """The line, where it is not the failing one; else the autograd node that ran."""
    site = CallSite(PythonFrame("prune", str(tmp_path / "train.py"), line), node=node)
    view = view_of(tmp_path, "mapping = torch.full((8,), 9)\nuse(mapping)\n", 2, site)
    assert where_made.made_briefly(view, BASE) == words


CSR = "torch.sparse_csr_tensor(crow, col, vals, (n, m))"


@pytest.mark.parametrize(
    ("source", "line", "name", "size"),
    [
        (f"adj = {CSR}\nout = adj @ x\n", 2, "adj", "(n, m)"),
        (f"def build():\n    return {CSR}\n\nadj = build()\nout = torch.sparse.mm(adj, x)\n", 5, "adj", "(n, m)"),
        ("a = torch.sparse_coo_tensor(where, vals, size=(3, 4)).coalesce()\nb = a.to_sparse_csr()\n", 2, "a", "(3, 4)"),
        ("a = torch.sparse_coo_tensor(where, vals)\nb = a.to_dense()\n", 2, "a", None),
    ],
)
def test_constructor_of_a_sparse_tensor(source: str, line: int, name: str, size: str | None, tmp_path: Path) -> None:
    """Through functions, and what keeps the indices."""
    found = sparse.sparse_source(view_of(tmp_path, source, line))
    assert found is not None
    assert (found.name, found.size) == (name, size)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("adj = torch.sparse_csr_tensor(crow, col, vals, (n, m), check_invariants=True)\nout = adj @ x\n", 2),
        (f"torch.sparse.check_sparse_tensor_invariants.enable()\nadj = {CSR}\nout = adj @ x\n", 3),
        (f"a = {CSR}\nb = {CSR}\nout = a @ b\n", 3),
        (f"adj = {CSR}\nadj = normalised(adj)\nout = adj @ x\n", 3),
        ("adj = torch.randn(3, 4)\nout = adj @ x\n", 2),
    ],
    ids=["checked", "checked everywhere", "two", "of another function", "dense"],
)
def test_no_constructor_is_named(source: str, line: int, tmp_path: Path) -> None:
    """Its indices were checked, or another tensor may be meant."""
    assert sparse.sparse_source(view_of(tmp_path, source, line)) is None


@pytest.mark.parametrize(("access", "values"), [("read", "3..999; "), ("write", "")])
def test_advice_names_the_indices_and_the_size(
    access: str, values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the lines that made them, and the range where nothing was written over it."""
    source = f"col = hashes(words)\nn, m = 4, 8\nadj = {CSR}\nout = adj @ x\n"
    view = view_of(tmp_path, source, 4)
    view.fault = SimpleNamespace(access=access)
    held = SimpleNamespace(minimum=3, maximum=999, is_integer=True, dimensions=1, elements=40)
    item = SimpleNamespace(name="col", item=held)
    monkeypatch.setattr(sparse, "find_operator", lambda view: SimpleNamespace(tensors=(item,)))
    found = sparse.sparse_source(view)
    assert found is not None
    says = sparse.sparse_advice(view, found)
    assert says.startswith(
        f"Compare min() and max() of `col` ({values}line 1: `col = hashes(words)`) with the size `(n, m)`"
    )
    assert "at line 3, where torch.sparse_csr_tensor() makes `adj` and does not check them" in says


@pytest.mark.parametrize(
    ("given", "indices"),
    [
        ("crow, col, vals, size=(n, m)", ("crow", "col")),
        ("col_indices=col, values=vals, crow_indices=crow, size=(n, m)", ("crow", "col")),
        ("crow, *parts, size=(n, m)", None),
    ],
    ids=["by their places", "by their names, in another order", "starred"],
)
def test_indices_of_a_constructor_are_in_its_order(given: str, indices: tuple[str, ...] | None, tmp_path: Path) -> None:
    """Pointers first; of `*parts` nothing is known."""
    found = sparse.sparse_source(view_of(tmp_path, f"adj = torch.sparse_csr_tensor({given})\nout = adj @ x\n", 2))
    assert (found.indices if found is not None else None) == indices
