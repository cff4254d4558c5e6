"""torch's own check failed: with a memory error behind it, something wrote over its objects; else it is a bug."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, died, evidence, summary, verdict
from tests.support.synth import Box

ASSERT = (
    'self.is_live() INTERNAL ASSERT FAILED at "/pytorch/torch/csrc/autograd/functions/tensor.cpp":167, please report a '
    "bug to PyTorch. "
)
LATER = "; memory may have been overwritten before"


def ended(run: Path, message: str = ASSERT, **how: Any) -> Report:
    box = Box(pid=101, ppid=99).at(400).exception("RuntimeError", message, [("<module>", s.SCRIPT, 12)])
    return died(run, box=box, **{"addr": 0x10, **how})


def test_a_fault_behind_a_broken_check_of_torch_means_overwritten_memory(run: Path) -> None:
    report = ended(run)
    assert verdict(report) == ("python-exception", "certain")
    assert summary(report).endswith(f"{LATER}.")
    assert "(possible). `pytracer run --guard` stops at such a write" in advice(report)


@pytest.mark.parametrize(
    "how",
    [
        {"message": "shape '[3]' is invalid for input of size 4"},
        {"signal": 6, "code": -6, "sender_pid": 101},
        {"signal": 15, "code": 0, "sender_pid": 99},
    ],
    ids=["another message", "an abort without a text", "a signal from outside"],
)
def test_other_ends_are_not_called_that(how: dict[str, Any], run: Path) -> None:
    report = ended(run, **how)
    assert LATER not in summary(report) and "--guard" not in advice(report)


def test_exception_before_a_damaged_heap_may_have_come_of_it(run: Path) -> None:
    """What was overwritten may be a size that the message quotes."""
    report = ended(
        run, "TensorAccessor expected 1 dims", signal=6, code=-6, sender_pid=101, abort_text="free(): invalid size\n"
    )
    assert verdict(report) == ("python-exception", "likely")
    assert "its heap was found damaged afterwards" in summary(report)
    assert "while it was shutting down: the C library printed free(): invalid size" in evidence(report)
