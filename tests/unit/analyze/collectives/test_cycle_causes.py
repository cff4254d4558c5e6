"""Two ranks that wait for each other in two groups: by a call that one left out, or by the order of the groups."""

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

CHOICE = """\
def sync(states):
    found = {}
    found['target'] = gather(torch.cat(states)) if states else None
    return found
def gather(t):
    return dist.all_gather(parts, t)
def main():
    for epoch in range(3):
        sync(states)
        dist.barrier(group=saving)
main()
"""
AND = CHOICE.replace("gather(torch.cat(states)) if states else None", "ready.value > 2 and gather(states)")
IF = CHOICE.replace("    return dist", "    if len(t) == 0: return t\n    return dist").replace(
    " if states else None", ""
)
LOOP = CHOICE.replace("gather(torch.cat(states)) if states else None", "[gather(x) for x in states]")
IN_GATHER: Way = [("gather", 6), ("sync", 3), ("main", 9), ("<module>", 11)]
IN_IF: Way = [("gather", 7), ("sync", 3), ("main", 10), ("<module>", 12)]
BEHIND: Way = [("main", 10), ("<module>", 11)]
BEHIND_IF: Way = [("main", 11), ("<module>", 12)]
ARMS = """\
def step():
    if rank == 0:
        dist.all_reduce(x, group=rows)
        dist.all_reduce(x, group=columns)
    else:
        dist.all_reduce(x, group=columns)
        dist.all_reduce(x, group=rows)
step()
"""
AGAIN = """\
def step():
    if late:
        share(rows)
    share(columns)
    if not late:
        share(rows)
def share(group):
    dist.all_reduce(x, group=group)
step()
"""
BOTH = """\
def step():
    for epoch in range(3):
        if mine:
            dist.all_reduce(x, group=rows)
        if whole:
            dist.all_reduce(y, group=columns)
step()
"""


def cycle(run: Path, source: str, ways: tuple[Way, Way], before: tuple[int, int] = (2, 2)) -> tuple[str, str]:
    """The headline and the advice. Both called so often in the first group, then rank 0 in it, and rank 1 elsewhere."""
    program = str(program_in(run, source))
    job = Ranks(2)
    job.group("1", [0, 1], "one")
    job.group("2", [0, 1], "other")
    in_torch: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    for rank, way in enumerate(ways):
        box, groups = job.boxes[rank], job.groups[rank]
        own: list[Frame] = [(function, program, line) for function, line in way]
        first = (ways[0][0][0], program, ways[0][0][1])
        calls = [("1", number, first, "completed") for number in range(1, before[rank] + 1)]
        calls += [("1", before[0] + 1, own[0], "started") if rank == 0 else ("2", 1, own[0], "started")]
        for name, number, line, state in calls:
            by = box.site(in_torch, line)
            box.collective(
                "allreduce_", group=groups[name], by=by, sequence_nr=number, state=state, sizes=[1], nbytes=4
            )
        box.at(7000).exception("RuntimeError", TIME_OUT, [in_torch, *own]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    found = finding(build_report(job.job(run)), "collective-wait")
    assert found is not None
    return found.summary or "", found.advice or ""


@pytest.mark.parametrize(
    ("source", "ways", "line", "change"),
    [
        (CHOICE, (IN_GATHER, BEHIND), 3, "with an empty or neutral tensor"),
        (AND, (IN_GATHER, BEHIND), 3, "Let one rank decide and broadcast it"),
        (IF, (IN_IF, BEHIND_IF), 6, "with an empty or neutral tensor"),
    ],
)
def test_call_below_a_condition_that_one_rank_passed_by(
    source: str, ways: tuple[Way, Way], line: int, change: str, run: Path
) -> None:
    """Of an expression, and of an `if`, also one that leaves a function."""
    summary, advice = cycle(run, source, ways)
    said = f"Rank 1 came to line {ways[1][0][1]} without the all_reduce of line {ways[0][0][1]}, which line {line} ("
    assert said in summary
    assert change in advice and "it came out differently there" in advice


def test_condition_is_not_alone_below_a_loop(run: Path) -> None:
    """The loop may have had fewer rounds."""
    source = CHOICE.replace("sync(states)\n        d", "[sync(s) for s in all]\n        d")
    _, advice = cycle(run, source, (IN_GATHER, BEHIND))
    assert "it came out differently there, or the loop of line 9 had fewer rounds. " in advice


def test_loop_alone(run: Path) -> None:
    """No condition decides about the call."""
    _, advice = cycle(run, LOOP, (IN_GATHER, BEHIND))
    assert "the loop of line 3 had fewer rounds there" in advice


ONE_LINE = """\
def step():
    for reduce in pending:
        reduce()
def rows():
    dist.all_reduce(x, group=first)
def columns():
    dist.all_reduce(x, group=second)
step()
"""


@pytest.mark.parametrize(
    ("source", "ways"),
    [
        (ONE_LINE, ([("rows", 5), ("step", 3), ("<module>", 8)], [("columns", 7), ("step", 3), ("<module>", 8)])),
        (ARMS, ([("step", 3), ("<module>", 8)], [("step", 6), ("<module>", 8)])),
        (AGAIN, ([("share", 8), ("step", 3), ("<module>", 9)], [("share", 8), ("step", 4), ("<module>", 9)])),
        (BOTH, ([("step", 4), ("<module>", 7)], [("step", 4), ("<module>", 7)])),
    ],
)
def test_groups_in_another_order(source: str, ways: tuple[Way, Way], run: Path) -> None:
    """Each rank has an arm of one `if`, the call comes again behind, or both are at one line."""
    _, advice = cycle(run, source, ways)
    assert advice == "Make all ranks use these groups in the same order."


@pytest.mark.parametrize(
    ("source", "ways", "before"),
    [
        (CHOICE, (IN_GATHER, BEHIND), (2, 1)),
        (BOTH, ([("step", 4), ("<module>", 7)], [("step", 6), ("<module>", 7)]), (2, 2)),
    ],
)
def test_what_is_not_known(source: str, ways: tuple[Way, Way], before: tuple[int, int], run: Path) -> None:
    """One had called less before; or each can have left out the other one's call, in this round or the one before."""
    _, advice = cycle(run, source, ways, before)
    assert advice.startswith("Compare what the ranks call before these lines")
