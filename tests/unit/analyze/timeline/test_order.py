"""Clocks of several hosts, bounded by collectives; ranks that were absent where others waited."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest

from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.deaths.order import find_deaths
from pytracer.analyze.timeline.clock import RunClock
from pytracer.analyze.timeline.order import WALL_ERROR_NS, absences
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job
from tests.support.synth import MS, Box, write_run

SECOND = 1000 * MS


def host_box(number: int, *, clock_ns: int = 0, pid: int | None = None, rank: int | None = None, size: int = 2) -> Box:
    """A rank's recording on its own host, whose monotonic clock is `clock_ns` ahead while its wall clock is not."""
    return Box(
        pid=pid or 101 + number, ppid=1, rank=number if rank is None else rank, world_size=size, host=f"node{number}",
        boot_id=f"b0075f00-0000-4000-8000-{number:012d}", created_ns=5 * SECOND + clock_ns,
    )  # fmt: skip


def meet(box: Box, came_ms: float, done_ms: float, number: int, op: str = "all_reduce", group: str = "0") -> Box:
    """A completed collective between two moments, in ms after the recording was made."""
    gid = box.group_seen(group)
    box.at(came_ms).collective(f"gloo:{op}", sequence_nr=number, state="completed", group=gid)
    slot = bytearray(box.collectives[-1])
    slot[40:48] = (box.created_ns + int(done_ms * MS)).to_bytes(8, "little")
    box.collectives[-1] = bytes(slot)
    box.now = box.created_ns + int(done_ms * MS)
    return box


def load(run: Path, *boxes: Box) -> Job:
    return load_job(write_run(run, *boxes), symbols=False)


def test_collectives_bound_the_offset_of_another_host(tmp_path: Path) -> None:
    """Its wall clock does not show the 30 s by which its monotonic clock is ahead."""
    ahead = 30 * SECOND
    job = load(
        tmp_path,
        meet(meet(host_box(0), 1000, 1012, 1), 2000, 2002, 2),
        meet(meet(host_box(1, clock_ns=ahead), 1005, 1011, 1), 2001, 2003, 2),
    )
    clock = RunClock(job)
    near, far = (process.snapshot for process in job.processes)
    assert (clock.of(near).host.how, clock.of(far).host.how) == ("same clock", "collectives")
    assert abs(clock.of(far).host.offset_ns + ahead) <= clock.of(far).error_ns < 4 * MS


@pytest.mark.parametrize("op", ["broadcast", "reduce", "send"])
def test_an_operation_that_some_finish_early_proves_nothing(op: str, tmp_path: Path) -> None:
    """The root of a broadcast is done before others have entered."""
    job = load(tmp_path, meet(host_box(0), 1000, 1002, 1, op), meet(host_box(1), 1900, 1902, 1, op))
    clock = RunClock(job)
    assert {clock.of(process.snapshot).error_ns for process in job.processes} == {0, WALL_ERROR_NS}


def test_bounds_that_contradict_each_other_are_not_used(tmp_path: Path) -> None:
    """Two jobs in one directory may use one group name and one number; the wall clock is used then."""
    one = meet(meet(host_box(0), 1000, 1002, 1), 2000, 2002, 2)
    two = meet(meet(host_box(1), 1000, 1002, 1), 2500, 2502, 2)
    clock = RunClock(job := load(tmp_path, one, two))
    assert {clock.of(process.snapshot).host.how for process in job.processes} == {"same clock", "wall clock"}


def test_a_clock_that_jumped_leaves_the_others_comparable(tmp_path: Path) -> None:
    boxes = [
        meet(meet(host_box(n), 1000, 1002, 1), 2500 if n == 2 else 2000, 2502 if n == 2 else 2002, 2) for n in range(4)
    ]
    clock = RunClock(job := load(tmp_path, *boxes))
    how = {process.rank: clock.of(process.snapshot).host.how for process in job.processes}
    assert how == {0: "same clock", 1: "collectives", 2: "wall clock", 3: "collectives"}


def test_doubt_grows_with_the_time_since_the_last_proof(tmp_path: Path) -> None:
    """A clock may be slewed by 500 ppm: 50 ms in 100 s."""
    found = []
    for name, later in (("soon", 2000), ("late", 102_000)):
        boxes = [meet(host_box(n), 1000, 1001, 1) for n in (0, 1)]
        meet(boxes[0], later, later + 1, 2, "all_reduce", "only here")
        clock = RunClock(job := load(tmp_path / name, *boxes))
        found.append(max(clock.of(process.snapshot).error_ns for process in job.processes))
    assert found[0] < 3 * MS < 20 * MS < found[1]


