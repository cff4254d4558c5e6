"""Which part of a compressed sparse tensor led a product astray, in what words, and what must not be taken for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import compressed_parts as module
from pytracer.analyze.evidence.indices import sparse_source as sparse
from pytracer.analyze.evidence.indices.compressed_facts import WrongPart
from pytracer.analyze.evidence.indices.compressed_parts import wrong_part
from pytracer.analyze.evidence.indices.part_words import part_advice, part_summary
from pytracer.analyze.evidence.indices.sparse_source import sparse_source
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor
from pytracer.decode.types.snapshot import CallSite, PythonFrame
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of
from tests.unit.analyze.rules.test_operators import tensor

DENSE, COPY, CROW, RESULT, VALUES = 0x10000, 0x90000, 0xA0000, 0xB0000, 0xC0000
ROWS, WIDTH, ENTRIES = 400, 8, 1000
KERNEL = "mkl_sparse_s_csr_ng_n_mm_c_ker_i4_avx512"
VECTOR = SimpleNamespace(size=32, text="vmovups ymm5, ymmword ptr [rax + r10*4]")
LOAD = SimpleNamespace(size=4, text="mov r10d, dword ptr [r8 + r12*4 - 4]")
SCALAR = SimpleNamespace(size=4, text="vbroadcastss ymm3, dword ptr [r14 + r8*4]")

IDS = """class Graph:
    def __init__(self, table):
        rows = np.searchsorted(table.known, table.citing)
        self.rows = rows
        self.cols = table.cited[self.rows.argsort()]
    def matrix(self):
        return torch.sparse_csr_tensor(self.starts(), torch.from_numpy(self.cols), torch.ones(9), size=(4, 4))
graph = Graph(read())
adj = graph.matrix()
out = adj @ x
"""
BYTES = """class Store:
    def write(self, starts, cols):
        (starts * cols.itemsize).tofile(self.base + ".offsets")
    def matrix(self):
        crow = torch.from_numpy(np.fromfile(self.base + ".offsets", dtype=np.int64))
        return torch.sparse_csr_tensor(crow, col, val, size=(4, 4))
def smooth(parts):
    return torch.cat([part @ weight for part in parts])
