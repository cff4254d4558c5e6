"""An exception that left a destructor, told by the source; what ends a process there otherwise is not taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import throwing_destructor as module
from pytracer.analyze.evidence.own_code.throwing_destructor import left_destructor, throwing_destructor
from pytracer.report.job import NativeFrame, SourceLine
from tests.unit.analyze.evidence.own_code.test_freed_pointer import view_of

RECORDER = """class Recorder {
 public:
  ~Recorder() { flush(); }
  void flush() {
    TORCH_CHECK(!losses_.empty(), "no losses");
    write(losses_);
  }
  void stop() {
    std::terminate();
  }
};
"""


def crashed(run: Path, monkeypatch: pytest.MonkeyPatch, source: str, line: str, **how: Any) -> Any:
    monkeypatch.setattr(module, "terminated_without_exception", lambda _: True)
    view = view_of(run, source, line)
    own = view.native_stack[-1]
    frame = NativeFrame(image=own.image, lines=[*how.get("inner", ()), own.lines[0]])
    view.native_stack = [NativeFrame(function="std::terminate()", image="/usr/lib/libstdc++.so.6"), frame]
    return view


def test_what_the_destructor_calls_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = throwing_destructor(crashed(tmp_path, monkeypatch, RECORDER, "~Recorder()"))
    assert found is not None
    assert found.what == (
        "an exception left the destructor ~Recorder() (ops.cpp:3), likely that of `TORCH_CHECK(!losses_.empty(), "
        '"no losses")` (ops.cpp:5): no destructor may throw'
    )
    assert "Catch what ops.cpp:5 throws in ~Recorder() (ops.cpp:3" in found.advice


def test_nothing_is_guessed_of_what_throws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = throwing_destructor(crashed(tmp_path, monkeypatch, RECORDER.replace("TORCH_CHECK", "check"), "~Recorder()"))
    assert found is not None and found.throws is None


@pytest.mark.parametrize(
    ("source", "line", "inner"),
    [
        (RECORDER, "std::terminate();", ()),  # a method that ends the process itself
        (RECORDER.replace("{ flush(); }", "{ std::terminate(); }"), "~Recorder()", ()),
        (
            RECORDER,
            "~Recorder()",
            (SourceLine(function="~thread", file="/usr/include/c++/12/bits/std_thread.h", line=9),),
        ),
    ],
)
def test_other_ends_are_no_exceptions(
    source: str, line: str, inner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert throwing_destructor(crashed(tmp_path, monkeypatch, source, line, inner=inner)) is None


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("Scratch::check() const", "Scratch::~Scratch()", "smooth"), "~Scratch()"),
        (("check", "smooth"), None),
    ],
)
def test_destructor_around_what_threw_is_named(
    names: tuple[str, ...], told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was inlined: no `try` further out catches what leaves it."""
    view = crashed(tmp_path, monkeypatch, RECORDER, "~Recorder()")
    lines = [SourceLine(function=name, file="/job/smooth.cpp", line=9) for name in names]
    view.native_stack = [NativeFrame(image=view.native_stack[-1].image, function=names[-1], lines=lines)]
    assert left_destructor(view) == told


WRITER = """void Writer::flush() noexcept {
  if (!file) throw std::runtime_error(path);
}
Writer::~Writer() {
  flush();
}
"""


@pytest.mark.parametrize(
    ("inner", "source", "told"),
    [
        ("Writer::flush", WRITER.replace(" noexcept", ""), "~Writer()"),
        ("Writer::flush", WRITER.replace(" noexcept", " noexcept(false)"), "~Writer()"),
        ("Writer::flush", WRITER, None),
        (
            "Writer::flush",
            WRITER.replace(" noexcept", "").replace("  flush();", "  try { flush(); } catch (const Lost&) { }"),
            None,
        ),
        ("Writer::~Writer() [clone ._omp_fn.0]", WRITER.replace(" noexcept", ""), None),
    ],
)
def test_exception_that_ends_the_process_before_leaves_no_destructor(
    inner: str, source: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that is noexcept, or a `catch` in the destructor: what is to be changed is not there."""
    view = crashed(tmp_path, monkeypatch, source, "throw")
    own = view.native_stack[-1]
    file = own.lines[0].file
    outer = SourceLine(function="Writer::~Writer()", file=file, line=5)
    lines = [SourceLine(function=inner, file=file, line=2)]
    view.native_stack = [NativeFrame(image=own.image, lines=lines), NativeFrame(image=own.image, lines=[outer])]
    assert left_destructor(view) == told


def test_lambda_that_a_destructor_hands_to_a_thread_is_not_the_destructor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = crashed(tmp_path, monkeypatch, RECORDER, "~Recorder()")
    name = "Writer::~Writer()::{lambda()#1}::operator()() const"
    view.native_stack = [NativeFrame(image=view.native_stack[-1].image, function=name)]
    assert left_destructor(view) is None
