"""Ranks that all send, or all receive, and wait for each other in that: the headline has the reason, and the lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

STRIP = """def exchange(self, up, down):
    if down is not None:
        dist.send(self.last, dst=down)
    if up is not None:
        dist.send(self.first, dst=up)
    if up is not None:
        dist.recv(self.above, src=up)
    if down is not None:
        dist.recv(self.below, src=down)
"""
MIX = """def mix(mine, peers):
    for peer in peers:
        theirs = torch.empty_like(mine)
        dist.send(mine, peer)
        dist.recv(theirs, peer)
"""
BY_FUNCTIONS = """def push(x, to):
    dist.send(x, to)
def pull(x, of):
    work = dist.irecv(x, of)
    work.wait()
def swap(x, y, peer):
    push(x, peer)
    pull(y, peer)
"""
TAKES = """def swap(x, y, peer):
    dist.recv(x, peer)
    dist.send(y, peer)
"""
PARITY = """def swap(x, y, peer, even):
    if even:
        dist.send(x, peer)
    else:
        dist.recv(y, peer)
    if not even:
        return
    dist.barrier()
"""
TWO = """def swap(x, y, z, peer):
    dist.send(x, peer)
    dist.recv(y, peer)
    dist.recv(z, peer)
"""
Way = Sequence[tuple[str, int]]  # functions of the program and their lines, the innermost first


def reported(run: Path, source: str, ways: Sequence[Way], op: str = "send", numbers: Sequence[int] = ()) -> str:
    """The headline, and what to do: each rank is in a message with the next one, below its way."""
    program = str(program_in(run, source))
    count = len(ways)
    job = Ranks(count)
    for rank, way in enumerate(ways):
        box, stack = job.boxes[rank], [(function, program, line) for function, line in way]
        inside: Frame = (op, f"{TORCH}/distributed/distributed_c10d.py", 2500)
        for number in range(1, (numbers[rank] if numbers else 1) + 1):
            open_ = number == (numbers[rank] if numbers else 1)
            box.collective(
                "recv_" if op == "recv" else op,
                group=job.groups[rank]["0"],
                by=box.site(inside, stack[0]),
                sizes=[4],
                nbytes=16,
                state="started" if open_ else "completed",
                reduce_op=-1,
                sequence_nr=number,
                peer=(rank + 1) % count,
                tag=0,
                flags=1,
            )
        box.at(7000 + rank).exception("RuntimeError", "Timed out", [inside, *stack]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    report = build_report(job.job(run))
    return f"{summary(report)} | {advice(report)}"


def test_each_rank_of_two_sends_and_the_line_of_its_recv_is_named(run: Path) -> None:
    """The one of the same peer, of the two behind the send."""
    words = reported(run, STRIP, [[("exchange", 3)], [("exchange", 5)]])
    assert words.startswith(
        "Ranks 0 and 1 wait for each other, each in send() to the other, and neither has reached its recv(): rank 0 at "
        "program.py:3 in exchange, before the recv() of line 9; rank 1 at program.py:5 in exchange, before the recv() "
        "of line 7."
    )
    assert "Let one of two neighbours receive first" in words


def test_line_that_all_ranks_are_at_is_said_once(run: Path) -> None:
    """As is that of the recv() behind it."""
    words = reported(run, MIX, [[("mix", 4)], [("mix", 4)]])
    assert words.startswith(
        "Ranks 0 and 1 wait for each other, each in send() to the other at program.py:4 in mix, and neither has "
        "reached its recv() of line 5."
    )


def test_longer_ring_has_its_way(run: Path) -> None:
    """Each rank sends to the next one."""
    words = reported(run, MIX, [[("mix", 4)]] * 3)
    assert words.startswith(
        "Ranks 0-2 wait for each other in a cycle (0 -> 1 -> 2 -> 0), each in send() to the next at program.py:4 in "
        "mix, and none has reached its recv() of line 5."
    )


def test_line_of_a_function_that_is_called_behind_is_found(run: Path) -> None:
    """The send has a function of its own."""
    words = reported(run, BY_FUNCTIONS, [[("push", 2), ("swap", 7)]] * 2)
    assert "each in send() to the other at program.py:2 in push, and neither has reached its recv() of line 4." in words


def test_both_receive_first(run: Path) -> None:
    """Neither has sent."""
    words = reported(run, TAKES, [[("swap", 2)]] * 2, "recv")
    assert words.startswith(
        "Ranks 0 and 1 wait for each other, each in recv() from the other at program.py:2 in swap, and neither has "
        "reached its send() of line 3."
    )
    assert "All of them receive, and none sends" in words


@pytest.mark.parametrize(("source", "at"), [(PARITY, 3), (TWO, 2)])
def test_no_recv_is_named_that_does_not_follow_or_is_one_of_several(source: str, at: int, run: Path) -> None:
    """It is in the other branch; or there are two for that peer. That none was called is recorded all the same."""
    words = reported(run, source, [[("swap", at)]] * 2)
    assert f"at program.py:{at} in swap, and neither has called recv() for that." in words


def test_work_that_is_waited_for_later_is_no_blocking_send(run: Path) -> None:
    """The look-alike: isend() has returned, and the rank is in its wait()."""
    words = reported(run, MIX.replace("dist.send(", "work = dist.isend("), [[("mix", 4)]] * 2)
    assert "in a cycle (0 -> 1 -> 0)" in words
    assert "each in send()" not in words


def test_ranks_that_receive_other_numbers_of_messages_are_told_with_the_numbers(run: Path) -> None:
    """The look-alike: one of them may have left out an answer."""
    words = reported(run, TAKES, [[("swap", 2)]] * 2, "recv", numbers=[1, 2])
    assert "each in recv()" not in words


LATER = """def swap(x, y, peer):
    dist.recv(y, peer)
    dist.send(x, peer)
def finish(z, boss):
    dist.recv(z, boss)
def run(x, y, z, peer):
    swap(x, y, peer)
    finish(z, 0)
"""


def test_other_half_that_came_before_is_not_looked_for_in_what_follows(run: Path) -> None:
    """It has received already: the recv() of a later phase is not its own."""
    words = reported(run, LATER, [[("swap", 3), ("run", 7)]] * 2)
    assert "neither has called recv() for that." in words and "line 5" not in words
