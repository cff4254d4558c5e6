"""A plain script: a training step passes a null pointer to native code, through ctypes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_core, needs_native
from tests.support.crash import EXAMPLES, Ended, own_frames, traced_run

pytestmark = [needs_core, needs_native]

EXAMPLE = EXAMPLES / "null_in_step.py"


@pytest.fixture(scope="module")
def job(runs: Callable[[], Path]) -> Ended:
    """The example, run once."""
    return traced_run(sys.executable, EXAMPLE, run=runs())


@pytest.fixture(scope="module")
def process(job: Ended) -> Any:
    """The report of its one process."""
    report = job.report
    (process,) = list(report.processes or ())
    return process


def test_class_is_null_dereference(job: Ended) -> None:
    """The verdict, and the shell's status for SIGSEGV."""
    assert job.report.verdict.class_ == "null-dereference"  # type: ignore[union-attr]
    assert job.status == 139
    assert job.stdout.splitlines()[-1].startswith("step 4: loss")


def test_fault_is_null_plus_24(process: Any) -> None:
    """Signal, code, address and access."""
    assert (process.signal.name, process.signal.code) == ("SIGSEGV", "SEGV_MAPERR")
    assert (process.fault.addr, process.fault.kind, process.fault.access) == ("0x18", "near-null", "read")


def test_python_lines_lead_to_the_training_step(job: Ended) -> None:
    """Every frame of the script, innermost first, with the line that was running."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()

    def line(text: str) -> int:
        return next(number for number, found in enumerate(lines, 1) if text in found)

    assert job.boxes[0].crash is not None
    assert own_frames(job.boxes[0].crash.python_stack) == [
        ("log_header", "null_in_step.py", line("return ctypes.string_at")),
        ("train_step", "null_in_step.py", line("    log_header(step)")),
        ("main", "null_in_step.py", line("print(f")),
        ("<module>", "null_in_step.py", line("    main()")),
    ]


def test_step_was_counted_by_the_optimizer(job: Ended, process: Any) -> None:
    """Six optimizer steps had been taken."""
    assert process.step == 6
    assert job.boxes[0].step_source == "optimizer steps"
