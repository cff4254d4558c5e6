"""A receive whose message the other rank left out: a condition around the only send, or a loop that is too short."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import finding
from tests.support.scenarios import PYTHON, TORCH, program_in
from tests.support.standing import EXIT
from tests.support.synth import Frame

Way = Sequence[tuple[str, int]]  # functions and their lines, the innermost first

MINE = """\
def send(rows):
    if len(rows) > 0:
        dist.send(rows, dst=0)

def collect(world):
    for source in range(1, world):
        dist.recv(rows, src=source)

def main(rank):
    if rank == 0:
        collect(dist.get_world_size())
    else:
        send(mined(rank))
    dist.barrier()
main(rank)
"""
RECEIVES: Way = [("collect", 7), ("main", 11), ("<module>", 15)]
MEETS: Way = [("main", 14), ("<module>", 15)]


def cycle(
    run: Path, source: str, receives: Way, meets: Way, *, receiver: int = 0, ranks: int = 2, works: bool = False
) -> tuple[str, str]:
    """The headline and the advice. The receiver waits for a message of the other rank, the others at a barrier.

    `works`: the other rank is in no call of torch.distributed.
    """
    program, job = str(program_in(run, source)), Ranks(ranks)
    for rank in range(ranks):
        way = receives if rank == receiver else meets
        box, name = job.boxes[rank], "recv" if rank == receiver else "barrier"
        in_torch: Frame = (name, f"{TORCH}/distributed/distributed_c10d.py", 3252)
        own: list[Frame] = [(function, program, line) for function, line in way]
        by, group = box.site(in_torch, own[0]), job.groups[rank]["0"]
        sender = 1 if receiver == 0 else 0
        if rank != receiver and works:
            job.terminated(rank)
            box.at(7900).signal_seen(15, 99)
            box.crash(0, code=0, state=EXIT, python=own, native=[(PYTHON, 0x1000)])
            continue
        if rank == receiver:
            box.collective("recv_", group=group, by=by, sequence_nr=1, state="started", peer=sender, tag=0, flags=1,
                           sizes=[1], nbytes=4)  # fmt: skip
        else:
            box.collective("barrier", group=group, by=by, sequence_nr=1, state="started", sizes=[1], nbytes=4)
        box.at(7000).exception("RuntimeError", TIME_OUT, [in_torch, *own]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    report = build_report(job.job(run))
    found = finding(report, "point-to-point-unmatched")
    return (found.summary or "", found.advice or "") if found is not None else ("", "")


def test_condition_around_the_only_send_is_told(run: Path) -> None:
    summary, advice = cycle(run, MINE, RECEIVES, MEETS)
    assert "; the only line that sends to rank 0, line 3 (`dist.send(rows, dst=0)`), is reached only where " in summary
    assert "`len(rows) > 0` (line 2)" in summary
    assert advice.startswith("Let rank 1 send in each round: on the other way of line 2, too")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    if len(rows) > 0:\n", "    if rank > 0:\n"),  # that is how they share the work
        ("dst=0", "dst=1"),
        ("        send(mined(rank))\n", "        dist.send(x, dst=0)\n"),
        ("        send(mined(rank))\n", "        start(dist.P2POp(dist.isend, x, 0))\n"),
    ],
)
def test_send_that_no_condition_leaves_out_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    summary, _ = cycle(run, MINE.replace(old, new), RECEIVES, MEETS)
    assert summary and "the only line that sends" not in summary


def test_sender_that_is_only_slow_has_left_nothing_out(run: Path) -> None:
    """The look-alike: it still makes the rows that it is to send."""
    summary, _ = cycle(run, MINE, RECEIVES, [("mined", 20), ("main", 13), ("<module>", 15)], works=True)
    assert "never sent that message" in summary and "the only line that sends" not in summary


STOPS = """\
def stop(world):
    for worker in range(1, world - 1):
        dist.send(STOP, dst=worker)
    dist.barrier()

def work():
    while True:
        dist.recv(task, src=0)

def main(rank):
    world = dist.get_world_size()
    if rank == 0:
        stop(world)
    else:
        work()
main(rank)
"""
WORKS: Way = [("work", 8), ("main", 15), ("<module>", 16)]
STOPPED: Way = [("stop", 4), ("main", 13), ("<module>", 16)]


def test_loop_that_leaves_out_the_last_rank_is_told(run: Path) -> None:
    summary, advice = cycle(run, STOPS, WORKS, STOPPED, receiver=2, ranks=3)
    assert "; the loop of line 2 (`for worker in range(1, world - 1)`) in stop sends to rank 1 only, of 3 ranks" in (
        summary
    )
    assert advice.startswith("Let the loop of line 2 (`for worker in range(1, world - 1)`) come to rank 2, too")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(1, world - 1)", "range(1, world)"),
        ("range(1, world - 1)", "range(1, count(world))"),  # how many is not known
        ("dst=worker", "dst=others[worker]"),
        ("world = dist.get_world_size()", "world = dist.get_world_size() + 1"),  # another number
    ],
)
def test_loop_that_may_come_to_the_rank_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    summary, _ = cycle(run, STOPS.replace(old, new), WORKS, STOPPED, receiver=2, ranks=3)
    assert summary and "sends to rank" not in summary
