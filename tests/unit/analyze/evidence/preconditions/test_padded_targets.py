"""Targets of ctc_loss in padded rows: a number that cannot fit is a fact, one that may be padding a suspicion."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box

SCORES, TARGETS, LENGTHS = 0x5581_0010_0000, 0x5581_0000_1000, 0x5581_0000_2000
PROGRAM_TEXT = """import torch.nn.functional as F


def train(scores, targets, lengths):
    loss = F.ctc_loss(scores, targets, (50,) * 4, lengths)
    loss.backward()
"""
ABORT: dict[str, Any] = {
    "signal": 6,
    "code": -6,
    "sender_pid": 101,
    "abort_text": "free(): invalid next size (normal)\n",
    "stack_of": [("/usr/lib/libc.so.6", "malloc_printerr"), ("/usr/lib/libc.so.6", "_int_free")],
}


def held(base: int, *sizes: int, dtype: str = "int64", numbers: tuple[int, int] | None = None) -> Argument:
    elements = 1
    for size in sizes:
        elements *= size
    low, high = numbers if numbers is not None else (None, None)
    return Argument(
        base ^ 0xFF, base, elements, 0, sizes, len(sizes), dtype, "cpu", minimum=low, maximum=high, frame=None,
        outer_frame=None, register=None, how="held",
    )  # fmt: skip


def report_of(
    run: Path, numbers: tuple[int, int], lengths: tuple[int, int] | None, classes: int = 37, **how: Any
) -> Report:
    """`lengths`: the smallest and the largest; rows have room for 7."""
    script = run / "ocr.py"
    script.write_text(PROGRAM_TEXT, encoding="utf-8")
    os.utime(script, (0, 0))
    frame = PythonFrame("train", str(script), 6)
    arguments = (
        held(SCORES, 50, 4, classes, dtype="float32"),
        held(TARGETS, 4, 7, numbers=numbers),
        held(LENGTHS, 4, numbers=lengths),
    )
    names = ("scores", "targets", "lengths")
    holders = tuple(
        Holder("local", name, item.base, frame, True, elements=item.elements)
        for name, item in zip(names, arguments, strict=True)
        if name != "lengths" or lengths is not None
    )
    box = Box(pid=101).alloc(SCORES, 4 * 50 * 4 * classes).alloc(TARGETS, 224).alloc(LENGTHS, 32)
    return died(
        run, box=box, python=[("train", str(script), 6)], holders=holders, arguments=arguments, mappings=[PROGRAM],
        images=(), **{**ABORT, **how},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "lengths", "said"),
    [
        ((1, 90), (7, 7), "holds 90"),  # no padding
        ((48, 90), (3, 7), "holds 48"),  # whatever is padding, all others are larger
        ((-9, -1), (3, 7), "holds -1"),
    ],
)
def test_targets_that_cannot_fit_are_a_fact_of_the_headline(
    numbers: tuple[int, int], lengths: tuple[int, int], said: str, run: Path
) -> None:
    report = report_of(run, numbers, lengths)
    assert f"`targets` [4, 7] {said}, where ctc_loss at line 5 takes " in summary(report)
    assert "suspect" not in summary(report) + advice(report)
    if numbers[0] >= 0:
        assert "Number the characters as the classes of `scores` are" in advice(report)


SOFTMAX = [(s.TORCH_CPU, "at::native::(anonymous namespace)::vec_host_softmax_backward_lastdim<float>")]
OVERWRITTEN = 0xC1B0_5ED4_0000_0071  # a float32 number in the upper half of a size
LOAD_RDX, LOAD_INDEXED = b"\x48\x8b\x02", b"\x48\x8b\x04\xc7"  # mov rax, [rdx]; mov rax, [rdi + 8 * rax]


@needs_capstone
@pytest.mark.parametrize(
    ("code", "registers"),
    [
        (LOAD_INDEXED, {"rdi": SCORES, "rax": OVERWRITTEN}),
        (LOAD_RDX, {"rdx": SCORES + 8 * OVERWRITTEN & ~-(1 << 64), "r13": SCORES, "r15": OVERWRITTEN}),
        (LOAD_RDX, {"rdx": OVERWRITTEN}),
    ],
    ids=["an index", "a number that was an index", "a pointer"],
)
@pytest.mark.parametrize("fits", [False, True])
def test_targets_that_cannot_fit_lead_where_torch_used_what_they_overwrote(
    code: bytes, registers: dict[str, int], fits: bool, run: Path
) -> None:
    """A kernel may read it before the allocator looks at it: the heap of each machine lies otherwise."""
    report = report_of(
        run, (0, 36) if fits else (48, 90), (7, 7), signal=11, code=128, sender_pid=None, abort_text=None, addr=0,
        stack_of=SOFTMAX, registers=registers, code_bytes=code,
    )  # fmt: skip
    assert verdict(report) == ("heap-corruption", "likely") or fits
    assert ("`targets` [4, 7] holds 90, where ctc_loss at line 5 takes less than 37" in summary(report)) != fits
    assert ("Number the characters as the classes of `scores` are" in advice(report)) != fits


@pytest.mark.parametrize("lengths", [(3, 6), None], ids=["padded", "lengths that are not known"])
def test_number_that_may_be_padding_is_a_suspicion(lengths: tuple[int, int] | None, run: Path) -> None:
    report = report_of(run, (1, 99), lengths)
    assert "the first suspect is ctc_loss" in summary(report) and "for granted" not in summary(report)
    assert "`targets.max() < scores.size(-1)` (99 and 37 here, unless 99 is padding)" in advice(report)


@pytest.mark.parametrize(("numbers", "lengths"), [((1, 36), (7, 7)), ((0, 36), (3, 7)), ((48, 90), (0, 0))])
def test_targets_that_fit_or_are_not_used_are_no_fact(
    numbers: tuple[int, int], lengths: tuple[int, int], run: Path
) -> None:
    assert "for granted" not in summary(report_of(run, numbers, lengths))


def test_lines_that_made_the_targets_are_shown(run: Path) -> None:
    report = report_of(run, (48, 90), (7, 7))
    assert report.verdict is not None
    assert [item.line for item in report.verdict.code or ()] == [5, 6]


ALPHA = 0x5581_0030_0000
IN_BACKWARD = [
    ("/usr/lib/libc.so.6", "__libc_free"),
    (s.TORCH_CPU, "at::native::ctc_loss_backward_cpu(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::_ctc_loss_backward::call(at::Tensor const&, at::Tensor const&)"),
    (s.TORCH_CPU, "torch::autograd::generated::CtcLossBackward0::apply()"),
    (s.TORCH_CPU, "torch::autograd::Engine::evaluate_function()"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
STEP_TEXT = """import torch.nn.functional as F


