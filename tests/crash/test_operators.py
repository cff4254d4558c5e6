"""A crash inside an operator: the report names it, and the tensors that it worked on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import Operator, OperatorTensor, Report, Verdict
from tests.conditions import needs_compiler, needs_core, needs_native, needs_torch
from tests.crash.test_origins import compiled
from tests.support.crash import PROGRAMS, victim

pytestmark = [needs_core, needs_torch, needs_native]
PROGRAM = "operators.py"
LARGE = 10**11


def crashed(*arguments: str | Path, run: Path, **environment: Any) -> Report:
    """The report of such a crash."""
    return victim(PROGRAM, *arguments, run=run, **environment).report


def operator_of(report: Report) -> Operator | None:
    (process,) = report.processes or []
    return process.operator


def tensors_of(report: Report) -> dict[str | None, OperatorTensor]:
    found = operator_of(report)
    assert found is not None
    return {item.name: item for item in found.tensors or [] if item.passed}


def verdict_of(report: Report) -> Verdict:
    assert report.verdict is not None
    return report.verdict


def test_operator_of_an_openmp_worker_is_named(tmp_path: Path) -> None:
    """Its own stack has a lambda only, whose captures may be raw pointers: then the tensors are not all found."""
    report = crashed("index_of_pooling", run=tmp_path / "run", OMP_NUM_THREADS="2")
    found = operator_of(report)
    assert found is not None
    assert found.name == "aten::adaptive_max_pool2d_backward"
    assert [1, 64, 8, 8] in [item.sizes for item in tensors_of(report).values()]
    assert verdict_of(report).class_ == "out-of-bounds"


def test_index_of_pooling_is_found_with_its_values(tmp_path: Path) -> None:
    """The tensors' shapes, names and values."""
    report = crashed("index_of_pooling", run=tmp_path / "run")
    found = operator_of(report)
    assert found is not None
    assert found.name == "aten::adaptive_max_pool2d_backward"
    where, image = tensors_of(report)["where"], tensors_of(report)["image"]
    assert (where.sizes, where.dtype, where.maximum) == ([1, 64, 2, 2], "int64", LARGE)
    assert (image.sizes, image.dtype, image.minimum) == ([1, 64, 8, 8], "float32", None)
    assert verdict_of(report).class_ == "out-of-bounds"
    advice = verdict_of(report).advice or ""
    assert re.search(r"Check the values of `where` \(\d\.\.100000000000\)", advice)  # the pooled values are random


def test_part_of_a_tensor_has_the_name_of_its_variable(tmp_path: Path) -> None:
    """Three variables hold one storage: which of them, by where it begins."""
    report = crashed("part_of_pooling", run=tmp_path / "run")
    found = tensors_of(report)
    assert found["second"].maximum == LARGE
    assert not {"first", "third"} & set(found)
    assert "`second`" in (verdict_of(report).advice or "")


def test_nans_are_counted_and_explain_a_crash_of_lapack(tmp_path: Path) -> None:
    """The matrix has one NaN. The others are only held: of all types, with gaps, and with their columns in a row."""
    ended = victim(PROGRAM, "eigenvalues_of_nan", run=tmp_path / "run")
    found = tensors_of(ended.report)["matrix"]
    assert (found.sizes, found.nans, found.minimum) == ([32, 32], 1, None)
    assert "LAPACK was given a matrix with NaN or infinity" in (verdict_of(ended.report).summary or "")
    assert "32, 32] float32, 1 of 1024 NaN" in ((operator_of(ended.report) or Operator()).says or "")
    assert ended.box.crash is not None
    held = {
        (item.dtype, item.sizes): (item.nans, item.infinite) for item in ended.box.crash.arguments if item.how == "held"
    }
    wanted = {
        ("float32", (10, 5)): (0, False), ("float16", (10,)): (0, True), ("complex64", (2,)): (1, False),
        ("float64", (70, 70)): (0, False), ("bfloat16", (2,)): (1, False),
    }  # fmt: skip
    assert held.items() >= wanted.items()


