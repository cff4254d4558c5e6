"""python-exception: a tensor that does not come, since its sender has no file descriptor left."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import parent
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
SERVE: list[Frame] = [
    ("fromfd", "/usr/lib/python3.11/socket.py", 546),
    ("DupFd.__init__.<locals>.send", f"{LIB}/resource_sharer.py", 50),
    ("_ResourceSharer._serve", f"{LIB}/resource_sharer.py", 145),
]
ASKS: list[Frame] = [
    ("recvfds", f"{LIB}/reduction.py", 159),
    ("DupFd.detach", f"{LIB}/resource_sharer.py", 58),
    ("next", f"{s.TORCH}/utils/data/dataloader.py", 1300),
]
PROGRAM = """resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
class Scenes(Dataset):
    def __init__(self):
        self.files = {}
    def __getitem__(self, i):
        self.files[i] = open(str(i))
        return read(self.files[i])
def main():
    for batch in DataLoader(Scenes(), num_workers=2):
        train(batch)
"""
LIMITS = [
    {"name": "limit open files", "value": "128"},
    {"name": "used open files", "value": "127"},
    {"name": "open files like", "value": "112 /data/scene#.jsonl"},
]


def lost(
    run: Path, *, error: str = "[Errno 24] Too many open files", raised: int = 2_010, kind: str = "EOFError"
) -> Report:
    """A worker whose sending thread fails, and the process that waited for its tensor."""
    script = str(s.program_in(run, PROGRAM))
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").entry_of_worker(0, "Scenes")
    worker.at(2_000).exception("OSError", error, SERVE, thread="Thread-1 (_serve)", variables=LIMITS).at(2_500).exit(0)
    main = parent().at(raised).exception(kind, "", [*ASKS, ("main", script, 9)]).at(raised + 600).exit(1)
    return build_report(s.load(run, main, worker))


def test_worker_without_descriptors_is_the_reason(run: Path) -> None:
    report = lost(run)
    assert verdict(report) == ("python-exception", "certain")
    assert "raised EOFError at program.py:9 in main: DataLoader worker 0 (pid 102) had no file descriptor" in summary(
        report
    )
    assert "112 of the 128 file descriptors that it may have (RLIMIT_NOFILE, line 1)" in summary(report)
    assert "line 6 keeps each file in `self.files`" in summary(report)
    assert "set_sharing_strategy() does not help" in advice(report)
    assert "Nothing answers" not in advice(report)


@pytest.mark.parametrize(
    ("error", "raised", "kind"),
    [
        ("[Errno 32] Broken pipe", 2_010, "EOFError"),
        ("[Errno 24] Too many open files", 2_010, "ValueError"),
        ("[Errno 24] Too many open files", 12_010, "EOFError"),
    ],
    ids=["another error", "another exception", "long before"],
)
def test_other_ends_of_the_sender_are_no_lack_of_descriptors(error: str, raised: int, kind: str, run: Path) -> None:
    assert "file descriptor" not in summary(lost(run, error=error, raised=raised, kind=kind))


def test_thread_that_goes_on_after_sys_excepthook_does_not_end_its_process(run: Path) -> None:
    """multiprocessing's thread calls it itself; the process is ended by a signal later."""
    script = str(s.program_in(run, PROGRAM))
    child = Box(pid=102, ppid=101).versions(torch="2.13.0").at(2_000)
    child.exception("OSError", "[Errno 24] Too many open files", SERVE, thread="Thread-1 (_serve)", variables=LIMITS)
    main = parent().at(2_010).exception("EOFError", "", [*ASKS, ("main", script, 9)]).at(2_600).exit(1)
    report = build_report(s.load(run, main.wait(102, signal=15), child))
    assert report.verdict is not None and report.verdict.pid == 101
