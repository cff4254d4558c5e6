"""What all ranks have to call of what a branch calls on one rank, and the lines that one rank alone may run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice

DISTRIBUTED = f"{s.TORCH}/distributed/distributed_c10d.py"
SAVES = """\
def main():
    {0}
        {1}
        {2}
    report()
def export(model, path):
    state = gather(model)
    {3}
    return state
def gather(model):
    return dist.all_gather(model)
"""
MAIN, EXPORT, GATHER = 3, 7, 11


def told(run: Path, *lines: str, direct: bool = False) -> str:
    """Rank 0 is in the collective of line 11, below the `if` of line 2; rank 1 goes on elsewhere."""
    program = str(s.program_in(run, SAVES.format(*lines)))
    job = Ranks(2)
    job.everybody(call(line=30))
    box = job.boxes[0]
    way = [("gather", program, GATHER), ("main", program, MAIN)]
    if not direct:
        way.insert(1, ("export", program, EXPORT))
    by = box.site(("all_gather", DISTRIBUTED, 3252), way[0])
    box.collective("allgather_", sequence_nr=2, state="failed", group=job.groups[0]["0"], by=by)
    stack = [("all_gather", DISTRIBUTED, 3252), *way]
    box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    job.boxes[1].crash(0, code=0, state=6, python=[("work", s.SCRIPT, 21)], native=[(s.PYTHON, 0x1000)])
    return advice(build_report(job.job(run)))


TEST = "if rank == 0:"
EXPORTS = "state = export(model, path)"


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ((TEST, EXPORTS, "pass", "torch.save(state, path)"), "line 8 (`torch.save(state, path)`)"),
        ((TEST, EXPORTS, "torch.save(state, path)", "pass"), "line 4 (`torch.save(state, path)`)"),
        ((TEST, EXPORTS, "pass", "with open(path) as f: json.dump(state, f)"), "line 8 (`with open(path)"),
        ((TEST, EXPORTS, "pass", "print(state)"), "the printing or saving of its result"),
        (
            (TEST, EXPORTS, "pass", "if rank == 0:\n        torch.save(state, path)"),
            "the printing or saving of its result",
        ),
    ],
    ids=["in-the-function", "in-the-branch", "opened", "printed", "below-a-test"],
)
def test_function_that_all_ranks_call_is_named_with_what_one_may_write(
    lines: tuple[str, ...], kept: str, run: Path
) -> None:
    """The line that writes the file stays for one rank, where there is one."""
    said = told(run, *lines)
    assert "program.py:3 in main is below `if rank == 0:` (line 2)" in said
    assert f"call export() on all ranks, and keep only {kept}" in said


def test_line_that_does_not_name_the_function_keeps_the_general_words(run: Path) -> None:
    """The look-alike: a method that is bound elsewhere, or a hook."""
    said = told(run, TEST, "callback(model)", "torch.save(state, path)", "pass")
    assert "take it out of that branch, call it on all ranks, and keep only line 4 (`torch.save(state, path)`)" in said


def test_printing_beside_what_is_written_stays_for_one_rank_too(run: Path) -> None:
    """Only where the branch itself prints behind the call."""
    said = told(run, TEST, EXPORTS, "print(state)", "torch.save(state, path)")
    assert "keep only the printing of its result and line 8 (`torch.save(state, path)`) for one rank" in said
    said = told(run, TEST, EXPORTS, "pass", "print(1); torch.save(state, path)")
    assert "the printing of its result" not in said


def test_functions_between_the_branch_and_the_collective_are_told(run: Path) -> None:
    """What communicates is not seen at the line below the branch; one line on the way needs no words."""
    said = told(run, TEST, EXPORTS, "pass", "pass")
    assert "only some ranks call what communicates there (the all_gather of line 11, by line 7): call" in said
    assert "what communicates there: " in told(run, TEST, "gather(model)", "pass", "pass", direct=True)
