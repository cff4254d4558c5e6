"""The array that the running C indexes, left at an element that it has not: by source, arrays and registers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pytracer.analyze.evidence.own_code.indexed_array import indexed_array
from tests.support.native_views import DATA, OTHER, native_view

VOXELS = """\
int voxelize(const float *points, int n, const float *size, const float *low, const int *grid, int *cell_of)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        int c[3];
        for (int j = 0; j < 3; j++)
            c[j] = (int)floorf((points[i * 3 + j] - low[j]) / size[j]);
        int cell = (c[2] * grid[1] + c[1]) * grid[0] + c[0];
        found += cell_of[cell] == -1;
    }
    return found;
}
"""
CALLS_VOXELS = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(points, size, low, grid):
    cells = np.full(int(grid.prod()), -1, np.int32)
    lib.voxelize(
        points.ctypes.data, len(points), size.ctypes.data, low.ctypes.data, grid.ctypes.data, cells.ctypes.data)
def main(sweeps):
    run(sweeps[0], SIZE, LOW, GRID)
"""
TABLE = """\
int read_table(const char *path, int columns, float *values, int *labels)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    int row = 0;
    while (fgets(line, sizeof line, f)LIMIT) {
        for (int c = 0; c < columns; c++)
            values[row * columns + c] = next(line);
        labels[row] = last(line);
        row++;
    }
    return row;
}
"""
CALLS_TABLE = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(path, rows, columns):
    values = np.empty((rows, columns), np.float32)
    labels = np.empty(rows, np.int32)
    lib.read_table(path, columns, values.ctypes.data, labels.ctypes.data)
def main(paths):
    run(paths[0], 400, 12)
"""


def voxels(folder: Path, row: int = 3_000_000, *, source: str = VOXELS, **how: Any) -> Any:
    arrays = [
        ("points", OTHER, "float32", (4000, 3)), ("size", OTHER + (1 << 20), "float32", (3,)),
        ("low", OTHER + (2 << 20), "float32", (6,)), ("grid", OTHER + (3 << 20), "int32", (3,)),
        ("cells", DATA, "int32", (10_000,)),
    ]  # fmt: skip
    held = {"registers": {"r15": DATA, "rax": row}, **how}
    view = native_view(
        folder, CALLS_VOXELS, source, at="lib.voxelize", way=[("voxelize", "cell_of[cell]")], outer="run(sweeps",
        arrays=arrays, addr=DATA + 4 * row, access="read", **held,
    )  # fmt: skip
    return indexed_array(view)


def table(folder: Path, *, limit: str = "", low: int | None = DATA - 4096, **how: Any) -> Any:
    arrays = [("values", DATA, "float32", (400, 12)), ("labels", DATA + (1 << 16), "int32", (400,))]
    view = native_view(
        folder, CALLS_TABLE, TABLE.replace("LIMIT", limit), at="lib.read_table", way=[("read_table", "values[row *")],
        outer="run(paths", arrays=arrays, addr=DATA + (1 << 20), access="write", **how,
    )  # fmt: skip
    return indexed_array(view, low)


def test_array_is_named_with_its_index_and_the_arrays_that_it_was_computed_from(tmp_path: Path) -> None:
    """Those with most elements first; what an element is multiplied by is a size, and no index."""
    told = voxels(tmp_path)
    assert told.summary == (
        "`cell` was 3000000, and `cells` [10000] has 10000 elements; it is computed from `points` [4000, 3], `low` [6] "
        "and `size` [3]"
    )
    assert "`cell` must be inside 0..9999, and ops.c:9 uses it unchecked" in told.advice
    assert "`grid`" not in told.summary + told.advice


@pytest.mark.parametrize(
    "how",
    [
        {"row": 9_999},  # inside
        {"registers": {"r15": DATA}},  # nothing shows the index
        {"registers": {"rax": 3_000_000, "r15": OTHER}},
        {"row": -(1 << 31)},  # what NaN becomes: told by the floats
    ],
)
def test_nothing_is_said_without_array_and_index_in_registers(how: dict[str, Any], tmp_path: Path) -> None:
    assert voxels(tmp_path, **how) is None


PACK = """\
int pack(const int *sizes, const int *order, int samples)
{
    int at = 0, left = 0;
    for (int i = 0; i < samples; at++) {
        int id = order[at];
        int length = sizes[id];
        left += length;
        i += left > 64;
    }
    return at;
}
"""
CALLS_PACK = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(sizes, order, samples):
    lib.pack(sizes.ctypes.data, order.ctypes.data, samples)
run(docs.sizes, order, 9000)
"""