store = Store()
smooth([store.matrix() for part in range(2)])
"""


def crashed(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str = IDS,
    line: int = 10,
    *,
    columns: tuple[int, int] | None = (0, 90_000),
    pointers: int | None = None,
    base: int = DENSE,
    far: int = 50_000_000,
    instruction: Any = VECTOR,
    of_line: bool = True,
    function: str = KERNEL,
    held: bool = False,
    more: tuple[Any, ...] = (),
) -> Any:
    """A product of a sparse tensor of 400 x 400 and 1000 entries with a dense one of 400 x 8."""
    view = view_of(folder, source, line)
    failing = view.crash.python_stack[0]
    if source is BYTES:
        stack = [("smooth.<locals>.<listcomp>", 8), ("smooth", 8), ("<module>", 10)]
        view.crash.python_stack = tuple(PythonFrame(name, failing.file, at) for name, at in stack)
    site = CallSite(PythonFrame("step", failing.file, line if of_line else 1))
    made = CallSite(PythonFrame("matrix", failing.file, 7 if source is IDS else 5))
    sizes = {DENSE: ROWS * WIDTH * 4, COPY: ENTRIES * 4, CROW: (ROWS + 1) * 4, RESULT: ROWS * WIDTH * 4}
    storages = [
        SimpleNamespace(base=at, nbytes=size, state="live", older=False, allocated_by=site)
        for at, size in sizes.items()
    ]
    storages.append(SimpleNamespace(base=VALUES, nbytes=ENTRIES * 4, state="live", older=False, allocated_by=made))
    view.process.snapshot.storages = storages
    held_at = {item.base: item for item in storages}
    view.space = SimpleNamespace(live_around=held_at.get)
    view.crash.registers = {"rax": base}
    view.crash.native_stack = (SimpleNamespace(function=function, image="libtorch_cpu.so"),)
    view.fault, view.region_opener = SimpleNamespace(access="read"), None
    view.instruction = instruction
    view.place = SimpleNamespace(
        addr=base + far, kind="past-storage", storage=held_at[base], register="rax", formation=None, overrun=None
    )
    items = [tensor(RESULT, ROWS, WIDTH), *more]
    if columns is not None:
        how = "held" if held else "reference"
        items.append(tensor(COPY, ENTRIES, dtype="int32", minimum=columns[0], maximum=columns[1], how=how))
    if pointers is not None:
        items.append(tensor(CROW, ROWS + 1, dtype="int32", minimum=0, maximum=pointers))
    operator = Operator("aten::matmul", None, tuple(OperatorTensor(item, None, None, passed=True) for item in items))
    for each in (module, sparse):
        monkeypatch.setattr(each, "find_operator", lambda _: operator)
    monkeypatch.setattr(module, "runs_sparse", lambda _: True)
    return view


def found_in(view: Any) -> WrongPart:
    found = wrong_part(view)
    assert found is not None
    return found


def test_columns_beyond_the_dense_factor_are_named_with_the_line_that_computes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = crashed(tmp_path, monkeypatch)
    found = found_in(view)
    assert (found.part, found.high, found.limit, found.exact) == ("indices", 90_000, ROWS, True)
    assert part_summary(view, found) == (
        "the column indices of the sparse CSR tensor `adj` go from 0 to 90000, outside of its 400 columns (line 5: "
        "`self.cols = table.cited[self.rows.argsort()]`); torch.sparse_csr_tensor() at line 7 in Graph.matrix does not "
        "check them"
    )


def test_ids_beside_others_that_are_looked_up_are_to_be_looked_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = crashed(tmp_path, monkeypatch)
    says = part_advice(view, found_in(view))
    assert says.startswith(
        "Make the values at line 5 positions from 0 to 399, as line 3 does with other ids "
        "(`rows = np.searchsorted(table.known, table.citing)`)."
    )
    assert "check_invariants=True there raises an error" in says


def test_line_that_picks_the_ids_is_named_not_the_one_that_saved_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """np.savetxt("cora.cites", cites)
def load(path):
    cites = np.loadtxt("cora.cites", dtype=np.int64)
    rows = lookup(cites[:, 0])
    cols = cites[:, 1]
    cols = cols[order]
    return rows, cols
rows, cols = load(path)
adj = torch.sparse_csr_tensor(crow, torch.from_numpy(cols), val, (4, 4))
out = adj @ x
"""
    view = crashed(tmp_path, monkeypatch, source, 10)
    assert "(line 5: `cols = cites[:, 1]`)" in part_summary(view, found_in(view))


def test_ids_that_were_looked_up_are_not_told_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = IDS.replace("table.cited[self.rows.argsort()]", "rows + 90")
    view = crashed(tmp_path, monkeypatch, source)
    assert "as line 3 does" not in part_advice(view, found_in(view))


def test_pointers_lead_to_an_index_behind_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a list of matrices, and a file that another line wrote."""
    view = crashed(tmp_path, monkeypatch, BYTES, 8, columns=None, base=COPY, far=16_000, instruction=LOAD)
    found = found_in(view)
    assert (found.part, found.entry, found.limit, found.exact) == ("pointers", 4000, ENTRIES, False)
    assert part_summary(view, found) == (
        "the row pointers of the sparse CSR tensor `part` lead to entry 4000, beyond the 1000 that it has (line 3: "
        "`(starts * cols.itemsize).tofile(self.base + '.offsets')`, times `cols.itemsize`: offsets in bytes, read back "
        "at line 5); torch.sparse_csr_tensor() at line 6 in Store.matrix does not check them"
    )
    assert part_advice(view, found).startswith("Divide `crow` by the size of an element (`cols.itemsize`) at line 5")


