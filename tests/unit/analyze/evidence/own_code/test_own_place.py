"""The line of the program's own C++ at which a thread died, and a use of Python objects without the GIL."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import without_gil as module
from pytracer.analyze.evidence.own_code.own_place import own_place
from pytracer.analyze.evidence.own_code.without_gil import without_gil
from pytracer.report.job import NativeFrame, SourceLine
from tests.unit.analyze.evidence.own_code.test_freed_pointer import view_of

LOADER = """struct Loader {
  void start(int64_t count) {
    thread_ = std::thread([this, count] {
      if (count > 0) {
        py::object item = load_(count);
      }
    });
  }
};
"""
CHECK = "pybind11::object_api<>::operator() PyGILState_Check() failure"


def test_a_lambda_is_of_the_function_around_it(tmp_path: Path) -> None:
    found = own_place(view_of(tmp_path, LOADER, "load_"))
    assert found is not None
    assert (found.function, found.place, found.text) == ("start", "ops.cpp:5", "py::object item = load_(count);")


def test_source_of_torch_or_of_the_system_is_no_own_place(tmp_path: Path) -> None:
    view = view_of(tmp_path, LOADER, "load_")
    lines = view.native_stack[-1].lines
    for image in ("/usr/lib/libstdc++.so.6", "/opt/torch/lib/libtorch_cpu.so"):
        view.native_stack = [NativeFrame(image=image, lines=[SourceLine(file=lines[0].file, line=5)])]
        assert own_place(view) is None


@pytest.mark.parametrize(
    ("what", "tid", "frames", "told"),
    [
        (CHECK, 9, (), ("on a thread of native code", "`py::gil_scoped_acquire gil;` before ops.cpp:5")),
        (CHECK, 1, (1,), ("start() used a Python object without the GIL at ops.cpp:5", "Take the GIL back")),
        ("PyGILState_Ensure() failed", 9, (), None),
    ],
)
def test_a_failed_check_for_the_gil_is_told_with_its_line(
    what: str, tid: int, frames: Any, told: tuple[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cpp_exception", lambda _: SimpleNamespace(type="std::runtime_error", what=what))
    view = view_of(tmp_path, LOADER, "load_")
    view.crash = SimpleNamespace(tid=tid, python_stack=frames)
    view.process = SimpleNamespace(snapshot=SimpleNamespace(pid=1))
    found = without_gil(view)
    assert (found is None) == (told is None)
    if found is not None and told is not None:
        assert told[0] in found.what and told[1] in found.advice
