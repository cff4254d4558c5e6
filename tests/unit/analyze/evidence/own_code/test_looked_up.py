"""Indices that native code looked up in an array: which array, by which other one, and what does not mean that."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from pytracer.analyze import describing
from pytracer.analyze.evidence.at_fault import of_looked_up
from pytracer.analyze.evidence.own_code.index_arrays import index_arrays
from pytracer.analyze.evidence.own_code.looked_up import LookedUp, looked_up
from pytracer.analyze.evidence.own_code.lookups import Lookup, lookups, parameter_of, reads_index
from pytracer.analyze.evidence.wild.far_index import FarIndex
from pytracer.analyze.evidence.wild.looked_up_index import looked_up_index
from pytracer.analyze.rules.base import Description
from pytracer.decode.types.snapshot import Argument, HeldArray, HeldNumber, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SAMPLE = """#include <stdint.h>
void sample(const int64_t *rowptr, const int64_t *col, const int64_t *idx, int64_t n, int64_t *out) {
  for (int64_t i = 0; i < n; i++) {
    int64_t start = rowptr[idx[i]];  // col[0]
    int64_t count = rowptr[idx[i] + 1] - start;
    out[i] = count == 0 ? idx[i] : col[start + rand() % count];
  }
}
"""
PROGRAM = """import numpy as np


def build(row, col):
    rowptr = {made}
    return rowptr, col[np.argsort(row)]


def main(lib, row, col, ids):
    rowptr, col = build(row, col)
    for nodes in ids:
        out = np.empty(len(nodes))
        {call}