def cost(x, text):
    scores = x.log_softmax(-1)
    return F.ctc_loss(scores, text["ids"].clone(), (50,) * 4, (7,) * 4)


def train(x, text):
    loss = cost(x, text)
    loss.backward()
"""


@pytest.mark.parametrize(
    ("numbers", "nodes", "longest", "named"),
    [((48, 90), 1, 7, True), ((48, 90), 2, 7, False), ((1, 36), 1, 7, False), ((48, 90), 1, 0, False)],
    ids=["one node", "two nodes", "numbers that fit", "no length"],
)
def test_targets_that_only_the_node_keeps_are_known(
    numbers: tuple[int, int], nodes: int, longest: int, named: bool, run: Path
) -> None:
    """The function that passed them has returned."""
    script = run / "ocr.py"
    script.write_text(STEP_TEXT, encoding="utf-8")
    os.utime(script, (0, 0))
    given = (
        held(SCORES, 50, 4, 37, dtype="float32"),
        held(TARGETS, 4, 7, numbers=numbers),
        held(LENGTHS, 4, dtype="float32"),
        held(ALPHA, 4, 50, 2 * longest + 1, dtype="float32"),
    )
    arguments = tuple(replace(item, how="reference", frame=1, outer_frame=3) for item in given)
    holders = tuple(Holder("saved", "CtcLossBackward0", item.base, None, False) for item in arguments * nodes)
    box = Box(pid=101)
    for item in arguments:
        box = box.alloc(item.base, 8 * item.elements)
    report = died(
        run, box=box, python=[("train", str(script), 11)], node="CtcLossBackward0", holders=holders, images=(),
        arguments=arguments, mappings=[PROGRAM], stack_of=IN_BACKWARD, addr=0, code=128,
    )  # fmt: skip
    size = "the last size of `scores` [50, 4, 37]"
    said = f"[4, 7] holds 48, where ctc_loss at line 6 takes less than 37 for granted ({size})"
    assert (said in summary(report)) == named, summary(report)


def test_item_of_what_the_caller_passes_is_followed(run: Path) -> None:
    """Its numbers are said, though the classes are not known."""
    script = run / "ocr.py"
    script.write_text(STEP_TEXT.replace(".clone()", ""), encoding="utf-8")
    os.utime(script, (0, 0))
    targets = held(TARGETS, 4, 7, numbers=(48, 90))
    holder = Holder("local", "text['ids']", TARGETS, PythonFrame("train", str(script), 11), True, elements=28)
    report = died(
        run, box=Box(pid=101).alloc(TARGETS, 224), python=[("train", str(script), 11)], holders=(holder,),
        arguments=(targets,), mappings=[PROGRAM], images=(), **ABORT,
    )  # fmt: skip
    assert "does not check that `text['ids'].max() < scores.size(-1)` (90 here)" in advice(report)


@pytest.mark.parametrize(("largest", "named"), [(69, True), (36, False)])
def test_function_pointer_overwritten_in_a_backward_has_the_unchecked_forward_for_its_suspect(
    largest: int, named: bool, run: Path
) -> None:
    """A number that may be padding: hedged."""
    script = run / "ocr.py"
    script.write_text(PROGRAM_TEXT, encoding="utf-8")
    os.utime(script, (0, 0))
    frame = PythonFrame("train", str(script), 6)
    arguments = (held(SCORES, 50, 4, 37, dtype="float32"), held(TARGETS, 4, 7, numbers=(0, largest)))
    holders = tuple(
        Holder("local", name, item.base, frame, True, elements=item.elements)
        for name, item in zip(("scores", "targets"), arguments, strict=True)
    )
    report = died(
        run, box=Box(pid=101).alloc(SCORES, 29600).alloc(TARGETS, 224), python=[("train", str(script), 6)],
        node="CtcLossBackward0", holders=holders, arguments=arguments, mappings=[PROGRAM], images=(),
        stack_of=IN_BACKWARD, addr=0, code=128, registers={"rbx": TARGETS}, code_bytes=bytes.fromhex("ff5318"),
    )  # fmt: skip
    said = "the first suspect is ctc_loss at line 5, which does not check that `targets.max() < scores.size(-1)`"
    assert (said in summary(report)) == named, summary(report)
