"""A compressed sparse tensor whose parts count differently: in what words, and what must not be taken for one."""

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
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor
from pytracer.decode.types.snapshot import CallSite, PythonFrame
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of
from tests.unit.analyze.rules.test_operators import tensor

VALUES, CROW, COL, OTHER, RESULT, DENSE = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x90000
ROWS, ENTRIES = 300, 2984
FILL = "at::native::structured__convert_indices_from_csr_to_coo_structured_cpu::impl(at::Tensor const&)"
CONVERT = "at::native::sparse_compressed_to_dense(at::Tensor const&)"
KERNEL = "mkl_sparse_s_csr_ng_n_mm_c_ker_i4_avx512"
PROGRAM = """class Papers:
    def matrix(self):
        crow = starts(self.links)
        col = torch.tensor(self.links)
        weight = 1.0 / crow.diff()
        return torch.sparse_csr_tensor(crow, col, weight, size=(300, 300))
adj = papers.matrix()
out = adj.to_dense()
"""


def crashed(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    values: int = ROWS,
    end: int = ENTRIES,
    room: int = ENTRIES,
    source: str = PROGRAM,
    functions: tuple[str, ...] = (FILL, CONVERT),
    values_line: int = 5,
    more: tuple[Any, ...] = (),
    name: str | None = None,
) -> Any:
    """The conversion of a tensor of 300 x 300 with 2984 plain indices, or its product with a dense one."""
    view = view_of(folder, source, 8)
    file = view.crash.python_stack[0].file
    lines = {VALUES: values_line, CROW: 3, COL: 4, OTHER: 8, RESULT: 8, DENSE: 8}
    sizes = {VALUES: values * 4, CROW: (ROWS + 1) * 8, COL: ENTRIES * 8, OTHER: ROWS * 8, RESULT: room * 16}
    storages = {
        base: SimpleNamespace(
            base=base, nbytes=sizes.get(base, 90), state="live", older=False,
            allocated_by=CallSite(PythonFrame("matrix", file, line)),
        )
        for base, line in lines.items()
    }  # fmt: skip
    view.process.snapshot.storages = list(storages.values())
    view.space = SimpleNamespace(live_around=storages.get)
    view.crash.registers = {"r9": RESULT}
    view.crash.native_stack = tuple(SimpleNamespace(function=item, image="libtorch_cpu.so") for item in functions)
    view.fault, view.region_opener = SimpleNamespace(access="write"), None
    view.instruction = SimpleNamespace(size=4, text="movss xmm5, dword ptr [rcx + r15]")
    product = functions[0] == KERNEL
    left = storages[VALUES if product else RESULT]
    view.place = SimpleNamespace(
        addr=left.base + 0x30_0000, kind="past-storage", storage=left, register="rcx", formation=None, overrun=None
    )
    whole: dict[str, Any] = {"dtype": "int32" if product else "int64", "minimum": 0}
    items = [
        (tensor(CROW, 1, ROWS + 1, maximum=end, **whole), None),
        (tensor(COL, ENTRIES, maximum=ROWS - 1, **whole), None),
        (tensor(OTHER, ROWS, dtype="int64", minimum=0, maximum=0), None),
        (tensor(RESULT, 2, room, dtype="int64", minimum=0, maximum=ROWS - 1), None),
        (tensor(DENSE, ROWS, ROWS, frame=1), None),
        *more,
    ]
    if not product:
        items.append((tensor(VALUES, 1, values, frame=1), name))
    operator = Operator(
        "aten::to_dense", None, tuple(OperatorTensor(item, called, None, passed=False) for item, called in items)
    )
    for each in (module, sparse):
        monkeypatch.setattr(each, "find_operator", lambda _: operator)
    monkeypatch.setattr(module, "runs_sparse", lambda _: True)
    return view


def found_in(view: Any) -> WrongPart:
    found = wrong_part(view)
    assert found is not None
    return found


def test_values_for_rows_are_too_few_for_the_indices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch)
    assert part_summary(view, found_in(view)) == (
        "the sparse CSR tensor `adj` has 300 values, one for each row (line 5: `weight = 1.0 / crow.diff()`), for 2984 "
        "column indices; torch.sparse_csr_tensor() at line 6 in Papers.matrix does not check that"
    )
    advice = part_advice(view, found_in(view))
    assert "`torch.repeat_interleave(weight, crow.diff(), dim=0)`" in advice
    assert "check_invariants=True there raises an error" in advice


