"""A crash in a C library of the program: the headline names its function, and the advice what the line passed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.conditions import needs_compiler, needs_native
from tests.support.crash import PROGRAMS, environment, line_of, traced_run, victim

PROGRAM = "native_calls.py"
pytestmark = [needs_native, needs_compiler]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """native_calls.c as a shared library."""
    path = tmp_path_factory.mktemp("library") / "libcalls.so"
    compiler = shutil.which("cc") or "gcc"
    words = [compiler, "-O1", "-g", "-fPIC", "-shared", "-o", str(path), str(PROGRAMS / "native_calls.c")]
    subprocess.run(words, check=True, env=environment())
    return path


def died(library: Path, how: str, run: Path) -> tuple[Report, str, str]:
    """The report, its first sentence and its advice."""
    report = victim(PROGRAM, library, how, run=run).report
    finding = (report.findings or [])[0]
    return report, (report.verdict and report.verdict.summary) or "", finding.advice or ""


def test_numbers_that_a_line_passes_are_named_with_their_values(library: Path, run: Path) -> None:
    """The counts, and the function of the program's own library."""
    _, summary, advice = died(library, "number", run)
    assert "in enlarge (native_calls.c:" in summary
    assert "`columns` = 64 and `times` = 50000000" in advice
    assert "passes no length" not in advice


def test_a_constant_of_the_library_is_no_tensor_that_was_left(library: Path, run: Path) -> None:
    """The look-alike of a loop that ran into a library: the numbers that are passed would lead so far."""
    report, summary, _ = died(library, "constant", run)
    assert report.verdict is not None
    assert report.verdict.class_ == "read-only-write"
    assert "past the end" not in summary


def test_an_index_below_an_array_is_no_use_of_the_tensor_that_was_there_before(library: Path, run: Path) -> None:
    """The array is in the hole of a tensor that was freed: the instruction counted from its first byte."""
    report, summary, advice = died(library, "row", run)
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("out-of-bounds", "likely")
    assert "before `scores` [9, 1048576] float32, where row -1 would begin" in summary
    assert advice.startswith("The index of `scores`, which line 46 passes, goes below 0")


def test_a_line_that_passes_no_number_is_not_told_to_check_one(library: Path, run: Path) -> None:
    """The look-alike: the count is in the data."""
    _, summary, advice = died(library, "data", run)
    assert "in decode (native_calls.c:" in summary
    assert "passes no length" in advice
    assert "Check the lengths" not in advice


def test_two_threads_in_one_library_are_named(library: Path, run: Path) -> None:
    """With the line of the call."""
    _, summary, advice = died(library, "threads", run)
    assert "was in with_state() of libcalls.so at the same time" in summary
    assert "thread-safe" in advice
    assert f"{PROGRAM}:{line_of(PROGRAM, 'library.with_state(0)')}" in advice


def test_a_thread_that_is_elsewhere_is_not_named(library: Path, run: Path) -> None:
    """The look-alike: it sleeps in Python."""
    _, summary, advice = died(library, "alone", run)
    assert "in with_state (native_calls.c:" in summary
    assert "at the same time" not in summary
    assert "thread-safe" not in advice


def test_two_owners_of_a_tensor_s_memory_are_both_named(library: Path, run: Path) -> None:
    """The deleter of from_dlpack()'s tensor, and the line of the program that frees it as well."""
    report, summary, advice = died(library, "owners", run)
    assert report.verdict is not None
    assert report.verdict.class_ == "heap-corruption"
    made, frees = line_of(PROGRAM, "return torch.from_dlpack"), line_of(PROGRAM, "library.samples_free(self.managed)")
    assert f"the deleter of the tensor of from_dlpack() of {PROGRAM}:{made}" in summary
    assert "two owners" in advice
    assert f"line {frees} (`library.samples_free(self.managed)`)" in advice


def test_something_else_that_is_freed_has_no_second_owner(library: Path, run: Path) -> None:
    """The look-alike: no tensor's deleter runs."""
    _, _, advice = died(library, "wrong", run)
    assert "owners" not in advice


def test_timeout_that_passes_the_signal_of_its_child_on_is_no_death(library: Path, run: Path) -> None:
    """coreutils' timeout raises it again; a crash of its own would be one."""
    if shutil.which("timeout") is None:
        pytest.skip("needs coreutils' timeout")
    command: list[str | Path] = ["timeout", "60", sys.executable, PROGRAMS / PROGRAM, library, "data"]
    report = traced_run(*command, run=run).report
    assert report.verdict is not None
    assert "in decode" in (report.verdict.summary or "")
    assert all("to itself" not in (item.summary or "") for item in report.findings or [])
    assert [item.pid for item in report.processes or [] if item.why_kind == "first"] == [report.verdict.pid]


def test_numbers_are_not_recorded_without_values(library: Path, run: Path) -> None:
    """And nothing is concluded from their absence."""
    done = victim(PROGRAM, library, "data", run=run, PYTRACER_NO_VALUES="1")
    assert all(not box.crash.numbers for box in done.boxes if box.crash is not None)
    advice = (done.report.findings or [])[0].advice or ""
    assert "passes no length" not in advice
