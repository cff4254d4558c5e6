"""python-exception: what another process did meanwhile, beside its message: it ran on, or had ended well."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary
from tests.support.standing import parent
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
ASKS: list[Frame] = [
    ("Client", f"{LIB}/connection.py", 518),
    ("DupFd.detach", f"{LIB}/resource_sharer.py", 57),
    ("rebuild_storage_fd", f"{s.TORCH}/multiprocessing/reductions.py", 538),
    ("Queue.get", f"{LIB}/queues.py", 122),
]
SENDS: list[Frame] = [
    ("Connection._send", f"{LIB}/connection.py", 368),
    ("Connection.send", f"{LIB}/connection.py", 206),
]
CLEANED = """def clean():
    for name in os.listdir(SCRATCH):
        shutil.rmtree(os.path.join(SCRATCH, name))
def main(q):
    p = mp.Process(target=sampler, args=(q,))
    p.start()
    clean()
    return q.get()
"""
LIMITED = """def main(kids):
    for kid in kids:
        kid.join(timeout=2)
        if kid.exitcode < 0:
            raise RuntimeError("killed")
"""
TOLD = """def worker(remote):
    while True:
        cmd, data = remote.recv()
        if cmd == "close":
            break
        remote.send(step(data))
def close(pipes):
    for p in pipes:
        p.send(("close", None))
def main(pipes):
    for p in pipes:
        p.send(("step", None))
"""


def raised(
    run: Path, source: str, line: int, error: tuple[str, str], below: list[Frame], *, end: int | None, code: int = 0
) -> Report:
    """By the main process at 2.000 s, whose only child ends at a time, or goes on."""
    script = str(s.program_in(run, source))
    child = Box(pid=102, ppid=101).at(100).doing("name", "multiprocessing process Process-1")
    child = child.at(end).exit(code) if end is not None else child
    main = parent().at(2_000).exception(*error, [*below, ("main", script, line)])
    return build_report(s.load(run, main.at(2_600).exit(1), child))


GONE = ("FileNotFoundError", "[Errno 2] No such file or directory")
NONE = ("TypeError", "'<' not supported between instances of 'NoneType' and 'int'")
BROKEN = ("BrokenPipeError", "[Errno 32] Broken pipe")


def test_socket_of_a_sender_that_ran_on_was_removed(run: Path) -> None:
    """It is not said to have ended, by the known crash neither; the line that removes files is named."""
    report = raised(run, CLEANED, 8, GONE, ASKS, end=2_500)
    assert "is gone, though multiprocessing process Process-1 (pid 102) still ran" in summary(report)
    assert "line 3 (`shutil.rmtree(" in advice(report)
    assert "had ended" not in summary(report) + advice(report)


def test_sender_that_had_ended_is_why_its_socket_is_gone(run: Path) -> None:
    """Whatever the program removes."""
    assert "still ran" not in summary(raised(run, CLEANED, 8, GONE, ASKS, end=1_500))


def test_status_of_a_child_that_still_ran(run: Path) -> None:
    """None is no failure; a join() with a time limit is over before."""
    report = raised(run, LIMITED, 4, NONE, [], end=2_500)
    assert "`kid.exitcode` is None until that process has ended, and multiprocessing process Process-1" in summary(
        report
    )
    assert "Line 3 (`kid.join(timeout=2)`) returns when its time is over, too." in advice(report)


def test_status_of_a_child_that_had_ended_is_another_matter(run: Path) -> None:
    assert "still ran" not in summary(raised(run, LIMITED, 4, NONE, [], end=1_500))


@pytest.mark.parametrize(
    "source",
    [
        "def main():\n    other.start()\n    kid = mp.Process(target=work)\n    return kid.exitcode < 0\n",
        "class Job:\n    exitcode = None\ndef main(kid): return max(kid.exitcode, 0) + kid.size < 0\n\n",
        "class Job:\n    def __init__(self): self.exitcode = None\n\ndef main(kid): return kid.exitcode < 0\n",
    ],
    ids=["never started", "another operand", "of the program"],
)
def test_status_that_is_not_of_a_running_child(source: str, run: Path) -> None:
    """While some child runs."""
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "return" in text)
    assert "is None until" not in summary(raised(run, source, line, NONE, [], end=2_500))


def test_pipe_to_processes_that_had_ended_well(run: Path) -> None:
    """By the message that a line sends, and at which they leave their loop."""
    report = raised(run, TOLD, 12, BROKEN, SENDS, end=1_500)
    assert "Process-1 (pid 102) had ended with status 0 before; line 9 sends 'close', at which they end" in summary(
        report
    )
    assert "see whether line 9 (`p.send(('close', None))`) ran before" in advice(report)


@pytest.mark.parametrize(("end", "code"), [(1_500, 1), (2_500, 0)], ids=["failed", "ran on"])
def test_pipe_to_other_processes(end: int, code: int, run: Path) -> None:
    """These had not left it well before."""
    assert "had ended with status 0" not in summary(raised(run, TOLD, 12, BROKEN, SENDS, end=end, code=code))
