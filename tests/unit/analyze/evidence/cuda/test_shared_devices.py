"""Two ranks of a host on one CUDA device, which NCCL refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Box

DUPLICATE = "NCCL error: invalid usage\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
DEVICE, OTHER, MIB = 0x7F60_0000_0000, 0x7F70_0000_0000, 1 << 20
GENERAL = "before the first collective"


def refused(run: Path, source: str, *, message: str = DUPLICATE, memory: bool = True, both: bool = False) -> Report:
    """Both ranks died of it at line 4; their memory was allocated at line 3, and at line 4."""
    program = s.program_in(run, source)
    boxes = [Box(pid=101 + n, ppid=99, rank=n, environment={"LOCAL_RANK": str(n)}) for n in range(2)]
    for box in boxes:
        if memory:
            box.devices.segment(DEVICE, 20 * MIB)
            first, then = (box.code("main", str(program), line) for line in (3, 4))
            box.devices.alloc(DEVICE, MIB, first, box.epoch)
            box.devices.alloc(DEVICE + MIB, MIB, then, box.epoch)
        if both:
            box.devices.segment(OTHER, 20 * MIB, device=1)
        box.at(500).exception("torch.distributed.DistBackendError", message, [("main", str(program), 4)]).exit(1)
    return build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 1}), at=900), *boxes))


SOURCE = "def main():\n    {}\n    model = nn.Linear(8, 8).{}\n    wrapped = DistributedDataParallel(model)\n"


def test_the_line_that_allocates_there_is_named(run: Path) -> None:
    """And the call that is missing before it."""
    report = refused(run, SOURCE.format("pass", "cuda()"))
    assert verdict(report) == ("python-exception", "certain")
    assert (
        "ranks 0 and 1 both use cuda:0, where program.py:3 in main (`model = nn.Linear(8, 8).cuda()`) allocates"
        in summary(report)
    )
    assert advice(report).startswith(
        'Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before program.py:3. Start no more ranks'
    )


def test_a_device_that_the_line_names_itself(run: Path) -> None:
    """No current device changes that."""
    report = refused(run, SOURCE.format("pass", 'to("cuda:0")'))
    assert 'before program.py:3, with "cuda" (the current device) in place of cuda:0' in advice(report)


def test_a_choice_of_the_program_is_quoted(run: Path) -> None:
    """It gave both ranks the same, or came too late."""
    report = refused(run, SOURCE.format("torch.cuda.set_device(rank // 2)", "cuda()"))
    assert advice(report).startswith(
        "program.py:2 has `torch.cuda.set_device(rank // 2)`, and ranks 0 and 1 use cuda:0"
    )


@pytest.mark.parametrize("memory, both", [(False, False), (True, True)], ids=["no memory known", "two devices"])
def test_unknown_devices_leave_the_general_advice(run: Path, memory: bool, both: bool) -> None:
    """The look-alikes: which device it is would be a guess."""
    report = refused(run, SOURCE.format("pass", "cuda()"), memory=memory, both=both)
    assert "both use" not in summary(report) and GENERAL in advice(report)


def test_another_error_of_ranks_on_one_device_is_not_of_the_device(run: Path) -> None:
    """The look-alike: gloo and tests run so."""
    report = refused(run, SOURCE.format("pass", "cuda()"), message="NCCL error: unhandled system error")
    assert "both use" not in summary(report) and "set_device" not in advice(report)
