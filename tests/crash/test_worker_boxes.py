"""Recordings of DataLoader workers: small after a normal exit, complete after a crash."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pytracer.decode.recording.reader import read_box
from tests.conditions import needs_core, needs_native
from tests.support.crash import Ended, victim

pytestmark = [needs_core, needs_native]

PROGRAM = "loader_epochs.py"
SMALL_BYTES, WHOLE_BYTES = 128 << 10, 7 << 20


def sizes(done: Ended) -> dict[int, int]:
    """Bytes on disk of each recording, by pid."""
    return {read_box(path).pid: path.stat().st_blocks * 512 for path in (done.run / "boxes").glob("*.blackbox")}


@pytest.mark.parametrize(
    ("method", "way"),
    [
        ("fork", "preload"),
        pytest.param("spawn", "preload", marks=pytest.mark.slow),
        pytest.param("fork", "enable", marks=pytest.mark.slow),
    ],
)
def test_worker_that_ends_well_gives_its_disk_blocks_back(method: str, way: str, run: Path) -> None:
    """The rest has its identity, its exit and its last samples; the trainer's recording stays complete."""
    done = victim(PROGRAM, method, run=run, way=way)
    assert done.status == 0, done.stderr
    workers = [box for box in done.boxes if box.worker is not None]
    assert len(workers) == 6
    on_disk = sizes(done)
    for box in workers:
        assert (box.state, box.exit_code, box.ppid, box.damage) == ("EXITING", 0, done.pid, ())
        assert box.worker is not None and box.worker.batch_indices is not None
        assert on_disk[box.pid] <= SMALL_BYTES
    assert on_disk[done.pid] >= WHOLE_BYTES
    assert done.report.verdict is not None and done.report.verdict.class_ == "clean"


def test_worker_that_dies_keeps_its_whole_box(run: Path) -> None:
    """Killed while it loads a sample; the workers of earlier epochs exited normally."""
    done = victim(PROGRAM, "fork", "kill", run=run)
    assert done.status == 1
    killed = [wait.pid for wait in done.box.waits if wait.signal == signal.SIGKILL]
    assert len(killed) == 1
    on_disk = sizes(done)
    assert on_disk[killed[0]] >= WHOLE_BYTES
    assert sum(nbytes <= SMALL_BYTES for nbytes in on_disk.values()) >= 4
    verdict = done.report.verdict
    assert verdict is not None and verdict.pid == killed[0]
