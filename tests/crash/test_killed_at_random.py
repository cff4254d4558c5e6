"""SIGKILL leaves no time to close the recording: it must be readable at every moment."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Snapshot
from tests.conditions import needs_core, needs_native
from tests.support.crash import Ended, victim

pytestmark = [needs_core, needs_native]

CHILDREN = 20


@pytest.fixture(scope="module")
def killed(runs: Callable[[], Path]) -> Ended:
    """Children that were killed at seeded random moments."""
    seed = str(random.SystemRandom().randrange(1 << 30))
    done = victim("killed_at_random.py", seed, str(CHILDREN), run=runs())
    assert done.status == 0, (seed, done.stderr)
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["-9"] * CHILDREN, seed
    return done


@pytest.fixture(scope="module")
def boxes(killed: Ended) -> list[Snapshot]:
    """Their recordings. One that was killed inside fork() may have none."""
    pids = {int(line.split()[0]) for line in killed.stdout.splitlines()}
    found = [box for box in killed.boxes if box.pid in pids]
    assert len(found) >= CHILDREN // 2
    return found


def test_boxes_are_whole(boxes: list[Snapshot]) -> None:
    """No damage, and at most one torn item, since one thread wrote."""
    for box in boxes:
        torn = ("torn_records", "torn_entries", "torn_graves", "busy_slots", "storages_being_freed")
        assert box.damage == ()
        assert sum(box.counts[name] for name in torn) <= 1, box.counts
        assert box.crash is None
        assert box.state in ("RECORDING", "STARTING")


def test_storages_are_plausible(boxes: list[Snapshot]) -> None:
    """The program keeps at most some fifty storages: so many are live, with the sizes that it requests."""
    sizes = {4, 8, *(4 * size for size in (100, 1000, 10_000, 100_000))}
    busy = 0
    for box in boxes:
        own = [s for s in box.storages if s.state == "live"]
        assert len(own) <= 60
        assert {s.nbytes for s in box.storages} <= sizes
        bases = sorted((s.base, s.base + s.nbytes) for s in own)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(bases)), "live storages overlap"
        busy += len(own) > 10
    assert busy >= CHILDREN // 4


def test_deaths_are_known_from_the_parent(killed: Ended, boxes: list[Snapshot]) -> None:
    """SIGKILL cannot be caught, but the parent records it: each death has its signal, and none is called a crash."""
    pids = {box.pid for box in boxes}
    report = killed.report
    for process in report.processes or ():
        if process.pid in pids:
            assert process.status is not None and process.status.signal == 9
            assert process.status.reported_by == "black-box"
    for damage in report.damage or ():
        assert "was killed while it made this black box" in (damage.what or "") or "empty" in (damage.what or "")
