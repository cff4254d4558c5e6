"""Every collective and message of c10d is in the black box, with everything that rules need, on both ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Collective, Job
from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import PROGRAMS
from tests.support.crash import Ended, healthy, new_store, traced_run

pytestmark = [needs_core, needs_native]

PROGRAM = PROGRAMS / "every_collective.py"
X = ((10, 3), "float32")
HALF = ((6,), "float16")


def spawned(function: str, run: Path) -> Job:
    """The job of two ranks that runs one function of the program."""

    def once(directory: Path) -> Ended:
        words = [sys.executable, str(PROGRAM), function, "--spawn", "2", new_store(directory)]
        return traced_run(*words, run=directory)

    done = healthy(lambda: once(run), lambda: once(run.with_name("again")))
    assert done.status == 0, done.stderr
    for process in done.job.processes:
        assert (process.snapshot.counts["hook_errors"], process.snapshot.damage) == (0, ())
    return done.job


def both(job: Job) -> list[tuple[Collective, ...]]:
    """The collectives of rank 0 and of rank 1; all of them completed, in the order of their times."""
    found = [process.snapshot.collectives for process in job.ranks]
    assert len(found) == 2
    for item in (item for collectives in found for item in collectives):
        assert (item.state, item.backend) == ("completed", "gloo")
        assert item.scheduled_ns is not None
        assert item.started_ns is not None
        assert item.completed_ns is not None
        assert item.scheduled_ns <= item.started_ns <= item.completed_ns
    for collectives in found:
        assert [item.number for item in collectives] == list(range(1, len(collectives) + 1))
    return found


def shown(items: tuple[Collective, ...], *names: str) -> list[tuple[Any, ...]]:
    """Some fields of each."""
    return [tuple(getattr(item, name) for name in names) for item in items]


def line_of(text: str) -> int:
    """The number of the one line of the program that holds `text`."""
    (number,) = [n for n, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1) if text in line]
    return number


def test_every_collective_once(run: Path) -> None:
    """Op, number in the group, root, reduce op, sizes and dtype match the call on both ranks."""
    expected = [
        ("all_reduce", None, "sum", *X), ("all_reduce", None, "max", *X), ("broadcast", 1, None, (10, 3), "int64"),
        ("reduce", 1, "min", *X), ("all_gather", None, None, *X), ("all_gather_into_tensor", None, None, *X),
        ("gather", 0, None, *X), ("scatter", 1, None, *X), ("reduce_scatter", None, "sum", (5, 3), "float32"),
        ("reduce_scatter_tensor", None, "product", *X), ("all_to_all_single", None, None, (4,), "float64"),
    ]  # fmt: skip
    for rank, items in enumerate(both(spawned("once", run))):
        assert shown(items, "op", "root", "reduce_op", "sizes", "dtype")[:-1] == expected
        assert items[-1].op == "barrier"
        assert [item.sequence_nr for item in items] == list(range(1, 13))
        assert {(item.group, item.point_to_point, item.peer, item.tag) for item in items} == {("0", False, None, None)}
        by_op = {item.op: item for item in items}
        assert (by_op["all_gather"].numel, by_op["all_gather"].output_numel) == (30, 60)
        assert (by_op["reduce_scatter"].numel, by_op["reduce_scatter"].output_nbytes) == (30, 60)
        assert by_op["gather"].output_numel == (60 if rank == 0 else None)
        assert by_op["scatter"].nbytes == (240 if rank == 1 else 120)
        assert by_op["broadcast"].caller is not None
        assert by_op["broadcast"].caller.line == line_of("dist.broadcast(x.to(torch.int64), src=1)")
        assert {item.caller.function for item in items if item.caller} == {"once"}
        assert {Path(item.caller.file).name for item in items if item.caller} == {PROGRAM.name}


@pytest.mark.slow
def test_messages_are_numbered_by_peer_and_direction(run: Path) -> None:
    """Peer and tag of each; a receive from any rank has no peer."""
    first, second = both(spawned("messages", run))
    names = ("op", "sequence_nr", "peer", "tag", "sizes", "dtype")
    assert shown(first, *names) == [
        ("send", 1, 1, 7, *HALF), ("send", 2, 1, 8, *HALF), ("send", 3, 1, 0, *HALF), ("recv", 1, 1, 0, *HALF),
        ("recv", 1, None, 0, *HALF),
    ]  # fmt: skip
    assert shown(second, *names) == [
        ("recv", 1, 0, 7, *HALF), ("recv", 2, 0, 8, *HALF), ("send", 1, 0, 0, *HALF), ("recv", 3, 0, 0, *HALF),
        ("send", 2, 0, 0, *HALF),
    ]  # fmt: skip
    assert all(item.point_to_point for item in (*first, *second))


@pytest.mark.every_job
def test_groups_count_on_their_own(run: Path) -> None:
    """Each group has its own numbers; roots are ranks in the group; members and description are known."""
    job = spawned("groups", run)
    for rank, items in enumerate(both(job)):
        assert shown(items, "group", "sequence_nr", "op", "root", "async_op") == [
            ("0", 1, "all_reduce", None, False), ("1", 1, "broadcast", 1, False), ("1", 2, "all_reduce", None, True),
            ("0", 2, "all_reduce", None, False),
        ]  # fmt: skip
        world, mirror = job.ranks[rank].snapshot.groups
        assert (world.name, world.backend, world.size, world.own_rank, world.ranks) == ("0", "gloo", 2, rank, (0, 1))
        assert (mirror.name, mirror.description, mirror.own_rank) == ("1", "mirror", 1 - rank)
        assert (mirror.ranks, mirror.index) == ((1, 0), 1)


@pytest.mark.slow
def test_functional_asynchronous_and_inference_mode(run: Path) -> None:
    """However a collective is called, it is recorded once."""
    for items in both(spawned("other_ways", run)):
        assert shown(items, "op", "sizes", "async_op") == [
            ("all_reduce", (4, 2), True), ("all_gather_into_tensor_coalesced", (4, 2), True),
            ("all_reduce", (2,), False), ("all_reduce", (3,), True), ("all_reduce", (5,), True),
            ("all_gather", (1,), False), ("all_gather", items[6].sizes, False), ("monitored_barrier", (0,), False),
        ]  # fmt: skip
        assert [item.sequence_nr for item in items] == list(range(1, 9))
        assert items[0].caller is not None
        assert items[0].caller.function == "other_ways"


@pytest.mark.every_job
def test_collectives_of_ddp(run: Path) -> None:
    """DDP's own broadcasts and all-reduces, with the line of the training that led to them."""
    for items in both(spawned("ddp", run)):
        reduced = [item for item in items if item.op == "all_reduce"]
        assert [(item.reduce_op, item.numel, item.step) for item in reduced] == [("sum", 1348, None)] * 2
        assert {item.caller.line for item in reduced if item.caller} == {line_of("backward()")}
        assert items[0].caller is not None
        assert items[0].caller.function == "classifier"


@pytest.mark.every_job
def test_forked_child_has_none_of_its_parents(run: Path) -> None:
    """The child of a rank starts with no collective; the rank continues counting."""
    job = spawned("forked", run)
    for items in both(job):
        assert [item.sequence_nr for item in items] == [1, 2]
    parents = {process.snapshot.pid for process in job.ranks}
    children = [process for process in job.processes if process.snapshot.ppid in parents]
    assert len(children) == 2
    for child in children:
        assert (child.role, child.snapshot.collectives, child.exit_code) == ("child", (), 0)


@pytest.mark.every_job
def test_ring_keeps_the_last_ones(run: Path) -> None:
    """Of 1500 all-reduces the last 1024 are there, with their numbers."""
    for process in spawned("many", run).ranks:
        assert [item.sequence_nr for item in process.snapshot.collectives] == list(range(1500 - 1024 + 1, 1501))
        assert {item.state for item in process.snapshot.collectives} == {"completed"}
