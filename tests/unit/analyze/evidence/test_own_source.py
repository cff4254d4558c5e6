"""What the source beside a library says: temporaries, loops, tables not fetched, static objects, signatures."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.capi_table import unfetched_table
from pytracer.analyze.evidence.own_code.ended_statics import ended_static
from pytracer.analyze.evidence.own_code.local_memory import _blob
from pytracer.analyze.evidence.own_code.native_bounds import native_bounds
from pytracer.analyze.evidence.own_code.native_line import with_native_line
from pytracer.analyze.evidence.own_code.own_signature import argtypes, signature
from pytracer.analyze.evidence.own_code.temporary_pointer import TemporaryPointer, temporary_pointer
from pytracer.report.job import NativeFrame, SourceLine

EXIT = [NativeFrame(function="__run_exit_handlers", image="/usr/lib/libc.so.6")]
DESTROYED = [
    NativeFrame(function="list_dealloc", image="/usr/lib/libpython3.11.so.1.0"),
    NativeFrame(function="pybind11::object::~object()", image=""),
]


def view_of(
    run: Path, source: str, line: int = 0, *, newer: bool = False, inner: Any = (), outer: Any = (), **how: Any
) -> Any:
    """A process that failed at a line of `ops.cpp`, the last one by default."""
    file, library = run / "ops.cpp", run / "ops.so"
    file.write_text(f"{source}}}\n", encoding="utf-8")
    library.write_bytes(b"")
    os.utime(file, (3000, 3000) if newer else (1000, 1000))
    os.utime(library, (2000, 2000))
    lines = [SourceLine(function="f", file=str(file), line=line or len(source.splitlines()))]
    own = NativeFrame(function="f(at::Tensor)", image=str(library), lines=lines)
    frames = [*(NativeFrame(function=i.function, image=i.image or str(library)) for i in inner), own, *outer]
    images = (SimpleNamespace(path=str(library), start=1, end=2),)
    crash = SimpleNamespace(python_stack=(), images=images, native_stack=(), python_threads=())
    process = SimpleNamespace(snapshot=SimpleNamespace(argv=(), pid=1, main_pthread=None))
    return SimpleNamespace(
        native_stack=frames,
        crash=crash,
        place=SimpleNamespace(addr=16),
        process=process,
        python_stack=None,
        instruction=None,
        fault=None,
        **how,
    )


TEMPORARY = "at::Tensor f(at::Tensor table) {\n  const float* in = {made};\n  return in[3];\n"


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("table.contiguous().data_ptr<float>()", "table.contiguous()"),
        ("static_cast<float*>(table.to(at::kFloat).data_ptr())", "table.to(at::kFloat)"),
        ("(float*) table.t().contiguous().const_data_ptr<float>()", "table.t().contiguous()"),
        ("table.data_ptr<float>()", None),
        ("held.data_ptr<float>()", None),
        ("load(table.contiguous())", None),
    ],
)
def test_pointer_of_a_temporary_is_named_with_its_line(made: str, named: str | None, tmp_path: Path) -> None:
    found = temporary_pointer(view_of(tmp_path, TEMPORARY.replace("{made}", made)))
    assert (found.made if isinstance(found, TemporaryPointer) else None) == named
    if found is not None:
        assert found.place == "ops.cpp:2" and f"`auto held = {named};`" in found.advice


def test_no_temporary_of_a_source_that_is_newer_than_the_library(tmp_path: Path) -> None:
    text = TEMPORARY.replace("{made}", "table.contiguous().data_ptr<float>()")
    assert temporary_pointer(view_of(tmp_path, text, newer=True)) is None


def test_of_two_temporaries_that_of_the_running_line_is_named(tmp_path: Path) -> None:
    both = (
        "void f(at::Tensor a, at::Tensor b) {\n"
        "  auto x = a.contiguous().data_ptr<float>();\n  auto y = b.contiguous().data_ptr<float>();\n"
    )
    found = temporary_pointer(view_of(tmp_path, f"{both}  use(y[1]);\n"))
    assert found is not None and found.name == "y"
    assert temporary_pointer(view_of(tmp_path, f"{both}  use(x[1] + y[1]);\n")) is None


WARP = """at::Tensor f(at::Tensor image, at::Tensor flow) {
  const int64_t height = image.size(0), width = image.size(1);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      int64_t from = rows[y];
      out[y * width + x] = src[from * width + x];
"""


def test_loops_around_the_running_line_are_told_with_their_bounds(tmp_path: Path) -> None:
    found = native_bounds(view_of(tmp_path, WARP))
    assert found is not None
    assert found.loops == ("`y` below `height` = `image.size(0)`", "`x` below `width` = `image.size(1)`")
    assert found.reads == ("`from` = `rows[y]`",)
    assert found.words.startswith("ops.cpp:6 is `out[y * width + x] = src[from * width + x];`, for `y` below")


def test_the_running_native_line_is_told_also_where_no_python_line_is_known(tmp_path: Path) -> None:
    """Native code that overwrote the heap up to its end has overwritten the interpreter's state as well."""
    assert with_native_line(view_of(tmp_path, WARP), "Check it.").startswith(
        "Check it. ops.cpp:6 is `out[y * width + x]"
    )


@pytest.mark.parametrize("last", ["      total += x;\n", "      use(height);\n", "      out[0] = 1;\n"])
def test_a_line_that_indexes_nothing_by_a_loop_has_no_bounds(last: str, tmp_path: Path) -> None:
    text = "void f() {\n  for (int x = 0; x < n; ++x)\n" + last
    assert native_bounds(view_of(tmp_path, text)) is None


TABLE = """PyObject *f(PyObject *self) {
    npy_intp dims[1] = {4};
    return {call};
}
PyMODINIT_FUNC PyInit_fast(void) { {init}return PyModule_Create(&module); }
"""


@pytest.mark.parametrize(
    ("call", "init", "fires"),
    [
        ("PyArray_SimpleNew(1, dims, NPY_DOUBLE)", "", True),
        ("PyArray_SimpleNew(1, dims, NPY_DOUBLE)", "import_array(); ", False),
        ("PyArray_DATA(array)", "", False),  # a macro that reads the array
        ("PyList_New(3)", "", False),
    ],
)
def test_numpys_table_is_null_only_where_nothing_fetches_it(call: str, init: str, fires: bool, tmp_path: Path) -> None:
    text = TABLE.replace("{call}", call).replace("{init}", init)
    found = unfetched_table(view_of(tmp_path, text, 3))
    assert (found is not None) == fires
    if found is not None:
        assert "Call import_array() in PyInit_fast()" in found.advice and "ops.cpp:3" in found.advice


STATIC = "py::object f(py::object batch) {\n  {static} = batch;\n  return batch;\n"


@pytest.mark.parametrize(
    ("static", "named"),
    [
        ("static py::object stored", "`static py::object stored` (ops.cpp:2)"),
        ("static std::vector<py::object> kept", "`static std::vector<py::object> kept` (ops.cpp:2)"),
        ("static auto &stored = *new py::object(); stored", None),
        ("static py::object *stored", None),
        ("py::object local", None),
    ],
)
def test_static_python_object_is_named_when_exit_destroys_it(static: str, named: str | None, tmp_path: Path) -> None:
    found = ended_static(view_of(tmp_path, STATIC.replace("{static}", static), inner=DESTROYED, outer=EXIT))
    assert found is not None and found.library == "ops.so"
    assert found.statics == ((named,) if named is not None else ())
    assert ("likely" in found.what) == (named is not None)


def test_static_is_not_blamed_before_the_exit_nor_below_python(tmp_path: Path) -> None:
    text = STATIC.replace("{static}", "static py::object stored")
    assert ended_static(view_of(tmp_path, text, inner=DESTROYED)) is None
    running = view_of(tmp_path, text, inner=DESTROYED, outer=EXIT)
    running.crash.python_stack = ("a frame",)
    assert ended_static(running) is None
    assert ended_static(view_of(tmp_path, text, outer=EXIT)) is None  # nothing of Python was called


def test_signature_tells_pointers_and_numbers(tmp_path: Path) -> None:
    text = "void scale(float *x, const double *restrict w, const int64_t rows[], long n, void *out)\n{\n  x[0] = n;\n"
    found = signature(view_of(tmp_path, text), "scale")
    assert found is not None
    assert [(item.name, item.element, item.nbytes, item.constant) for item in found] == [
        ("x", "float", 4, False),
        ("w", "double", 8, True),
        ("rows", "int64_t", 8, True),
        ("n", None, 0, False),
        ("out", None, 0, False),
    ]
    assert argtypes(found) == "[c_void_p, c_void_p, c_void_p, c_long, c_void_p]"


@pytest.mark.parametrize(
    ("body", "element"),
    [
        ("auto p = static_cast<const int64_t*>(ids.data_ptr());", "int64_t"),
        ("int* p = (int*) ids.data_ptr();", "int"),
        ("auto p = ids.data_ptr<int64_t>();", None),  # checked by torch
        ("auto p = (int*) a.data_ptr(); auto q = (long*) ids.data_ptr(); auto r = (int*) ids.data_ptr();", None),
    ],
)
def test_signature_of_an_extension_is_what_it_casts_to(body: str, element: str | None, tmp_path: Path) -> None:
    text = f"torch::Tensor degrees(torch::Tensor a, torch::Tensor ids) {{\n  {body}\n}}\n"
    found = signature(view_of(tmp_path, text), "degrees")
    assert found is not None and (found[1].name, found[1].element) == ("ids", element)


def test_function_that_is_only_declared_or_there_twice_has_no_signature(tmp_path: Path) -> None:
    assert signature(view_of(tmp_path, "void scale(float *x);\n"), "scale") is None
    twice = "void scale(float *x) {\n}\nvoid scale(double *x) {\n}\n"
    assert signature(view_of(tmp_path, twice), "scale") is None


FLAT = """static const float* flat(const torch::Tensor& x) {
  {made};
  return copy.data_ptr<float>();
}
double f(torch::Tensor x) {
  const float* p = flat(x);
  return p[3];
"""


@pytest.mark.parametrize(
    ("made", "fires"),
    [("torch::Tensor copy = x.contiguous()", True), ("static torch::Tensor copy = x", False), ("check(copy)", False)],
)
def test_pointer_that_a_function_returned_of_its_own_tensor(made: str, fires: bool, tmp_path: Path) -> None:
    found = temporary_pointer(view_of(tmp_path, FLAT.replace("{made}", made)))
    assert (found is not None) == fires
    if found is not None:
        assert found.summary == "`p` is what flat() returned (ops.cpp:3), the data of its own `copy`"


DECODE = """torch::Tensor decode(int64_t n) {
  {made};
  return torch::from_blob({of}, {n}{more});
}
"""


@pytest.mark.parametrize(
    ("made", "of", "more", "declared"),
    [
        ("std::vector<float> pixels(n, 1.0f)", "pixels.data()", ", torch::kFloat32", "std::vector<float> pixels"),
        ("cv::Mat image = read(n)", "image.data", "", "cv::Mat image"),
        ("float *pixels = new float[n]", "pixels", "", None),
        ("auto pixels = allocate(n)", "pixels", "", None),
        ("static std::vector<float> pixels(n)", "pixels.data()", "", None),
        ("auto pixels = given.contiguous()", "pixels.data_ptr<float>()", "", None),  # may be `given` itself
        ("std::vector<float> pixels(n)", "pixels.data()", ", [pixels](void *) {}", None),
    ],
)
def test_blob_of_a_local_object_is_found_in_the_function(
    made: str, of: str, more: str, declared: str | None, tmp_path: Path
) -> None:
    text = DECODE.replace("{made}", made).replace("{of}", of).replace("{more}", more)
    found = _blob(view_of(tmp_path, f"{text}void f() {{\n  x[0];\n"), "decode")
    assert (found.declared if found is not None else None) == declared
    assert found is None or found.place == "ops.cpp:3"
