"""An index into an array that is no tensor: known by its size, or as a number that the operator's integers hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Argument
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box

COUNTS, IDS = 0x5581_0000_1000, 0x5582_0000_0040
HEAP = (0x5581_0000_0000, 0x5581_0010_0000, "rw-p", 0, "[heap]")
ADD = bytes.fromhex("488304c701")  # add qword ptr [rdi + rax*8], 1
BACKWARD = [
    (s.TORCH_CPU, "at::native::compute_counts(long*, long)"),
    (s.TORCH_CPU, "at::_ops::_embedding_bag_dense_backward::call(at::Tensor const&, at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]


def ids(least: int, most: int) -> Argument:
    return Argument(
        1, IDS, 512, 0, (512,), 1, "int64", "cpu", minimum=least, maximum=most, frame=0, outer_frame=2, register=None,
        how="reference",
    )  # fmt: skip


@needs_capstone
@pytest.mark.parametrize(
    ("held", "said"),
    [((1_246_754, 1 << 40), True), ((5, 1_246_754), True), ((0, 19_999), False), ((0, 1_246_755), False)],
)
def test_index_that_an_operator_holds_need_not_be_huge(held: tuple[int, int], said: bool, run: Path) -> None:
    """The look-alikes: the number is none of those, so that it may be in the register by chance."""
    index = 1_246_754
    report = died(
        run, box=Box(pid=101).alloc(IDS, 4096), addr=COUNTS + 8 * index, registers={"rdi": COUNTS, "rax": index},
        code_bytes=ADD, stack_of=BACKWARD, arguments=(ids(*held),), mappings=[PROGRAM, HEAP],
    )  # fmt: skip
    assert (verdict(report) == ("out-of-bounds", "likely")) == said
    assert (f"index {index} of a tensor [512] of int64 leads out of an array" in summary(report)) == said


@needs_capstone
@pytest.mark.parametrize(("index", "said"), [(-(1 << 31), True), (-(1 << 30), False)])
def test_index_that_nan_becomes_asks_for_numbers_that_are_finite(index: int, said: bool, run: Path) -> None:
    report = died(
        run, addr=(COUNTS + 8 * index) % (1 << 64), registers={"rdi": COUNTS, "rax": index % (1 << 64)},
        code_bytes=ADD, stack_of=[(s.PYTHON, "_PyEval_EvalFrameDefault")], mappings=[PROGRAM, HEAP],
    )  # fmt: skip
    assert f"index {index} leads out of an array" in summary(report)
    assert ("NaN, infinity and numbers that are too large become that index" in summary(report)) == said
    assert advice(report).startswith("Ask `np.isfinite(x).all()`") == said


@needs_capstone
@pytest.mark.parametrize(
    ("away", "said"), [(8 << 31, True), (4 << 31, True), ((8 << 31) + 8, False), (24 << 30, False), (-(8 << 31), False)]
)
def test_index_that_nan_becomes_is_known_by_the_sum_alone(away: int, said: bool, run: Path) -> None:
    """The compiler keeps the sum only. The look-alikes: no exact multiple, another number, above the array."""
    addr = COUNTS - away
    report = died(
        run, addr=addr, registers={"rcx": COUNTS, "rdi": addr}, code_bytes=bytes.fromhex("488b07"),
        stack_of=[(s.PYTHON, "_PyEval_EvalFrameDefault")], mappings=[PROGRAM, HEAP],
    )  # fmt: skip
    assert ("index -2147483648 leads out of an array in its memory" in summary(report)) == said
    assert (verdict(report) == ("out-of-bounds", "likely")) == said