def packed(folder: Path, *, low: int | None = 900, high: int | None = 999, line: str = "left += length") -> Any:
    row = 1 << 30
    view = native_view(
        folder, CALLS_PACK, PACK, at="lib.pack", way=[("pack", line)], addr=DATA + 4 * row, access="read",
        arrays=[("sizes", DATA, "int32", (1000,)), ("order", OTHER, "int32", (100,))],
        registers={"r10": DATA, "rdi": 4 * row},
    )  # fmt: skip
    arrays = [
        structs.replace(item, minimum=low, maximum=high) if item.data == OTHER else item for item in view.crash.arrays
    ]
    view.crash.arrays = tuple(arrays)
    return indexed_array(view)


@pytest.mark.parametrize("line", ["left += length", "int length ="])
def test_index_that_is_none_of_the_numbers_was_read_from_outside(line: str, tmp_path: Path) -> None:
    """Also where the load was moved to the line that uses what it read."""
    told = packed(tmp_path, line=line)
    assert told.summary == (
        "`order[at]` was read from outside of `order` [100] with numbers 900..999: it was 1073741824, and is an index "
        "of `sizes` [1000]; `at` must be inside 0..99"
    )
    assert "All numbers in `order` fit `sizes`" in told.advice


@pytest.mark.parametrize("numbers", [(None, None), (900, 1 << 30), (-1, 999)])
def test_numbers_that_may_lead_out_are_to_be_checked(numbers: tuple[int | None, ...], tmp_path: Path) -> None:
    told = packed(tmp_path, low=numbers[0], high=numbers[1])
    assert "outside of" not in told.summary and "it is computed from `order` [100]" in told.summary


def test_counter_that_nothing_limits_is_named(tmp_path: Path) -> None:
    """Of the two arrays the failing line writes one."""
    told = table(tmp_path)
    assert told.summary == (
        "`row * columns + c`, which counts by `row`, was 262144, and `values` [400, 12] has 4800 elements"
    )
    assert "nothing compares `row` with a limit" in told.advice and "`labels`" not in told.advice
    assert told.reached is False
    assert table(tmp_path, registers={"r13": 262140}).reached is True


def test_counter_with_a_limit_is_not_blamed(tmp_path: Path) -> None:
    told = table(tmp_path, limit=" && row < MOST")
    assert "counts by" not in told.summary and "compares" not in told.advice


def test_array_behind_a_gap_is_not_the_one(tmp_path: Path) -> None:
    assert table(tmp_path, low=DATA + 64) is None


SUMS = """\
float sums(const KIND *x, const int *idx, int n, float *tmp)
{
    float total = 0;
    MADE
    for (int b = 0; b < n; b++) {
        int k = idx[b];
        KEPT
        total += TAKEN; // here
        NEXT
    }
    return total;
}
"""
CALLS_SUMS = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(x, idx, n):
    lib.sums(x.ctypes.data, idx.ctypes.data, n, None)
run(1, 2, 3)
"""


def sums(
    folder: Path, *, kind: str = "float", made: str = "", kept: str = "", taken: str = "x[k]", after: str = "",
    low: int | None = None,
) -> Any:  # fmt: skip
    source = SUMS.replace("KIND", kind).replace("MADE", made).replace("KEPT", kept).replace("TAKEN", taken)
    row = 1 << 20
    view = native_view(
        folder, CALLS_SUMS, source.replace("NEXT", after), at="lib.sums", way=[("sums", "// here")], access="read",
        arrays=[("x", DATA, "float32", (100,)), ("idx", OTHER, "int32", (50,))], addr=DATA + 4 * row,
        registers={"r15": DATA, "rax": 4 * row},
    )  # fmt: skip
    view.crash.arrays = tuple(structs.replace(item, minimum=0, maximum=49) for item in view.crash.arrays)
    return indexed_array(view, low)


def test_index_that_was_changed_since_it_was_read_is_not_told_as_read_from_outside(tmp_path: Path) -> None:
    assert sums(tmp_path).behind is not None
    for kept in ("if (b > 3) k += 1000 * n;", "k <<= 4;", "k++;"):
        told = sums(tmp_path, kept=kept)
        assert told.behind is None and told.counter is None


@pytest.mark.parametrize(
    "how",
    [
        {"after": "x += 32;"},
        {"after": "x = x + 32;"},
        {"made": "const double *d = (const double *)x;", "taken": "d[k]", "kind": "void"},
        {"kind": "Node", "taken": "x[k].left"},
        {"taken": "local[k] * x[k]", "low": DATA - 4096},  # either may have been left
        {"taken": "m->rows[k] * x[k]", "low": DATA - 4096},
    ],
)
def test_index_of_other_elements_or_of_another_beginning_is_not_told(how: dict[str, Any], tmp_path: Path) -> None:
    assert sums(tmp_path, **how) is None


def test_alias_of_the_same_type_is_told(tmp_path: Path) -> None:
    assert sums(tmp_path, made="const float *p = (const float *)x;", taken="p[k]", kind="void") is not None


def test_counter_that_is_set_back_is_not_blamed(tmp_path: Path) -> None:
    assert table(tmp_path, limit=") { if (skip(line)) { row = 0; }").counter is None