main(1, 2, 3, 4)
"""
CALL = "lib.sample(rowptr, col, nodes, len(nodes), out)"
MADE = "np.concatenate([[0], np.cumsum(np.bincount(row))])"
ROWPTR, COL, NODES, OUT = 0x7F00_0000_0000, 0x7F01_0000_0000, 0x7F02_0000_0000, 0x7F03_0000_0000
FAR = COL + 8 * (1 << 40)


def view_of(
    folder: Path,
    source: str = SAMPLE,
    line: int = 6,
    *,
    function: str = "sample",
    call: str = CALL,
    made: str = MADE,
    addr: int = FAR,
    access: str = "read",
    range_of: dict[int, tuple[int, int]] | None = None,
    dtypes: dict[str, str] | None = None,
    text: str = "mov rax, qword ptr [rax + rdx*8]",
) -> Any:
    """A process that died in a C function at a line; `range_of`: least and largest number at an address."""
    file, library, program = folder / "ops.c", folder / "libops.so", folder / "train.py"
    file.write_text(source, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM.format(call=call, made=made), encoding="utf-8")
    os.utime(file, (1000, 1000))
    frame = PythonFrame("main", str(program), 13 + call.count("\n"))
    own = NativeFrame(
        function=function, image=str(library), lines=[SourceLine(function=function, file=str(file), line=line)]
    )
    shapes = {"rowptr": (ROWPTR, (4501,)), "col": (COL, (45_000,)), "nodes": (NODES, (256,)), "out": (OUT, (256,))}
    arrays = tuple(
        HeldArray(name, data, (dtypes or {}).get(name, "int64"), shape, (8,), frame, 0)
        for name, (data, shape) in shapes.items()
    )
    tensors = tuple(
        Argument(1, base, 256 if base == NODES else 4501, 0, (), 1, "int64", "cpu", low, high, None, None, None, "held")
        for base, (low, high) in (range_of or {}).items()
    )
    crash = SimpleNamespace(
        arrays=arrays, numbers=(), holders=(), arguments=tensors, python_stack=(frame,), python_threads=(),
        registers={}, images=(SimpleNamespace(path=str(library), start=1, end=2),), native_stack=(),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), place=SimpleNamespace(addr=addr, kind="unmapped"), fault=SimpleNamespace(access=access),
        instruction=SimpleNamespace(size=8, text=text), space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_array_that_was_looked_up_is_named_with_the_one_that_it_was_looked_up_by(tmp_path: Path) -> None:
    found = looked_up(view_of(tmp_path))
    assert found is not None
    assert found.summary == (
        "`start` was looked up in `rowptr` [4501] (its length comes from bincount() without minlength, line 5) by the "
        "elements of `nodes` [256], and does not fit `col` [45000]"
    )
    told = found.advice(view_of(tmp_path))
    assert told.startswith("Check min() and max() of `nodes` [256], made at line 11 (`for nodes in ids:`), before line")
    assert "inside 0..4499" in told  # rowptr[idx[i] + 1] is read as well
    assert "`np.bincount(row)` at line 5 has no minlength" in told
    assert "If they are, check the numbers in `rowptr`: they must be inside `col` [45000]." in told
    behind = of_looked_up(found)  # and not `col`, at which it faulted
    assert (behind.names, [line for _, line in behind.lines]) == (("rowptr", "nodes"), [5])


def test_known_numbers_show_which_array_is_too_short(tmp_path: Path) -> None:
    """Those of a tensor with the same memory as a NumPy array."""
    view = view_of(tmp_path, range_of={NODES: (13, 5995)})
    found = looked_up_index(view)
    assert found is not None and found.clause(view).endswith("by the elements of `nodes` [256], which go up to 5995")
    assert found.advice(view).startswith("Keep the elements of `nodes` [256]") and "13..5995" in found.advice(view)


def test_numbers_inside_of_the_array_leave_only_its_content(tmp_path: Path) -> None:
    """A look-alike: what is looked up is there, and wrong."""
    found = looked_up(view_of(tmp_path, range_of={NODES: (0, 4499)}))
    assert found is not None and found.wrong is False
    assert found.summary == "`start` comes from `rowptr` [4501], and does not fit `col` [45000]"
    assert "all inside `rowptr`: what it holds is wrong" in found.advice(view_of(tmp_path))


LISTED = "ids = torch.tensor(nodes)\n        lib.sample(rowptr, col, ids, len(nodes), out)"


def of_list(folder: Path, call: str, *numbers: int, name: str = "nodes", **how: Any) -> LookedUp | None:
    """Of `ids` that the line makes of the list `nodes`, of which these numbers are recorded."""
    view = view_of(folder, call=call, **how)
    frame = view.crash.python_stack[0]
    others = [item for item in view.crash.arrays if item.expression != "nodes"]
    view.crash.arrays = (*others, HeldArray("ids", NODES, "int64", (256,), (8,), frame, 0))
    view.crash.numbers = tuple(HeldNumber(f"{name}[{at}]", value, frame, 0) for at, value in enumerate(numbers))
    return looked_up(view)


@pytest.mark.parametrize(("numbers", "said"), [((7, 5995, 4501), 5995), ((7, -1), -1)])
def test_number_of_the_list_that_it_was_made_of_shows_which_array_is_too_short(
    numbers: tuple[int, ...], said: int, tmp_path: Path
) -> None:
    found = of_list(tmp_path, LISTED, *numbers)
    assert found is not None and found.wrong is True
    assert found.summary.endswith(f"by the elements of `ids` [256], one of which is {said}")
    told = found.advice(view_of(tmp_path))
    assert f"one of which is {said}, inside 0..4499" in told
    assert ("an element for each of them" in told) is (said > 0)


@pytest.mark.parametrize(
    ("call", "numbers", "name"),
    [
        (LISTED, (7, 4499), "nodes"),  # the rest of them are not known
        (LISTED, (5995,), "others"),
        (LISTED.replace("(nodes)\n", "(nodes) % 4500\n"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); nodes.append(9)\n"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); nodes[0] = 5995\n"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); nodes = list(out)\n"), (5995,), "nodes"),
        (LISTED.replace("torch.tensor", "places"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); ids.clamp_(max=4499)\n"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); ids[ids > 4499] = 0\n"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); ids %= 4500\n"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); torch.clamp(ids, 0, 4499, out=ids)\n"), (5995,), "nodes"),
        (LISTED.replace("(nodes)\n", "(nodes); widen(nodes)\n"), (5995,), "nodes"),
    ],
    ids=[
        "inside",
        "another list",
        "computed",
        "appended",
        "set",
        "bound anew",
        "a function of the program",
        "clamped",
        "some set",
        "divided",
        "its own result",
        "handed on",
    ],
)
def test_numbers_of_other_lists_show_nothing(call: str, numbers: tuple[int, ...], name: str, tmp_path: Path) -> None:
    found = of_list(tmp_path, call, *numbers, name=name)
    assert found is not None and found.wrong is None and found.outside is None


@pytest.mark.parametrize(
    ("how"),
    [
        {"addr": COL + 8},  # inside
        {"addr": COL + 8 * 45_003},  # so near that `rand() % count` may be it
        {"addr": FAR + 3},  # no element
        {"addr": COL + 16 - (1 << 32)},  # an index that wrapped in a C int
        {"access": "write"},  # only `out` is written
        {"dtypes": {"rowptr": "int32"}},  # of another size than the function takes
        {"range_of": {NODES: (0, 4499), ROWPTR: (0, 44_999)}},  # all is right
        {"call": "lib.sample(rowptr[1:], col, nodes, len(nodes), out)"},
        {"call": "lib.sample(*arguments)"},
        {"source": SAMPLE.replace("rowptr[idx[i]];", "idx[0] * 8;").replace("rowptr[idx[i] + 1]", "n")},
        {"source": SAMPLE.replace("rowptr[idx[i]];", "4 * n;").replace("rowptr[idx[i] + 1]", "n")},
    ],
    ids=["inside", "near", "odd", "int", "write", "size", "right", "slice", "star", "other", "arithmetic"],
)
def test_nothing_is_said_of_other_faults(how: dict[str, Any], tmp_path: Path) -> None:
    found = looked_up(view_of(tmp_path, **how))
    assert found is None or (found.table.name, found.by.name) == ("col", "nodes")


HELPER = """static long first(const long *start, const long *docs, long b) {
  return start[docs[b]];
}
void pack(const long *rowptr, const long *col, const long *nodes, long n, long *out) {
  for (long b = 0; b < n; b++) {
    long s = first(rowptr, nodes, b);
    out[b] = col[s];
  }
}
"""
INLINE = """static long one(const long *table, const long *from, long v) {
  long at = from[v];
  return table[at];
}
void pack(const long *rowptr, const long *col, const long *nodes, long n, long *out) {
  for (long b = 0; b < n; b++)
    out[b] = one(col, rowptr, nodes[b]);
}
"""
RANGE = """void pack(const long *rowptr, const long *col, const long *nodes, long n, long *out) {
  for (long i = 0; i < n; i++) {
    long v = nodes[i];
    for (long e = rowptr[v]; e < rowptr[v + 1]; e++)
      out[i] += col[e];
  }
}
"""
TENSORS = """torch::Tensor pack(torch::Tensor ptr, torch::Tensor columns, torch::Tensor ids, int n, torch::Tensor out) {
  const int64_t* rowptr = ptr.contiguous().data_ptr<int64_t>();
  auto col = columns.accessor<int64_t, 1>();
  auto id = (const int64_t*) ids.data_ptr();
  auto res = out.data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.size(0); ++i) {
    const int64_t begin =
        rowptr[id[i]];
    res[i] =
        col[begin];
  }
}
"""


KERNEL = """template <typename T>
void pick(const T* from, const T* table, const T* wanted, long n, T* result) {
  for (long i = 0; i < n; ++i) {
    T at = table[wanted[i]];
    result[i] = from[at];
  }
}
void pack(torch::Tensor rowptr, torch::Tensor col, torch::Tensor ids, int n, torch::Tensor out) {
  AT_DISPATCH_INTEGRAL_TYPES(col.scalar_type(), "pack", [&] {
    pick<scalar_t>(col.data_ptr<scalar_t>(), rowptr.data_ptr<scalar_t>(), ids.data_ptr<scalar_t>(), n, out);
  });
}
"""


@pytest.mark.parametrize(
    ("source", "line", "function", "value"),
    [
        (HELPER, 7, "pack", "`s`"),
        (INLINE, 3, "one", "`at`"),
        (RANGE, 5, "pack", "the range of `e`"),
        (TENSORS, 10, "pack", "`begin`"),
        (KERNEL, 5, "pick", "`at`"),
    ],
    ids=["helper", "in a helper", "range", "tensors", "template"],
)
def test_lookups_are_followed_through_the_source(
    source: str, line: int, function: str, value: str, tmp_path: Path
) -> None:
    view = view_of(tmp_path, source, line, function=function, call="lib.pack(rowptr, col, nodes, len(nodes), out)")
    found = looked_up(view)
    assert isinstance(found, LookedUp) and found.into is not None
    assert (found.into.name, found.table.name, found.by.name, found.value) == ("col", "rowptr", "nodes", value)


POINTERS = "lib.sample(rowptr.ctypes.data_as(P), pointer(col), P(nodes.ctypes.data), n, out)"


def test_arrays_are_known_by_their_addresses(tmp_path: Path) -> None:
    assert looked_up(view_of(tmp_path, call=POINTERS)) is not None


EMBEDDING = """void sample(const float *rowptr, const long *col, const long *idx, long n, float *out) {
  for (long i = 0; i < n; i++)
    out[i] = rowptr[idx[i]];
}
"""


def test_array_that_faulted_itself_is_named_with_its_row(tmp_path: Path) -> None:
    view = view_of(tmp_path, EMBEDDING.replace("float", "double"), 3, addr=ROWPTR + 8 * 90_000, text="movsd xmm0, m")
    found = looked_up(view)
    assert found is not None and found.into is None and found.row == 90_000
    assert "is indexed by the elements of `nodes` [256], one of which leads out of it" in found.summary
    assert "the address is that of its row 90000" in found.advice(view)
    assert "ops.c:3 takes `rowptr[idx[i]]` without a check" in (found.evidence.sentence or "")


def test_chain_has_the_parameters_of_the_called_function(tmp_path: Path) -> None:
    found = lookups(view_of(tmp_path))
    assert found is not None and found.place == "ops.c:6"
    last: Lookup = found.found[-1]
    assert (last.text, last.moved, last.reads) == ("col[start + rand() % count]", True, True)
    assert [item.text for item in last.by] == ["rowptr[idx[i]]", "rowptr[idx[i] + 1]"]
    parameter = parameter_of(last.by[0].by[0])
    assert parameter is not None and (parameter[0], parameter[2]) == ("sample", 2)


@pytest.mark.parametrize(("source", "looked"), [(EMBEDDING, True), (EMBEDDING.replace("idx[i]", "n * n"), False)])
def test_index_that_was_read_from_memory_is_no_argument(
    source: str, looked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the source shows that; else an argument may be it."""
    monkeypatch.setattr("pytracer.analyze.evidence.wild.far_index.find_operator", lambda view: None)
    monkeypatch.setattr("pytracer.analyze.evidence.wild.far_index.backward", lambda view: None)
    view = view_of(tmp_path, source, 3)
    assert reads_index(view) is looked
    told = FarIndex("rax", "rdx", -8423046139940465575, 8, False).advice(view)
    assert ("was probably read from one of them" in told) is looked
    assert ("an argument, such as a dimension" in told) is not looked