def test_pointers_lead_to_a_value_behind_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many as there are columns, which the same function made."""
    view = crashed(tmp_path, monkeypatch, columns=None, base=VALUES, far=16_000, instruction=SCALAR)
    assert wrong_part(view) is None  # nothing else has as many
    view.process.snapshot.storages.append(
        SimpleNamespace(base=1, nbytes=ENTRIES * 8, state="live", allocated_by=view.place.storage.allocated_by)
    )
    assert found_in(view).part == "pointers"


def test_recorded_pointers_end_beyond_the_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch, columns=(0, ROWS - 1), pointers=8000)
    found = found_in(view)
    assert (found.part, found.high, found.limit, found.exact) == ("pointers", 8000, ENTRIES, False)
    assert "end at 8000, beyond its 1000 entries" in part_summary(view, found)


def test_tensor_of_column_pointers_has_row_indices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch, IDS.replace("csr", "csc"))
    assert "the row indices of the sparse CSC tensor `adj` go from 0 to 90000, outside of its 400 rows" in (
        part_summary(view, found_in(view))
    )


@pytest.mark.parametrize(
    "how",
    [
        {"columns": (0, ROWS - 1)},  # right ones: the dense factor is at fault
        {"columns": (0, ROWS - 1), "pointers": ENTRIES},
        {"columns": None},  # nothing is known of either
        {"of_line": False},  # how many rows a dense one without a name has is not known
        {"held": True},  # another tensor, of some variable
        {"function": "at::native::addmm_out_kernel"},
        {"source": IDS.replace("size=(4, 4)", "size=(4, 4), check_invariants=True")},
        {"source": IDS.replace("sparse_csr_tensor(self.starts(), ", "sparse_coo_tensor(")},
        {"source": IDS.replace("out = adj @", "out = torch.sparse_csr_tensor(a, b, c) @ x + adj @").replace(
            "adj = graph.matrix()", "adj = graph.matrix() if big else other(x)")},
        {"more": (tensor(DENSE, 4 * ROWS, WIDTH),)},  # resized: it has fewer bytes than its shape takes
        {"columns": None, "base": COPY, "far": 16_000, "instruction": VECTOR},
        {"columns": None, "base": CROW, "far": 16_000, "instruction": LOAD},  # the pointers themselves
        {"columns": None, "base": RESULT, "far": 50_000, "instruction": LOAD},
    ],
)  # fmt: skip
def test_neither_part_is_blamed(how: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_part(crashed(tmp_path, monkeypatch, **how)) is None


def test_dense_factor_of_more_rows_is_taken_by_its_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch, more=(tensor(DENSE, ROWS, WIDTH, strides=(WIDTH, 1)),), of_line=False)
    found = found_in(view)
    assert (found.limit, found.exact) == (ROWS, False)


TWO = """def make(k):
    return torch.sparse_csr_tensor(a, k, v, (4, 4))
one, two = make(p), make(q)
r = one @ x + two @ x
"""


def test_tensors_of_one_line_are_named_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch, TWO, 4)
    assert "the sparse CSR tensor `one` or `two` go from" in part_summary(view, found_in(view))


PASSED = """class Layer:
    def forward(self, x, adj):
        return self.own(x) + adj @ x
class Net:
    def forward(self, x, adj):
        return self.second(torch.relu(self.first(x, adj)), adj)
def fit(run):
    run()
def main():
    adj = torch.sparse_csr_tensor(crow, col, val, (4, 4))
    fit({lambda}: net(words, adj))
main()
"""


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        (("{lambda}", "lambda"), True),
        (("{lambda}", "lambda adj"), False),  # its own
        (("torch.relu(self.first(x, adj)), adj)", "torch.relu(self.first(x, other)), adj)"), False),
    ],
)
def test_tensor_is_followed_through_a_lambda_and_two_layers_that_get_it(
    change: tuple[str, str], is_found: bool, tmp_path: Path
) -> None:
    view = view_of(tmp_path, PASSED.replace(*change).replace("{lambda}", "lambda"), 3)
    file = view.crash.python_stack[0].file
    lines = [("Layer.forward", 3), ("Net.forward", 6), ("main.<locals>.<lambda>", 11), ("fit", 8), ("main", 11)]
    view.crash.python_stack = tuple(PythonFrame(function, file, line) for function, line in lines)
    found = sparse_source(view)
    assert (found is not None) == is_found
    assert found is None or (found.name, found.line) == ("adj", 10)
