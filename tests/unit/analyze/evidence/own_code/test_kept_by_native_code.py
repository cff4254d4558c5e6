"""Pointers that native code keeps: a handle that is null, and the address of a tensor that is gone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.kept_pointer import kept_pointer
from pytracer.analyze.evidence.own_code.null_global import null_global
from pytracer.decode.types.snapshot import CallSite, PythonFrame
from tests.unit.analyze.evidence.own_code.test_freed_pointer import view_of

STORE = """typedef struct { float *data; long count; } store;
static store *current;
static float *table = NULL;
static void forget(void) { current = NULL; }
void store_open(long count)
{
    current = malloc(sizeof *current);
}
void store_read(float *out, long n)
{
    for (long i = 0; i < n; i++) out[i] = current->data[i];
    out[0] = table[0] + current->count;
    out[1] = out[0];
}
long count_of(store *current)
{
    return current->count;
}
"""
INDEX = """struct Index {
  void build(const torch::Tensor& vectors, int64_t n) {
    data_ = vectors.data_ptr<float>();
    owner_ = vectors;
  }
  float search(int64_t i) {
    return data_[i];
  }
  void local(const float* data_) {
    use(data_[0]);
  }
};
"""
PROGRAM = "index.build({given}, 5)\nindex.search(3)\n"


def crashed(run: Path, source: str, line: str, program: str, *, worker: Any = None) -> Any:
    view = view_of(run, source, line)
    view.native_stack = view.native_stack[1:]
    file = run / "train.py"
    file.write_text(program, encoding="utf-8")
    frame = PythonFrame("search", str(file), len(program.splitlines()))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, worker=worker)
    view.process = SimpleNamespace(snapshot=snapshot, role="rank")
    view.crash = SimpleNamespace(python_stack=(frame,), holders=())
    site = CallSite(PythonFrame("refresh", str(file), 1))
    view.place = SimpleNamespace(storage=SimpleNamespace(freed_by=site, allocated_by=CallSite()))
    return view


@pytest.mark.parametrize("worker", [None, object()])
def test_a_null_handle_is_named_with_what_sets_it(worker: Any, tmp_path: Path) -> None:
    found = null_global(crashed(tmp_path, STORE, "current->data", "lib.store_open(5)\nread(x)\n", worker=worker))
    assert found is not None
    assert found.summary == "likely `current` (ops.cpp:2), which store_open() sets and forget() clears"
    told = found.advice("line 2")
    assert "line 1 calls it" in told and ("in the worker, too" in told) == (worker is not None)


@pytest.mark.parametrize(
    "line",
    ["table[0] + current->count", "out[1] = out[0]", "return current->count"],
    ids=["two of them", "an argument", "a parameter of that name"],
)
def test_no_handle_where_another_pointer_may_be_null(line: str, tmp_path: Path) -> None:
    assert null_global(crashed(tmp_path, STORE, line, "read(x)\n")) is None


@pytest.mark.parametrize(
    ("given", "temporary"), [("encode(passages)", True), ("self.vectors.t()", True), ("vectors", False)]
)
def test_the_tensor_whose_address_was_kept(given: str, temporary: bool, tmp_path: Path) -> None:
    found = kept_pointer(crashed(tmp_path, INDEX, "return data_[i]", PROGRAM.replace("{given}", given)))
    assert found is not None
    assert (found.name, found.place, found.function, found.given) == ("data_", "ops.cpp:3", "build", given)
    assert found.temporary == temporary and ("a temporary of line 1" in found.summary) == temporary


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("use(data_[0])", PROGRAM),  # the function's own parameter
        ("return data_[i]", "index.other(vectors, 5)\nindex.search(3)\n"),
    ],
)
def test_no_kept_address_where_another_pointer_is_used(line: str, program: str, tmp_path: Path) -> None:
    assert kept_pointer(crashed(tmp_path, INDEX, line, program.replace("{given}", "x"))) is None
