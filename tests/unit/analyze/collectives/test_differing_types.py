"""Tensors of two dtypes at one line: the two ways to make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

PROGRAM = """def read(rank, bins):
    if rank == 0:
        return torch.rand(bins)
    table = {table}
    return torch.from_numpy(table)
def total(curves):
    summed = curves.clone()
    dist.all_reduce(summed)
def main(rank):
    curves = read(rank, 600)
    total(curves)
"""


def advised(run: Path, source: str) -> str:
    program = str(program_in(run, source))
    job = Ranks(2)
    stack: list[Frame] = [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)]
    stack += [("total", program, 8), ("main", program, 11)]
    for rank, box in enumerate(job.boxes):
        by, dtype = box.site(stack[0], stack[1]), ("float32", "float64")[rank]
        group = job.groups[rank]["0"]
        box.collective("allreduce_", group=group, by=by, sequence_nr=1, state="failed", sizes=(600,), dtype=dtype)
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    return advice(build_report(job.job(run)))


def test_way_that_makes_the_type_of_one_rank_is_named_with_the_other_one(run: Path) -> None:
    """Found by a twin: an array of NumPy on one rank was left to the reader to find."""
    said = advised(run, PROGRAM.format(table="np.linspace(0.0, 1.0, bins)"))
    assert "What line 5 (`return torch.from_numpy(table)`) makes is float64, as rank 1 passed" in said
    assert "the other way to make it is line 3 (`return torch.rand(bins)`)" in said
    assert "`.to(torch.float32)` at the first" in said


@pytest.mark.parametrize(
    "source",
    [
        PROGRAM.format(table="load(bins)"),
        PROGRAM.format(table="np.zeros(bins)").replace("torch.rand(bins)", "torch.from_numpy(np.ones(bins))"),
        PROGRAM.format(table="np.zeros(bins)").replace("        return torch.rand(bins)", "        pass"),
    ],
    ids=["unknown", "alike", "one way"],
)
def test_type_that_the_source_does_not_tell_apart_gets_general_advice(source: str, run: Path) -> None:
    assert "Find out why the tensor has another dtype there" in advised(run, source)
