"""A file that a rank gave up to look for, as its path is another one on the rank that writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, summary
from tests.support.scenarios import program_in

TRIES = """\
import os, time, random, tempfile
def wait(path, tries):
    for _ in range(tries):
        if os.path.exists(path):
            return
        time.sleep(1)
    raise TimeoutError(path)
def main(rank):
    root = {root}
    path = os.path.join(root, "done")
    {does}
    if rank == 0:
        save(path)
    else:
        wait(path, 20)
main(1)
"""
LIMIT = TRIES.replace(
    """\
    for _ in range(tries):
        if os.path.exists(path):
            return
        time.sleep(1)
    raise TimeoutError(path)
""",
    """\
    end = time.time() + tries
    while not os.path.exists(path):
        time.sleep(1)
        if time.time() > end:
            raise TimeoutError(path)
""",
)


def gave_up(run: Path, source: str, *, everybody: bool = False) -> Report:
    """Rank 1; or both."""
    program = str(program_in(run, source))
    job = Ranks(2)
    job.everybody(call())
    stack = [("wait", program, 7), ("main", program, 15), ("<module>", program, 16)]
    for rank in (0, 1) if everybody else (1,):
        job.boxes[rank].at(7000).exception("TimeoutError", "/tmp/x/done", stack).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


@pytest.mark.parametrize("source", [TRIES, LIMIT])
@pytest.mark.parametrize(
    ("root", "reason"),
    [
        ("tempfile.mkdtemp()", "line 9 (`tempfile.mkdtemp`) gives each process another one"),
        (
            "f'/data/{random.random()}'",
            "line 9 (`random.random`) draws on each rank for itself",
        ),
    ],
)
def test_path_that_each_rank_has_for_itself_is_told(source: str, root: str, reason: str, run: Path) -> None:
    """The loop has its limit already."""
    report = gave_up(run, source.format(root=root, does="pass"))
    assert f"in wait: each rank has a path of its own, as {reason}" in summary(report)
    assert advice(report).startswith(
        "If another rank is to write what each looks for, make `path` the same path on all"
    )
    assert "Give the loop a limit" not in advice(report)


@pytest.mark.parametrize(
    ("root", "does", "everybody"),
    [
        ("'/data'", "pass", False),
        ("os.environ['ROOT']", "pass", False),
        ("tempfile.mkdtemp()", "Thread(target=write, args=(path,)).start()", False),  # the rank's own writer
        ("tempfile.mkdtemp()", "subprocess.run(['write', path])", False),
        ("tempfile.mkdtemp()", "store.set('root', root)", False),  # the others know it
        ("tempfile.mkdtemp()", "pass", True),
    ],
)
def test_path_that_somebody_may_know_is_not_told(root: str, does: str, everybody: bool, run: Path) -> None:
    """The look-alikes."""
    assert "a path of its own" not in summary(gave_up(run, TRIES.format(root=root, does=does), everybody=everybody))


def test_check_without_a_loop_is_not_told(run: Path) -> None:
    """The look-alike: nobody waits."""
    source = TRIES.replace("for _ in range(tries):", "if tries:").replace("time.sleep(1)", "pass")
    assert "a path of its own" not in summary(gave_up(run, source.format(root="tempfile.mkdtemp()", does="pass")))
