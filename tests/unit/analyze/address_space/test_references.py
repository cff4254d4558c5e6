"""Which variables are said to hold a storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Holder, PythonFrame
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, died
from tests.support.synth import Box

BASE = 0x5581_0000_1000
PROGRAM_FRAME = PythonFrame("sampler", s.SCRIPT, 27)
WRAPPER_FRAME = PythonFrame("run_and_record", "/x/site-packages/pytracer/record/torch/exceptions.py", 70)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([PROGRAM_FRAME, WRAPPER_FRAME], ["sampler"]),
        ([WRAPPER_FRAME], ["run_and_record"]),  # held by nothing else: that is worth knowing
    ],
)
def test_a_wrapper_of_the_recorder_is_no_holder_beside_the_program(
    run: Path, frames: list[PythonFrame], named: list[str]
) -> None:
    holders = tuple(Holder("local", "filled", BASE, frame, True) for frame in frames)
    box = Box(pid=101).alloc(BASE, 1024)
    steps = ("HOLDERS",)
    report = died(run, box=box, addr=BASE + 1024, mappings=[PROGRAM], holders=holders, steps_done=steps)
    fault = (report.processes or [])[0].fault
    assert fault is not None and fault.storage is not None
    assert [holder.python.function for holder in fault.storage.holders or () if holder.python] == named
