"""A rank waits in a collective, the other one in a message: it left out a loop over what it had not filled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import finding
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

Way = Sequence[tuple[str, int]]  # functions and their lines, the innermost first

TRACKED = """\
TABLE = {}
def note(name, value):
    TABLE[name] = value
def reduce_all():
    for name in sorted(TABLE):
        dist.all_reduce(TABLE[name])
def exchange(rank):
    dist.send(x, 1 - rank)
class Expert(Layer):
    def forward(self, x):
        note("aux", x)
def main():
    pass
    for step in range(9):
        exchange(rank)
        reduce_all()
main()
"""
IN_LOOP: Way = [("reduce_all", 6), ("main", 16), ("<module>", 17)]
IN_SEND: Way = [("exchange", 8), ("main", 15), ("<module>", 17)]
WHILE = TRACKED.replace("for name in sorted(TABLE):", "while len(TABLE) > 0:")
BELOW_IF = TRACKED.replace("for name in sorted(TABLE):", "if TABLE:")
GUARDED = TRACKED.replace("    for name in sorted(TABLE):\n        dist", "    if not TABLE:\n        return\n    dist")
OF_CLASS = TRACKED.replace("TABLE", "Hub.table").replace("Hub.table = {}", "from hub import Hub")
NOT_YET = TRACKED.replace("    TABLE[name] = value", "    if name not in TABLE: TABLE[name] = value")
IN_GUARDED: Way = [("reduce_all", 7), ("main", 17), ("<module>", 18)]
BEHIND_GUARD: Way = [("exchange", 9), ("main", 16), ("<module>", 18)]


def cycle(
    run: Path, source: str, ways: tuple[Way, Way] = (IN_LOOP, IN_SEND), before: tuple[int, int] = (0, 0)
) -> tuple[str, str]:
    """The headline and the advice. Rank 0 in its collective, rank 1 in a send; `before`: calls from that line."""
    program, job = str(program_in(run, source)), Ranks(2)
    for rank, way in enumerate(ways):
        box, name = job.boxes[rank], ("send", "all_reduce")[rank == 0]
        in_torch: Frame = (name, f"{TORCH}/distributed/distributed_c10d.py", 3252)
        own: list[Frame] = [(function, program, line) for function, line in way]
        group = job.groups[rank]["0"]
        first: Frame = (ways[0][0][0], program, ways[0][0][1])
        for number in range(1, before[rank] + 1):
            box.collective(
                "allreduce_",
                group=group,
                by=box.site(in_torch, first),
                sequence_nr=number,
                state="completed",
                sizes=[1],
                nbytes=4,
            )
        by = box.site(in_torch, own[0])
        if rank == 0:
            box.collective(
                "allreduce_", group=group, by=by, sequence_nr=before[0] + 1, state="started", sizes=[1], nbytes=4
            )
        else:
            box.collective(
                "send", group=group, by=by, sequence_nr=1, state="started", peer=0, tag=0, flags=1, sizes=[1], nbytes=4
            )
        box.at(7000).exception("RuntimeError", TIME_OUT, [in_torch, *own]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    found = finding(build_report(job.job(run)), "point-to-point-unmatched")
    assert found is not None
    return found.summary or "", found.advice or ""


@pytest.mark.parametrize("source", [TRACKED, WHILE, BELOW_IF, OF_CLASS, NOT_YET])
def test_loop_over_what_each_rank_fills_is_named(source: str, run: Path) -> None:
    summary, advice = cycle(run, source)
    held = "Hub.table" if source is OF_CLASS else "TABLE"
    assert "; rank 1 has never called that all_reduce, which line 5 (`" in summary
    assert f"leaves out where `{held}` is empty" in summary
    assert advice.startswith(f"See whether `{held}` is empty on rank 1")
    assert f"Each rank fills `{held}` for itself (line 3 in note)" in advice
    assert "compare how often" not in advice


def test_condition_that_leaves_where_it_is_empty_is_named(run: Path) -> None:
    summary, _ = cycle(run, GUARDED, (IN_GUARDED, BEHIND_GUARD))
    assert "which line 5 (`if not TABLE:`) leaves out where `TABLE` is empty" in summary


COMMON = TRACKED.replace("    pass\n", "    note('aux', zeros)\n")
OF_MODULE = TRACKED.replace("TABLE = {}\n", "TABLE = {}; TABLE['aux'] = zeros\n")
NOT_EMPTY = TRACKED.replace("TABLE = {}\n", "TABLE = {'aux': zeros}\n")
OTHER = TRACKED.replace("for name in sorted(TABLE):", "for name in range(int(limit)):")
UNFILLED = TRACKED.replace("    TABLE[name] = value", "    return None")
AROUND = TRACKED.replace("for step in range(9):", "for name in TABLE:").replace(
    "for name in sorted(TABLE):", "with on:"
)


@pytest.mark.parametrize("source", [COMMON, OF_MODULE, NOT_EMPTY, OTHER, UNFILLED, AROUND])
def test_other_loops_are_not(source: str, run: Path) -> None:
    """Filled on the way of both ranks, never empty, other rounds, no line that fills it, around both calls."""
    summary, advice = cycle(run, source)
    assert "has never called" not in summary
    assert "Rank 0 has called the all_reduce of line 6 1 time, rank 1 never: either rank 1 passed it by" in advice


def test_rank_that_has_called_it_before_is_not_said_to_have_nothing_there(run: Path) -> None:
    """It may as well send a message more in this round: both are told."""
    summary, advice = cycle(run, TRACKED, before=(2, 2))
    assert "has never called" not in summary
    assert "3 times, rank 1 2 times: either rank 1 passed it by and is in the next round at line 8" in advice
    assert "or a round has a message more on one side" in advice
