"""A loop over batches that the program makes by a rule of its own: what is said where one rank has fewer of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import CLOSED, TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

SOURCE = """class Sampler:
    def __init__(self, lengths, rank, world):
        part = len(lengths) // world
        start = rank * part
        self.indices, self.lengths = list(range(start, start + part)), lengths
    def __iter__(self):
        batch, total = [], 0
        for i in self.indices:
            if {0}:
                yield batch
                batch, total = [], 0
            batch.append(i)
            total += self.lengths[i]
        yield batch
def main(lengths, rank, world):
    for batch in Sampler(lengths, rank, world):
        loss(model, batch).backward()
    dist.barrier()
main(lengths, rank, world)
"""
BACKWARD, BARRIER = ("main", 17), ("main", 18)
FULL, COUNT = "total + self.lengths[i] > 4096", "len(batch) == 32"


SKIPPING = """def batches(rows):
    batch, total = [], 0
    for row in rows:
        total += len(row)
        batch.append(row)
        if total > 4096:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
# as the ranks have the same rows,
# one skips a round
def main(lengths, rank, world):
    for batch in batches(lengths):
        if not torch.isfinite(batch).all():
            continue
        loss(model, batch).backward()
    dist.barrier()
main(lengths, rank, world)
"""


def report(run: Path, test: str, *, is_left: bool = True, source: str = SOURCE) -> Report:
    """Rank 0 is in its third backward; rank 1 had two, and has ended well, or is at the barrier behind the loop."""
    program = str(program_in(run, source.replace("{0}", test)))
    job = Ranks(2)
    library = ("Tensor.backward", f"{TORCH}/_tensor.py", 630)
    barrier = ("barrier", f"{TORCH}/distributed/distributed_c10d.py", 5000)
    for number, box in enumerate(job.boxes):
        last = [BACKWARD] if number == 0 else [] if is_left else [BARRIER]
        for place, (name, line) in enumerate([BACKWARD, BACKWARD, *last], 1):
            what, by = ("barrier", barrier) if line == BARRIER[1] else ("allreduce_", library)
            state, group = "completed" if place <= 2 else "failed", job.groups[number]["0"]
            site = box.site(by, (name, program, line))
            box.collective(what, group=group, by=site, sequence_nr=place, state=state, sizes=[4], nbytes=16)
        if last:
            by, (name, line) = (barrier if last == [BARRIER] else library), last[0]
            stack = [by, (name, program, line), ("<module>", program, 19)]
            box.at(7000).exception("RuntimeError", CLOSED if is_left else TIME_OUT, stack).exit(1)
            job.endings[number] = {"exit_code": 1}
    if is_left:
        job.done(1)
    return build_report(job.job(run))


def test_rule_that_ends_a_batch_is_named_and_no_padding_is_advised(run: Path) -> None:
    """The parts are of one length already."""
    found = report(run, FULL)
    assert "the loop of line 16 may have fewer batches on rank 1: line 9 (`if " in summary(found)
    assert "and each rank has items of its own (line 4: `rank * part`)" in summary(found)
    said = advice(found)
    assert "padding the parts or DistributedSampler does not even that out" in said
    assert "deal these out, as many to each" in said and "join() context manager" in said
    assert "pad the parts" not in said


def test_batches_of_a_number_of_items_are_told_as_before(run: Path) -> None:
    """The look-alike: there, parts of one length give as many batches."""
    said = advice(report(run, COUNT))
    assert "pad the parts to one length" in said and "ends a batch" not in said


@pytest.mark.parametrize(("test", "is_told"), [(FULL, True), (COUNT, False)])
def test_rank_at_the_barrier_behind_the_loop_is_told_with_the_rule(test: str, is_told: bool, run: Path) -> None:
    """In a mismatch, too."""
    said = advice(report(run, test, is_left=False))
    assert ("ends a batch by what is in it, so that ranks with as many items" in said) == is_told
    assert ("pad" in said.replace("padding", "")) != is_told


def test_round_that_is_skipped_is_told_where_no_line_gives_the_ranks_other_rows(run: Path) -> None:
    """A rule by what is in the batches gives ranks of the same rows as many."""
    found = report(run, "", source=SKIPPING)
    assert "may have left out a round of the loop of line 14 by line 15 (`if not torch.isfinite" in summary(found)
    assert "then let all ranks skip it together" in advice(found)
