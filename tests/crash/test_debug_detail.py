"""A crash of torch itself: DDP over gloo under TORCH_DISTRIBUTED_DEBUG=DETAIL, on every rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_core, needs_debug_detail_crash, needs_native
from tests.support.crash import EXAMPLES, Ended, torchrun, traced_run

pytestmark = [needs_core, needs_native, needs_debug_detail_crash, pytest.mark.slow]

EXAMPLE = EXAMPLES / "ddp_debug_detail.py"


@pytest.fixture(scope="module")
def job(runs: Callable[[], Path]) -> Ended:
    """The example under DETAIL, run once."""
    return traced_run(*torchrun(EXAMPLE), run=runs(), TORCH_DISTRIBUTED_DEBUG="DETAIL")


@pytest.fixture(scope="module")
def report(job: Ended) -> Any:
    """Its report."""
    return job.report


@pytest.fixture(scope="module")
def ranks(report: Any) -> dict[int, Any]:
    """The processes of the two ranks."""
    return {p.rank: p for p in report.processes if p.rank is not None}


def test_class_is_wild_pointer(job: Ended, report: Any) -> None:
    """An address outside all recorded memory; torchrun's status is passed on."""
    assert report.verdict.class_ == "wild-pointer"
    assert job.status == 1
    assert "wild-pointer" in job.stderr


def test_both_ranks_died_of_it(ranks: dict[int, Any]) -> None:
    """The same fault on each rank; neither death is the consequence of the other."""
    assert set(ranks) == {0, 1}
    for process in ranks.values():
        if process.status.reported_by == "black-box":  # torchrun's SIGTERM was quicker than the fault
            continue
        assert process.status.signal == 11
        assert process.signal.name == "SIGSEGV"
        assert process.primary is True
    assert sum(process.status.signal == 11 for process in ranks.values()) == 2


def test_native_function_is_named_on_both(ranks: dict[int, Any]) -> None:
    """The function of libtorch that dereferenced the pointer, demangled."""
    for process in ranks.values():
        assert process.native_stack[0].function.partition("(")[0] == "c10d::Logger::set_env_variables"
        assert process.native_stack[0].image.endswith("libtorch_cpu.so")


def test_python_stack_is_in_the_constructor_of_ddp(job: Ended, ranks: dict[int, Any]) -> None:
    """DistributedDataParallel.__init__, called by the example's own line; the text shows no frame of the recorder."""
    assert "record/torch/ddp.py" not in job.stderr
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "model = DistributedDataParallel(" in text)
    for process in ranks.values():
        names = [frame.function for frame in process.python_stack]
        assert "DistributedDataParallel.__init__" in names
        assert [f.line for f in process.python_stack if f.file == str(EXAMPLE) and f.function == "main"] == [line]


def test_no_collective_was_open(ranks: dict[int, Any], report: Any) -> None:
    """The last collective of each rank was complete, and the verdict states it."""
    for process in ranks.values():
        assert process.last_collective.state == "completed"
    assert any("no collective was open" in evidence for evidence in report.verdict.evidence)
