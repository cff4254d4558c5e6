"""The check of an index in a kernel of torch.compile: which tensor is wrong, and which one may have such values."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.journal import CppException
from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, died, summary
from tests.support.synth import Box

WORDS, PLACES, TABLE, LARGE = 0x5581_0000_1000, 0x5581_0001_0000, 0x5581_0010_0000, 0x5581_0020_0000
ABORT: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101}
KERNEL = [
    ("/usr/lib/libc.so.6", "abort"),
    ("/usr/lib/libstdc++.so.6", "__cxa_throw"),
    ("/tmp/torchinductor_me/ab/kernel.main.so", "kernel._omp_fn.0.cold"),
]
WRAPPER = """cpp_fused_index_0 = async_compile.cpp_pybinding(['const int64_t*'], r'''
extern "C"  void  kernel(const int64_t* in_ptr0,
                       const float* in_ptr1,
                       const int64_t* in_ptr2,
                       const float* in_ptr3,
                       const int64_t ks0)
{
    auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
    auto tmp1 = in_ptr2[static_cast<int64_t>(x0)];
    auto tmp2 =
    [&]
    {
        tmp1.store(tmpbuf.data(), static_cast<int64_t>(16));
        return tmpbuf;
    }
    ()
    ;
    TORCH_CHECK((0 <= tmp0) & (tmp0 < 500L), "index out of bounds: 0 <= tmp0 < 500L");
    auto tmp3 = in_ptr1[static_cast<int64_t>(64L*tmp0)];
    TORCH_CHECK((0 <= tmp2) & (tmp2 < 256L), "index out of bounds: 0 <= tmp2 < 256L");
    auto tmp4 = in_ptr3[static_cast<int64_t>(64L*tmp2)];
    auto tmp5 = 2L*x0;
    TORCH_CHECK(tmp5 < ks0, "index out of bounds: tmp5 < ks0");
}
''')


def call(args):
    assert_size_stride(arg1_1, (500, 64), (64, 1), 'input')
    assert_size_stride(arg3_1, (s1, 64), (64, 1), 'input')
    cpp_fused_index_0(arg0_1, arg1_1, arg2_1, arg3_1, s1)
"""
PROGRAM_TEXT = """import torch


@torch.compile
def encode(words, places, large, table):
    {body}


def run(words, places):
    try:
        return encode(words, places)
    except {error}:
        {then}
"""


def check_of(text: str) -> str:
    """With its line in the kernel's own file."""
    kernel = WRAPPER.partition("r'''")[2].splitlines()
    return f"{next(at for at, line in enumerate(kernel, 1) if text in line)}, {text}"


CHECKS = {
    "words": check_of("index out of bounds: 0 <= tmp0 < 500L"),
    "places": check_of("index out of bounds: 0 <= tmp2 < 256L"),
}
SYMBOL = check_of("index out of bounds: tmp5 < ks0")
CALLED = next(at for at, line in enumerate(WRAPPER.splitlines(), 1) if "(arg0_1, " in line)
BODY = "large[words] + table[places]"


METHODS = """\
class Rows:
    def of(self, a, i):
        return a[i]
    def forward(self, a, i):
        return self.of(a, i)
class Wide(Rows):
    size = 2
"""


def integers(base: int, most: int) -> Argument:
    return replace(tensor(base, 40), dtype="int64", minimum=0, maximum=most)


def tensor(base: int, *sizes: int) -> Argument:
    elements = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
    return Argument(
        base ^ 0xFF, base, elements, 0, sizes, len(sizes), "float32", "cpu", minimum=None, maximum=None, frame=None,
        outer_frame=None, register=None, how="held",
    )  # fmt: skip


def report_of(
    run: Path,
    check: str,
    *,
    cache: bool = True,
    body: str = BODY,
    error: str = "ValueError",
    then: str = "pass",
    most: tuple[int, int] = (496, 319),
    stack_of: Any = KERNEL,
) -> Report:
    script, wrapper = run / "lm.py", run.parent / "torchinductor_me" / f"c{'a' * 51}.py"
    text = body if "return" in body else f"return {body}"
    script.write_text(PROGRAM_TEXT.format(body=text, error=error, then=then), encoding="utf-8")
    os.utime(script, (0, 0))
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(WRAPPER if cache else "", encoding="utf-8")
    made, own = PythonFrame("call", str(wrapper), CALLED), PythonFrame("encode", str(script), 4)
    named = {"words": WORDS, "places": PLACES, "large": LARGE, "table": TABLE}
    elements = {"words": 40, "places": 40, "large": 32000, "table": 16384}
    order = {"arg0_1": "words", "arg1_1": "large", "arg2_1": "places", "arg3_1": "table"}
    holders = (
        Holder("local", "tmp_4", TABLE, own, True, elements=16384),  # which Dynamo adds
        *(Holder("local", name, named[of], made, True, elements=elements[of]) for name, of in order.items()),
        *(Holder("local", name, base, own, True, elements=elements[name]) for name, base in named.items()),
    )
    box = Box(pid=101).alloc(WORDS, 320).alloc(PLACES, 320).alloc(LARGE, 128000).alloc(TABLE, 65536)
    what = f"kernel, /tmp/torchinductor_me/ab/c{'b' * 51}.main.cpp:{check}"
    return died(
        run, box=box, **ABORT, stack_of=[*stack_of, (s.PYTHON, "_PyEval_EvalFrameDefault")],
        python=[("call", str(wrapper), CALLED), ("encode", str(script), 4), ("run", str(script), 11)],
        holders=holders,
        arguments=(integers(WORDS, most[0]), integers(PLACES, most[1]), tensor(LARGE, 500, 64), tensor(TABLE, 256, 64)),
        cpp_exceptions=[CppException(tid=101, type="std::runtime_error", what=what)],
    )  # fmt: skip


