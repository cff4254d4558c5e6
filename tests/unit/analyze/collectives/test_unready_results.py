"""What all ranks have to call, and read a variable that only one rank has filled; and a property that is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice

DISTRIBUTED = f"{s.TORCH}/distributed/distributed_c10d.py"
COLLECTS = """\
def main(rank, rows):
    if rank == 0:
        report = collect(rows)
        write(report)
def collect(rows):
    {0}
    {1}
    dist.gather_object(rows, merged, dst=0)
    {2}
"""
READS = """\
def main(rank, trainer):
    if rank == 0:
        report = {0}
        write(report)
class Trainer:
    @{1}
    def metrics(self):
        return dist.all_reduce(self.total)
"""


def told(run: Path, source: str, inner: tuple[str, int], op: str) -> str:
    """Rank 0 is in the collective of `inner`, below the `if` of line 2; rank 1 goes on elsewhere."""
    program = str(s.program_in(run, source))
    job = Ranks(2)
    job.everybody(call(line=30))
    box = job.boxes[0]
    way = [(inner[0], program, inner[1]), ("main", program, 3)]
    by = box.site((op, DISTRIBUTED, 3252), way[0])
    box.collective("allgather_", sequence_nr=2, state="failed", group=job.groups[0]["0"], by=by)
    box.at(7000).exception("RuntimeError", TIME_OUT, [(op, DISTRIBUTED, 3252), *way]).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    job.boxes[1].crash(0, code=0, state=6, python=[("work", s.SCRIPT, 21)], native=[(s.PYTHON, 0x1000)])
    return advice(build_report(job.job(run)))


ONE_OF = "merged = [None] * world if dist.get_rank() == 0 else None"
USES = "return sorted(merged)"


@pytest.mark.parametrize(
    ("lines", "made"),
    [
        ((ONE_OF, "pass", USES), 6),
        (("merged = None if rank else []", "pass", "return [part for part in merged]"), 6),
        (("merged = None", "if rank == 0:\n        merged = [None] * world", USES), 6),
    ],
)
def test_variable_that_the_other_ranks_have_none_in_is_told(lines: tuple[str, ...], made: int, run: Path) -> None:
    """Who lets them call the function has to return before it is used."""
    source = COLLECTS.format(*lines)
    at = next(n for n, text in enumerate(source.splitlines(), 1) if "gather_object" in text)
    said = told(run, source, ("collect", at), "gather_object")
    assert "call collect() on all ranks, and keep only" in said
    assert said.endswith(
        f"There `merged` is None on the other ranks (line {made}): where it is, let collect() return before line "
        f"{at + 1}, which uses it."
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("merged = [None] * world", "pass", USES),
        (ONE_OF, "pass", "return sorted(merged) if merged is not None else None"),
        (ONE_OF, "pass", "if merged: return sorted(merged)"),
        (ONE_OF, "pass", "return merged"),
        (ONE_OF, "pass", "return rows"),
        (ONE_OF, "pass", "return sorted(merged) if rank == 0 else None"),
        (ONE_OF, "pass", "return sorted(merged or [])"),
        (ONE_OF, "pass", "merged = merged or []\n    return sorted(merged)"),
        (ONE_OF, "pass", "print(merged)\n    return rows"),
        (ONE_OF, "pass", "return {'rows': merged}"),
        (ONE_OF, "pass", "writes = rank == 0\n    if writes: return sorted(merged)"),
        (ONE_OF, "pass", "full = merged is not None\n    return sorted(merged) if full else rows"),
    ],
)
def test_variable_that_all_ranks_can_use_is_not(lines: tuple[str, ...], run: Path) -> None:
    """The look-alikes: a list on each rank, a test around its use, another value, and None that is only handed on."""
    said = told(run, COLLECTS.format(*lines), ("collect", 8), "gather_object")
    assert "call collect() on all ranks" in said and "is None on" not in said


def test_use_before_another_collective_is_no_place_to_return(run: Path) -> None:
    """All ranks have to come to that one."""
    source = COLLECTS.format(ONE_OF, "pass", "total = sum(merged)\n    dist.barrier()\n    return total")
    said = told(run, source, ("collect", 8), "gather_object")
    assert said.endswith("There `merged` is None on the other ranks (line 6): let line 9 use it only where it is not.")


def test_argument_on_another_line_of_the_collective_is_no_use_behind_it(run: Path) -> None:
    source = COLLECTS.format(ONE_OF, "pass", "return merged")
    source = source.replace(
        "(rows, merged, dst=0)", "(\n        rows, object_gather_list=[*merged] if rank == 0 else merged)"
    )
    assert "is None on" not in told(run, source, ("collect", 8), "gather_object")


def test_property_that_communicates_is_to_be_read_on_all_ranks(run: Path) -> None:
    """By the words of the line, and no line twice."""
    said = told(run, READS.format("trainer.metrics", "property"), ("Trainer.metrics", 8), "all_reduce")
    assert "read `trainer.metrics`, a property that communicates, on all ranks, and keep only" in said


@pytest.mark.parametrize(
    ("read", "decorator"), [("trainer.report()", "property"), ("trainer.metrics.copy()", "no_grad")]
)
def test_line_that_reads_no_property_keeps_the_general_words(read: str, decorator: str, run: Path) -> None:
    """The look-alikes: another name, and an attribute."""
    said = told(run, READS.format(read, decorator), ("Trainer.metrics", 8), "all_reduce")
    assert "take it out of that branch, call it on all ranks" in said