def simulated(directory: Path, seed: int) -> tuple[Job, dict[int, int], dict[int, int]]:
    """A job on several hosts whose clock errors only the test knows; and the true times of the deaths."""
    chance = random.Random(seed)
    hosts, per_host, rounds = chance.randint(2, 4), chance.randint(1, 2), chance.randint(1, 6)
    clocks = [0] + [chance.randint(-3, 3000) * SECOND for _ in range(hosts - 1)]
    boxes = {}
    for rank in range(hosts * per_host):
        host = rank // per_host
        box = host_box(host, clock_ns=clocks[host], pid=101 + rank, rank=rank, size=hosts * per_host)
        boxes[rank] = box
    now = 100.0
    for number in range(1, rounds + 1):
        groups = [("0", list(boxes))] if chance.random() < 0.6 else [(f"pair{number}", chance.sample(list(boxes), 2))]
        for group, ranks in groups:
            came = {rank: now + chance.uniform(0, 400) for rank in ranks}
            for rank in ranks:
                meet(boxes[rank], came[rank], max(came.values()) + chance.uniform(0.1, 30), number, "all_reduce", group)
        now += 1000
    died = {}
    for rank, box in boxes.items():
        at = now + chance.uniform(0, 600)
        died[box.pid] = int(at * MS)
        box.at(at).exception("ValueError", f"rank {rank}").exit(1)
    job = load(directory, *boxes.values())
    return job, {box.pid: -clocks[rank // per_host] for rank, box in boxes.items()}, died


@pytest.mark.parametrize("seed", range(40))
def test_order_is_sound_and_has_no_contradiction(seed: int, tmp_path: Path) -> None:
    """Offsets are within their errors; "surely before" agrees with the true order, is antisymmetric and transitive."""
    job, offsets, died = simulated(tmp_path, seed)
    clock = RunClock(job)
    base = next(offset for pid, offset in offsets.items() if clock.boot_id == boot_of(job, pid))
    for process in job.processes:
        host = clock.of(process.snapshot).host
        if host.how == "collectives":
            assert abs(host.offset_ns - (offsets[process.snapshot.pid] - base)) <= host.error_ns
    if any(clock.of(process.snapshot).host.how == "wall clock" for process in job.processes):
        return  # no collective connects all hosts of this job, and their wall clocks are wrong: no order to check
    deaths = find_deaths([build_view(i, process, clock) for i, process in enumerate(job.processes)])
    assert len(deaths) == len(died)
    for a, b in permutations(deaths, 2):
        if a.surely_before(b):
            assert died[a.view.process.snapshot.pid] <= died[b.view.process.snapshot.pid] + MS
            assert not b.surely_before(a)
            assert all(a.surely_before(c) for c in deaths if b.surely_before(c))
    first = min(deaths, key=lambda death: died[death.view.process.snapshot.pid])
    assert first.primary is not False


def boot_of(job: Job, pid: int) -> str:
    return next(process.snapshot.boot_id for process in job.processes if process.snapshot.pid == pid)


# Absences


def waiting_in(box: Box, number: int, group: str = "0", state: str = "started", op: str = "all_reduce") -> Box:
    return box.collective(f"gloo:{op}", sequence_nr=number, state=state, group=box.group_seen(group))


def absent_ranks(run: Path, *boxes: Box) -> list[tuple[str, int, list[int | None]]]:
    job = load(run, *boxes)
    found = absences(enumerate(job.processes))
    return [(a.group, a.sequence_nr, [job.processes[i].rank for i in a.absent]) for a in found]


def ranks(count: int) -> list[Box]:
    return [Box(pid=101 + n, ppid=1, rank=n, world_size=count) for n in range(count)]


def test_who_never_came_is_absent(tmp_path: Path) -> None:
    """Two ranks wait in number 2; the third one completed number 1 and did not call it."""
    a, b, c = (waiting_in(box, 1, state="completed") for box in ranks(3))
    assert absent_ranks(tmp_path, waiting_in(a, 2), waiting_in(b, 2, state="failed"), c) == [("0", 2, [2])]


def test_who_waits_elsewhere_is_not_absent_itself(tmp_path: Path) -> None:
    """Rank 1 is held up in another group by rank 2: the wait ends there."""
    a, b, c = (waiting_in(waiting_in(box, 1, state="completed"), 1, "other", "completed") for box in ranks(3))
    found = absent_ranks(tmp_path, waiting_in(a, 2), waiting_in(b, 2, "other"), c)
    assert found == [("0", 2, [2]), ("other", 2, [2])]


def test_nobody_is_absent_where_all_came_or_nothing_was_recorded(tmp_path: Path) -> None:
    """A recording without any collective of the group proves nothing."""
    a, b, c = ranks(3)
    assert absent_ranks(tmp_path / "all", *(waiting_in(box, 1) for box in ranks(2))) == []
    assert absent_ranks(tmp_path / "none", waiting_in(a, 1), waiting_in(b, 1), c) == []
    done = [waiting_in(box, 1, state="completed") for box in ranks(2)]
    assert absent_ranks(tmp_path / "ahead", waiting_in(done[0], 2, state="completed"), done[1]) == []
