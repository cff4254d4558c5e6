"""A process that waits for its workers while it holds the lock, or LMDB's writer, that they wait for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import NativeFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, parent, stopped
from tests.support.synth import Box, Frame

MP = "/usr/lib/python3.11/multiprocessing"
LMDB = "/opt/env/lib/python3.11/site-packages/lmdb/cpython.cpython-311-x86_64-linux-gnu.so"
ENTERS: list[Frame] = [("SemLock.__enter__", f"{MP}/synchronize.py", 95)]
JOINS: list[Frame] = [("Popen.poll", f"{MP}/popen_fork.py", 27)]
WRITES = [("__pthread_mutex_lock_full", s.LIBC), ("mdb_txn_renew0", LMDB), ("mdb09_txn_begin", LMDB)]
WORKS = [("fdatasync", s.LIBC), ("mdb09_txn_commit", LMDB)]
MAIN = """from store import add
def main(workers, lock, other, env):
    {taken}:
        for worker in workers:
            worker.join()
    worker.join()
lock = ctx.Lock()
"""
STORE = """def add(lock, env, rows):
    {taken}:
        rows.append(1)
"""


def read(
    run: Path, ours: str, theirs: str, *others: Sequence[Frame], line: int = 5, native: Sequence[tuple[str, str]] = ()
) -> Report:
    """The parent joins at a line; its worker is at the line that takes the lock, others elsewhere in that file."""
    own, store = run / "train.py", run / "store.py"
    own.write_text(MAIN.format(taken=ours))
    store.write_text(STORE.format(taken=theirs))
    for path in (own, store):
        os.utime(path, (0, 0))
    first = stopped(parent(), [*JOINS, ("main", str(own), line)])
    enters = [] if native else ENTERS
    workers = [stopped(Box(pid=102, ppid=101), [*enters, ("add", str(store), 2), ("run", f"{MP}/process.py", 108)])]
    workers += [
        stopped(Box(pid=103 + n, ppid=101), [(name, file or str(store), at) for name, file, at in frames])
        for n, frames in enumerate(others)
    ]
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, first, *workers)
    frames = tuple(NativeFrame(n, image, n, None, "unwound", name) for n, (name, image) in enumerate(native))
    changed = []
    for item in job.processes:
        end = item.snapshot.ending
        if native and item.snapshot.pid == 102 and end is not None:
            item = replace(item, snapshot=replace(item.snapshot, ending=replace(end, native_stack=frames)))
        changed.append(item)
    return build_report(replace(job, processes=tuple(changed)))


def test_parent_that_joins_inside_of_the_lock_of_its_workers(run: Path) -> None:
    """Where each of them is, and what to release."""
    report = read(run, "with lock", "with lock")
    assert verdict(report) == ("hang", "likely")
    assert summary(report).startswith(
        "Process 101 (train.py) waited for a child process at train.py:5 in main, while it held the lock (`lock`, "
        "line 3); multiprocessing process running add (pid 102) waited for that lock at store.py:2 in add, so neither "
        "side can go on"
    )
    assert "Release `lock` (line 3) before the wait at line 5" in advice(report)


def test_parent_that_joins_inside_of_a_write_transaction(run: Path) -> None:
    """LMDB has one writer, of all processes."""
    report = read(run, "with env.begin(write=True) as txn", "with env.begin(write=True) as txn", native=WRITES)
    assert verdict(report) == ("hang", "likely")
    assert "while it held LMDB's only write transaction (`env.begin(write=True)`, line 3)" in summary(report)
    assert "waited to begin one at store.py:2 in add" in summary(report)
    assert "End the write transaction of line 3 before the wait at line 5" in advice(report)


@pytest.mark.parametrize(
    ("ours", "theirs", "line", "native"),
    [
        ("with other", "with lock", 5, ()),
        ("with lock", "with lock", 6, ()),
        ("with env.begin() as txn", "with env.begin(write=True) as txn", 5, WRITES),
        ("with env.begin(write=True) as txn", "with env.begin(write=True) as txn", 5, WORKS),
        ("with env.begin(write=True) as txn", "with env.begin(write=True) as txn", 6, WRITES),
    ],
)
def test_parent_that_does_not_hold_it_is_not_to_blame(
    ours: str, theirs: str, line: int, native: Sequence[tuple[str, str]], run: Path
) -> None:
    """Another lock, a wait behind it, a transaction that only reads, and a worker that is the writer."""
    assert "while it held" not in summary(read(run, ours, theirs, line=line, native=native))


@pytest.mark.parametrize("line", [3, 1])
def test_worker_that_holds_it_or_works_may_go_on(line: int, run: Path) -> None:
    """The look-alikes: another worker is inside of the lock, or does something else."""
    report = read(run, "with lock", "with lock", [("add", "", line)])
    assert "while it held" not in summary(report)
