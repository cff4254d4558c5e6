"""DataLoader workers that a signal to the whole process group ended, while their parent had a handler for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary
from tests.support.synth import Box

TERM, TIMEOUT = 15, 70
COMMAND = ("timeout", "12", "python", "train.py")
PROGRAM = """\
import signal
def fit(loader, guard):
    for batch in loader:
        if guard.stop: return save()
signal.signal(signal.SIGTERM, guard.mark)
fit(DataLoader(data, num_workers=2), guard)
"""


def reported(run: Path, *, handled: bool = True, sender: int = TIMEOUT, workers: int = 2) -> Report:
    """Workers 102 and 103 of process 101, each ended by its own raise() of what process 70 had sent to all."""
    program = s.program_in(run, PROGRAM)
    parent = Box(pid=101, ppid=TIMEOUT).at(500).signal_seen(TERM, sender, COMMAND, handled=handled)
    stack = [
        ("_try_get_data", f"{s.TORCH}/utils/data/dataloader.py", 1304),
        ("fit", str(program), 3),
        ("<module>", str(program), 6),
    ]
    parent.at(900).exception("RuntimeError", "DataLoader worker (pid(s) 102) exited unexpectedly", stack).exit(1)
    boxes = []
    for number in range(workers):
        box = Box(pid=102 + number, ppid=101).entry_of_worker(number)
        box.at(510).signal_seen(TERM, TIMEOUT, COMMAND, handled=True)
        boxes.append(box.crash(signal=TERM, code=-6, sender_pid=102 + number))
    return build_report(s.load(run, parent, *boxes))


def test_workers_of_one_parent_are_one_finding_with_its_handler(run: Path) -> None:
    """The line of the handler and of the DataLoader, and who sent it; not the worker's own raise()."""
    report = reported(run)
    assert summary(report) == (
        "DataLoader workers 0 and 1 of process 101 (train.py) were ended by SIGTERM, sent by process 70 (timeout); "
        "process 101 (train.py) received it, too, and has a handler for it (program.py:5, "
        "`signal.signal(signal.SIGTERM, guard.mark)`), but RuntimeError for its dead worker ended it at program.py:3 "
        "in fit."
    )
    assert advice(report).startswith(
        "Let the workers ignore SIGTERM: as the `worker_init_fn` of the DataLoader at program.py:6 pass a function"
    )
    (worker,) = [item for item in report.processes or () if item.pid == 102]
    assert worker.signal is not None
    assert (worker.signal.code, worker.signal.sender_pid) == ("SI_USER", TIMEOUT)


@pytest.mark.parametrize(("handled", "sender"), [(False, TIMEOUT), (True, 9)], ids=["no-handler", "another-sender"])
def test_parent_that_did_not_handle_that_signal_is_not_told_of(handled: bool, sender: int, run: Path) -> None:
    """The look-alikes: it has no handler, or had a signal of another process."""
    report = reported(run, handled=handled, sender=sender, workers=1)
    assert "has a handler for it" not in summary(report)
    assert "worker_init_fn" not in advice(report)
