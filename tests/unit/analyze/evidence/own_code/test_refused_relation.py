"""Two numbers that a test of C refuses together, with what the line passed for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.refused_relation import refused_relation
from tests.support.native_views import DATA, OTHER, native_view

SOURCE = """\
#define MOST 64
void knn_graph(const float *pts, int n, int dim, int k, int *nbr)
{
    TEST
    for (int i = 0; i < n; i++)
        nearest(pts, n, dim, i, k, nbr + i * k);
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(pts, k):
    nbr = np.empty((len(pts), k), np.int32)
    lib.knn_graph(pts.ctypes.data, pts.shape[0], pts.shape[1], k, nbr.ctypes.data)
def main(clouds):
    run(clouds[0], 12)
"""


def found(folder: Path, test: str, *, rows: int = 9, running: str | None = None) -> Any:
    return refused_relation(
        native_view(
            folder, PROGRAM, SOURCE.replace("TEST", test), at="lib.knn_graph",
            way=[("knn_graph", running or test.splitlines()[-1])], outer="run(clouds", numbers={"k": 12},
            arrays=[("pts", DATA, "float32", (rows, 3)), ("nbr", OTHER, "int32", (rows, 12))],
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("test", "running"),
    [
        ("if (n > 0) {\n  if (dim == 4) { run(); }\n  else throw Error(1);\n}", "else throw"),
        ("if (k > 0) {\n  for (int i = 0; i < n; i++) if (pts[i] > 0) return;\n  throw Error(1);\n}", "throw"),
        ("if (n > 1) {\n  switch (dim) {\n  case 2: break;\n  default: throw Error(1);\n  }\n}", "throw"),
    ],
)
def test_test_that_is_not_all_on_which_a_throw_depends_is_not_told(test: str, running: str, tmp_path: Path) -> None:
    assert found(tmp_path, test, running=running) is None


def test_words_of_a_text_decide_nothing(tmp_path: Path) -> None:
    test = 'if (k >= n) {\n  format(text, "no k for n, return");\n  throw Error(text);\n}'
    assert found(tmp_path, test, running="throw") is not None


@pytest.mark.parametrize(
    ("test", "needs"),
    [
        ("assert(k < n);", "k < n"),
        ("assert(n > 0 && k <= n - 1);", "n > 0 && k <= n - 1"),
        ('if (k >= n) throw std::invalid_argument("k");', "!(k >= n)"),
        ("TORCH_CHECK(k < n);", "k < n"),
    ],
)
def test_both_numbers_are_named_with_what_was_passed_for_them(test: str, needs: str, tmp_path: Path) -> None:
    told = found(tmp_path, test)
    assert told.summary.startswith("`k` is 12 and `n") and told.summary.endswith("by what line 5 passes")
    assert "`k` = 12" in told.advice and "`pts.shape[0]` = 9" in told.advice
    assert f"ops.c:4 asks for `{needs}`" in told.advice


def test_number_of_a_macro_is_not_what_was_passed(tmp_path: Path) -> None:
    told = found(tmp_path, "assert(n >= MOST);")
    assert told.summary.startswith("`n` is 9 and `MOST` is 64")
    assert "Compare `pts.shape[0]` = 9 before line 5 passes it" in told.advice


@pytest.mark.parametrize(
    "test",
    [
        "assert(k < n);\\n    n = n / 2;",  # it changes n
        "assert(sorted(pts, n));",
        "assert(k > n);",  # which holds
        "assert(k < n || dim == 3);",  # either may do
    ],
)
def test_nothing_is_said_where_the_numbers_do_not_decide(test: str, tmp_path: Path) -> None:
    assert found(tmp_path, test.replace("\\n", "\n"), running="assert(") is None