def test_index_is_the_one_that_the_kernels_source_has(run: Path) -> None:
    """Both have values beyond 256, and one of them may."""
    report = report_of(run, CHECKS["places"], body="compute()")
    assert "an index failed: `places` (0..319) must be less than 256, the size of `table` [256, 64]" in summary(report)
    assert "Check the values of `places` (0..319)" in advice(report) and "must lie in 0..255" in advice(report)
    assert "words" not in advice(report)


def test_other_index_of_the_same_kernel_is_not_taken_for_it(run: Path) -> None:
    said = summary(report_of(run, CHECKS["words"], most=(500, 319)))
    assert "`words` (0..500) must be less than 500, the size of `large` [500, 64]" in said


def test_size_that_is_a_variable_of_the_kernel_is_that_of_its_tensor(run: Path) -> None:
    report = report_of(run, SYMBOL)
    assert "an index that the compiled function computes must be less than 256, the size of `table`" in summary(report)
    assert "computes the index of `table`" in advice(report)


def test_tensor_whose_values_are_inside_is_not_blamed(run: Path) -> None:
    """The kernel adds to them."""
    report = report_of(run, CHECKS["places"], most=(496, 200))
    assert "an index that the compiled function computes must be less than 256" in summary(report)
    assert "Check the values of `places`" not in advice(report)


def test_line_that_indexes_the_table_is_named(run: Path) -> None:
    """A function of the program is followed; one that is not known may index it as well."""
    report = report_of(run, CHECKS["places"], most=(496, 200))
    assert ", the size of `table` [256, 64], in `table[places]` at line 6 in encode;" in summary(report)
    for body in ("large[words] + gathered(table, places)", "table[places] + other(table)"):
        assert " at line 6 in encode" not in summary(report_of(run, CHECKS["places"], body=body, most=(496, 200)))


@pytest.mark.parametrize("called", ["Rows().of(table, places)", "Wide()(table, places)"])
def test_line_of_a_method_is_named(called: str, run: Path) -> None:
    """Of an object that the function makes, and of a class that its own is derived from; not of one that may be."""
    body = f"rows = large[words]\n    return rows + {called}\n" + METHODS
    report = report_of(run, CHECKS["places"], body=body, most=(496, 200))
    assert ", the size of `table` [256, 64], in `a[i]` at line 10 in Rows.of;" in summary(report)
    more = "class Narrow(Rows):\n    def of(self, a, i):\n        return a[i // 2]\n"
    report = report_of(run, CHECKS["places"], body=body + more, most=(496, 200))
    assert ("in Rows.of" in summary(report)) == called.startswith("Rows")


def test_line_that_makes_the_index_is_named_with_what_it_leaves_open(run: Path) -> None:
    body = "at = places.clamp(min=0)\n    return large[words] + table[at]"
    said = advice(report_of(run, CHECKS["places"], body=body, most=(496, 200)))
    assert "Keep `at` in 0..255 before `table[at]` at line 7 in encode uses it: line 6 (`at = places.clamp(" in said
    assert "makes it, and sets no largest value." in said
    bounded = report_of(run, CHECKS["places"], body=body.replace("min=0", "0, 300"), most=(496, 200))
    assert "sets no largest value" not in advice(bounded)


def test_both_lines_that_index_the_table_are_named(run: Path) -> None:
    report = report_of(run, CHECKS["places"], body="table[places] + table[words]", most=(200, 200))
    assert "in one of `table[places]` and `table[words]` at line 6 in encode" in summary(report)


def test_without_the_kernels_source_an_index_of_a_larger_table_is_none(run: Path) -> None:
    report = report_of(run, CHECKS["places"], cache=False)
    assert "`places` (0..319) must be less than 256" in summary(report)


def test_where_nothing_decides_both_are_named_without_a_claim(run: Path) -> None:
    report = report_of(run, CHECKS["places"], cache=False, body="compute()")
    assert "an index failed: an index must be less than 256" in summary(report)
    assert "Check which of `words` (0..496) and `places` (0..319)" in advice(report)
    assert "indexes a dimension of 256" in advice(report)


def test_exception_in_a_parallel_region_is_beyond_any_except(run: Path) -> None:
    report = report_of(run, CHECKS["places"])
    assert "left a parallel region, where no `except` can catch it" in summary(report)
    assert "torch.set_num_threads(1)" in advice(report)
    one = report_of(run, CHECKS["places"], stack_of=[*KERNEL[:2], (KERNEL[2][0], "kernel")])
    assert "parallel region" not in summary(one) and "set_num_threads" not in advice(one)


@pytest.mark.parametrize(
    ("error", "then", "hides"),
    [("(IndexError, RuntimeError)", "pass", True), ("ValueError", "pass", False), ("Exception", "raise", False)],
    ids=["goes on", "of another type", "raises again"],
)
def test_except_that_would_hide_the_error_of_eager_mode_is_named(error: str, then: str, hides: bool, run: Path) -> None:
    report = report_of(run, CHECKS["places"], error=error, then=then)
    assert ("in the `except` of line 12, which goes on" in advice(report)) == hides


def test_only_lines_that_use_the_wrong_index_are_named(run: Path) -> None:
    """Another line takes rows of the same tensor by another index."""
    text = summary(report_of(run, CHECKS["places"], body="large[words] + table[places] + table.gather(0, words)"))
    assert "in `table[places]` at line 6 in encode" in text
    assert "gather" not in text
