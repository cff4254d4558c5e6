"""A rank that makes a process group while the others wait for it in a collective: new_group() is one of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Frame

C10D = f"{s.TORCH}/distributed/distributed_c10d.py"
REDUCES: Frame = ("all_reduce", C10D, 3252)
SOURCE = "def attach():\n    if {}:\n        group = dist.new_group()\n"


def said(
    run: Path, source: str, *, both: bool = False, goes_on: bool = False, at: int = 3, member: bool = True,
    between: Sequence[Frame] = (), met: int | None = None,
) -> str:  # fmt: skip
    """Rank 1 is in new_group() at the program's last line; rank 0 waits in a collective. `both`: it made its, too.

    `between`: frames of a library that made the group; `met`: both made one before, rank 0 at this line.
    """
    program = str(s.program_in(run, source))
    job = Ranks(2)
    job.everybody(call(line=30))
    job.calls(0, call(state="failed", line=44), first=2)
    place = {"function": "attach", "file": program, "line": at}
    for box, line in ((job.boxes[0], met), (job.boxes[1], at)) if met is not None else ():
        box.group("1", [0, 1], caller=("attach", program, line))
    for box in job.boxes if both else job.boxes[1:]:
        ranks = [0, 1] if member else [1]
        box._json(37, {"begun": True, "ranks": ranks, "description": None, "caller": place})
    stack = [REDUCES, ("step", s.SCRIPT, 44)]
    job.boxes[0].at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    inside: list[Frame] = [("_new_process_group_helper", C10D, 2169), ("_new_group_with_tag", C10D, 6056)]
    here: list[Frame] = [] if goes_on else [*inside, *between]
    line = at + 1 if goes_on else at
    job.boxes[1].crash(0, code=0, state=6, python=[*here, ("attach", program, line)], native=[(s.PYTHON, 0x1000)])
    report = build_report(job.job(run))
    assert verdict(report)[0] == "missing-rank"
    return f"{summary(report)} {advice(report)}"


@pytest.mark.parametrize("test", ["rank == 1", 'int(os.environ["RANK"]) == 1', "rank in CRITICS"])
def test_new_group_below_a_branch_on_the_rank_that_one_rank_alone_came_to(run: Path, test: str) -> None:
    """The headline has what it waits for, and the advice the branch; no larger time-out helps."""
    words = said(run, SOURCE.format(test))
    assert "; when it ended, rank 1 was in new_group() at program.py:3 in attach, which rank 0 had not called" in words
    assert f"program.py:3 in attach is below `if {test}:` (line 2)" in words
    assert "take it out of that branch" in words
    assert "timeout" not in words


def test_new_group_of_members_alone_may_synchronize_locally(run: Path) -> None:
    """Where the others are no members of it, they need not come."""
    words = said(run, SOURCE.format("rank == 1"), member=False)
    assert "use_local_synchronization=True" in words
    assert "use_local_synchronization=True" not in said(run, SOURCE.format("rank == 1"))


@pytest.mark.parametrize("test", ["resumed", "step % 10 == 0", "rank == 0"])
def test_a_branch_that_does_not_show_which_rank_comes_is_only_looked_at(run: Path, test: str) -> None:
    """That it waits for the other one is sure, by the groups that each began; why the other did not come is not."""
    words = said(run, SOURCE.format(test))
    assert "rank 1 was in new_group() at program.py:3 in attach, which rank 0 had not called" in words
    assert "take it out of that branch" not in words
    assert "see why rank 0 did not come to program.py:3" in words


def test_a_group_that_the_waiting_rank_has_begun_as_well_is_not_the_reason(run: Path) -> None:
    """The look-alike: it has called new_group(), and gone on."""
    assert "had not called" not in said(run, SOURCE.format("rank == 1"), both=True)


def test_a_rank_behind_new_group_is_not_said_to_be_in_it(run: Path) -> None:
    """The look-alike: it is in the next line, which is slow."""
    assert "new_group()" not in said(run, SOURCE.format("rank == 1") + "        work()\n", goes_on=True)


@pytest.mark.parametrize("made, name", [('init_device_mesh("cpu", (2,))', "init_device_mesh"), ("mine(rank)", None)])
def test_the_function_that_the_line_calls_is_named_or_nothing(run: Path, made: str, name: str | None) -> None:
    """A mesh makes its groups by new_group(), too; of another function it is not known what it makes."""
    words = said(run, SOURCE.format("rank == 1").replace("dist.new_group()", made))
    assert (f"rank 1 was in {name}() at program.py:3" in words) == (name is not None)
    assert ("had not called" in words) == (name is not None)


LOADER = f"{s.TORCH}/utils/data/dataloader.py"
LOOP = "def attach():\n    if rank == 1:\n        for batch in loader:\n            pass\n"


def test_group_that_the_iterator_of_a_loader_makes_is_named_with_it(run: Path) -> None:
    """A DataLoader over a DataPipe makes a group of all ranks; the line shows a loop only."""
    between: list[Frame] = [("new_group", C10D, 5863), ("_BaseDataLoaderIter.__init__", LOADER, 633)]
    words = said(run, LOOP, between=between)
    assert (
        "; when it ended, rank 1 was in new_group() of a DataLoader's iterator (torch/utils/data/dataloader.py:633) at "
        "program.py:3 in attach, which rank 0 had not called"
    ) in words
    assert (
        "A DataLoader's iterator (torch/utils/data/dataloader.py:633) calls new_group(), which all ranks must" in words
    )
    assert "program.py:3 in attach is below `if rank == 1:` (line 2): take it out of that branch" in words
    assert "use a Dataset or an IterableDataset" in words and "timeout" not in words


def test_groups_of_different_lines_that_met_before_are_named(run: Path) -> None:
    between: list[Frame] = [("new_group", C10D, 5863), ("_BaseDataLoaderIter.__init__", LOADER, 633)]
    words = said(run, LOOP, between=between, met=4)
    assert "(that of line 3 on rank 1 met that of line 4 on rank 0 before)" in words


def test_another_library_that_makes_a_group_is_named_by_its_function(run: Path) -> None:
    between: list[Frame] = [("new_group", C10D, 5863), ("Sync.__init__", f"{s.TORCH}/../sync/core.py", 12)]
    words = said(run, LOOP, between=between)
    assert "was in new_group() of Sync.__init__ (" in words and "DataLoader" not in words