def test_length_beyond_its_data_is_a_wrong_index(tmp_path: Path) -> None:
    """Nothing but the values of the argument says why the kernel ran off the heap."""
    report = crashed("length_of_segment", run=tmp_path / "run")
    assert (verdict_of(report).class_, verdict_of(report).confidence) == ("out-of-bounds", "certain")
    words = r"`lengths` \[2\] sums to 1000000000\d or more, where segment_reduce takes at most \d+ for granted"
    assert re.search(words, verdict_of(report).summary or "")


def test_no_values_leaves_the_values_of_tensors_out(tmp_path: Path) -> None:
    """--no-values; the shapes stay."""
    ended = victim(PROGRAM, "length_of_segment", run=tmp_path / "run", PYTRACER_NO_VALUES="1")
    lengths = tensors_of(ended.report)["lengths"]
    assert (lengths.sizes, lengths.minimum, lengths.maximum) == ([2], None, None)
    crash = ended.box.crash
    assert crash is not None
    assert {(item.minimum, item.maximum, item.nans) for item in crash.arguments} == {(None, None, None)}


def test_empty_tensor_of_an_operator_is_named(tmp_path: Path) -> None:
    """running_var of batch normalization, which has 0 elements."""
    report = crashed("empty_statistics", run=tmp_path / "run")
    assert verdict_of(report).class_ == "null-dereference"
    says = "`variance` in empty_statistics() has 0 elements, where native_batch_norm takes 3 for granted"
    assert says in (verdict_of(report).summary or "")
    assert [item.elements for item in (operator_of(report) or Operator()).tensors or [] if item.base is None]


def test_crash_beside_operators_names_none(tmp_path: Path) -> None:
    """One ran before, its arguments are all right, and an empty tensor is at hand."""
    report = crashed("elsewhere", "0x7000deadbee8", run=tmp_path / "run")
    assert operator_of(report) is None
    assert verdict_of(report).class_ == "wild-pointer"


@needs_compiler
def test_search_goes_on_when_the_processor_is_taken_away(tmp_path: Path) -> None:
    """For longer than the search may take, twice while it looks: what counts is the time that it worked."""
    library = tmp_path / "libclock.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(PROGRAMS / "jumping_clock.c")]
    subprocess.run(command, check=True, env={**os.environ, "LD_PRELOAD": ""})
    ended = victim(PROGRAM, "index_of_pooling", run=tmp_path / "run", way="enable", LD_PRELOAD=str(library))
    crash = ended.box.crash
    assert crash is not None
    assert {"where", "image"} <= set(tensors_of(ended.report))
    assert tensors_of(ended.report)["where"].maximum == LARGE
    assert not crash.arguments_truncated


@needs_compiler
@pytest.mark.slow
def test_operators_of_an_extension_are_named_by_their_functions(tmp_path: Path) -> None:
    """A wrong index, an empty tensor, and a look-alike whose arguments are all right."""
    library = compiled("operators", tmp_path)
    found = {}
    for name in ("look_up", "scale", "stray"):
        found[name] = crashed("extension", library, name, run=tmp_path / name)
        operator = operator_of(found[name])
        assert operator is not None
        assert operator.name == f"(anonymous)::{name}"
    assert verdict_of(found["look_up"]).class_ == "out-of-bounds"
    assert "Check the values of `rows`" in (verdict_of(found["look_up"]).advice or "")
    assert "`nothing` in extension() has 0 elements" in (verdict_of(found["scale"]).summary or "")
    assert verdict_of(found["stray"]).class_ == "wild-pointer"


def test_variables_of_a_module_have_their_sizes(tmp_path: Path) -> None:
    """A script without functions: its variables are as well known as a function's."""
    report = victim("module_variables.py", run=tmp_path / "run").report
    assert (verdict_of(report).class_, verdict_of(report).confidence) == ("out-of-bounds", "certain")
    summary = verdict_of(report).summary or ""
    assert "`places` [1, 4, 2, 2] holds 100000000000, where adaptive_max_pool2d_backward takes less than 64" in summary