def test_values_that_are_not_of_rows_are_only_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch, values=1000)
    assert "has 1000 values (line 5: `weight = 1.0 / crow.diff()`) for 2984 column" in part_summary(
        view, found_in(view)
    )
    assert part_advice(view, found_in(view)).startswith(
        "Make `weight` as long as the column indices: a value for each, 2984 and not 1000."
    )


def test_mask_that_leaves_out_values_is_named_and_repeats_are_not_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are rows by chance."""
    source = PROGRAM.replace("1.0 / crow.diff()", "torch.exp(-w[w < sigma] ** 2)")
    view = crashed(tmp_path, monkeypatch, source=source)
    assert (
        "300 values, as many as there are rows (line 5: `weight = torch.exp(-w[w < sigma] ** 2)`, which keeps only "
        "what has `w < sigma`), for 2984"
    ) in part_summary(view, found_in(view))
    advice = part_advice(view, found_in(view))
    assert "repeat_interleave" not in advice and "line 5 keeps only what has `w < sigma`" in advice


@pytest.mark.parametrize("made", ["score(x[x < 3])", "w[order]", "1.0 / crow[:-1]", "x[x < 3].sum(1)"])
def test_other_parts_of_a_tensor_are_not_taken_for_left_out_values(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = crashed(tmp_path, monkeypatch, source=PROGRAM.replace("1.0 / crow.diff()", made))
    assert "one for each row" in part_summary(view, found_in(view))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("col = col[mask > 0]", True),
        ("col = col[:9]", True),
        ("col = col[order]", False),
        ("col = col[mask > 0]; crow = starts(col)", False),  # counted again
        ("col = other[mask > 0]", False),
    ],
)
def test_line_that_leaves_out_plain_indices_is_named_for_pointers_beyond_them(
    line: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = PROGRAM.replace("weight = 1.0 / crow.diff()", line)
    view = crashed(tmp_path, monkeypatch, values=ENTRIES, end=4 * ENTRIES, source=source, functions=(FILL,))
    found = found_in(view)
    assert ("may have left out some" in part_summary(view, found)) == named
    assert ("Count the rows again where line 5 leaves out some of `col`" in part_advice(view, found)) == named
    assert ("unless `col` has lost some" in part_advice(view, found)) != named


def test_product_that_left_the_values_shows_how_few_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their memory, and the size of an element of the dense factor."""
    found = found_in(crashed(tmp_path, monkeypatch, functions=(KERNEL,)))
    assert (found.part, found.count, found.limit) == ("values", ROWS, ENTRIES)


def test_pointers_end_beyond_the_indices_that_are_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_in(crashed(tmp_path, monkeypatch, values=ENTRIES, end=4 * ENTRIES, more=(), functions=(FILL,)))
    assert (found.part, found.high, found.limit) == ("pointers", 4 * ENTRIES, ENTRIES)


def test_layout_that_another_argument_says_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = crashed(tmp_path, monkeypatch, source=PROGRAM.replace("sparse_csr_tensor", "sparse_compressed_tensor"))
    assert "the compressed sparse tensor `adj` has 300 values, one for each row or column (" in (
        part_summary(view, found_in(view))
    )


@pytest.mark.parametrize(
    "how",
    [
        {"values": ENTRIES},  # they fit: the crash has another reason
        {"values": ENTRIES, "functions": (KERNEL,)},
        {"functions": ("at::native::index_put_kernel",)},
        {"functions": (FILL,)},  # whose values they are is not known
        {"values_line": 8},  # of the failing line: a result
        {"name": "scores"},  # another variable's
        {"more": ((tensor(VALUES + 8, ROWS, minimum=0, maximum=ROWS + 1, dtype="int64"), None),), "end": 2},
        {"functions": (KERNEL,), "values_line": 4},  # the line that makes the column indices, too
        {"functions": (KERNEL,), "values_line": 9},
        {"source": PROGRAM.replace("300))", "300), check_invariants=True)")},
        {"source": PROGRAM.replace("sparse_csr_tensor(crow, col, ", "sparse_coo_tensor(col, ")},
    ],
)  # fmt: skip
def test_parts_that_may_fit_are_not_blamed(how: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = wrong_part(crashed(tmp_path, monkeypatch, **how))
    assert found is None or (found.count, found.high) == (None, None)  # of a product, pointers that lead astray within