@pytest.mark.parametrize(
    ("rule", "known", "wrong", "headline", "told"),
    [
        ("out-of-bounds", False, None, True, "Check min() and max() of `nodes`"),
        ("wrong-index", True, None, False, "Old. `np.bincount(row)` at line 5 has no minlength"),
        ("runaway-access", False, None, False, "Old."),  # a length that is right may be larger than the memory
        ("runaway-access", False, (13, 5995), True, "Keep the elements of `nodes`"),
        ("null-dereference", False, (13, 5995), False, "Old."),
    ],
)
def test_other_faults_at_such_an_index_are_told_with_it(
    rule: str,
    known: bool,
    wrong: tuple[int, int] | None,
    headline: bool,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a tensor is known to hold the index, that is said, and only why there are too few elements is added."""
    monkeypatch.setattr(describing, "_is_index_known", lambda view: known)
    monkeypatch.setattr(describing, "introduction", lambda views: "It")
    monkeypatch.setattr(describing, "in_function", lambda view: "")
    judgement: Any = SimpleNamespace(views=(view_of(tmp_path, range_of={NODES: wrong} if wrong else None),))
    found = describing._of_looked_up(rule, judgement, Description("Before.", [], "Old."))
    assert found.advice.startswith(told)
    assert found.summary.startswith("It read out of bounds: `start` was looked up in `rowptr`") is headline


COUNT = """#include <stdint.h>
void sample(table_t *rowptr, const int64_t *col, const int64_t *idx, int64_t n, double *out) {
  for (int64_t i = 0; i < n; i++) {
    %s
  }
}
"""


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("rowptr->cells[col[i] * rowptr->n + idx[i]] += 1;", ["nodes"]),  # the other one is of a row
        ("rowptr->cells[idx[i]] += out[i];", ["nodes"]),  # of floats
        ("rowptr->cells[col[i] + idx[i]] += 1;", ["col", "nodes"]),
        ("rowptr->cells[made[i] + idx[i]] += 1;", None),  # of which nothing is known
        ("rowptr->total += 1;", None),
    ],
)
def test_arrays_of_which_an_element_may_be_the_index_itself(line: str, names: list[str] | None, tmp_path: Path) -> None:
    view = view_of(tmp_path, COUNT % line, 4, dtypes={"out": "float64"})
    found = index_arrays(view, -(1 << 31))
    assert (sorted(item.name for item in found[1]) if found is not None else None) == names
    assert found is None or found[0] == "ops.c:4"


def test_array_whose_numbers_are_known_to_be_others_has_not_the_index(tmp_path: Path) -> None:
    view = view_of(tmp_path, COUNT % "rowptr->cells[idx[i]] += 1;", 4, range_of={NODES: (0, 4499)})
    assert index_arrays(view, -(1 << 31)) is None


BAGS = """void gather(const int64_t *col, const int64_t *idx, const int64_t *rowptr, int64_t bags, int64_t *out) {
  for (int64_t b = 0; b < bags; b++)
    for (int64_t p = rowptr[b]; p < rowptr[b + 1]; p++) {
      int64_t id = idx[p];
      out[b] += col[id];
    }
}
"""


@pytest.mark.parametrize(("last", "wrong"), [(256, "nodes"), (257, "rowptr")])
def test_number_that_bounds_a_loop_may_be_the_length(last: int, wrong: str, tmp_path: Path) -> None:
    """`p < rowptr[b + 1]` ends before it; the ids of the loop are then what leads out."""
    found = looked_up(
        view_of(
            tmp_path, BAGS, 5, function="gather", call="lib.gather(col, nodes, rowptr, len(rowptr) - 1, out)",
            range_of={ROWPTR: (0, last), NODES: (13, 99_000) if wrong == "nodes" else (13, 40)},
        )
    )  # fmt: skip
    assert found is not None and found.by.name == wrong and found.wrong


@pytest.mark.parametrize(
    ("fill", "empty", "told"), [("", True, True), ("idx[k] = k;", True, False), ("idx[k] = k;", False, True)]
)
def test_what_lies_behind_what_the_function_filled_is_no_index(
    fill: str, empty: bool, told: bool, tmp_path: Path
) -> None:
    """Of `np.empty()`, which C fills in part: the rest of its numbers are innocent."""
    source = SAMPLE.replace("  for (", f"  for (int64_t k = 0; k < n / 2; k++) {{ {fill} }}\n  for (", 1)
    call = f"lib.sample(rowptr, col, {'out' if empty else 'nodes'}, len(nodes), col)"
    view = view_of(tmp_path, source=source, line=7, call=call)
    view.crash.arrays = tuple(
        structs.replace(item, minimum=0, maximum=5995) if item.expression in ("out", "nodes") else item
        for item in view.crash.arrays
    )
    assert (looked_up(view) is not None) is told
