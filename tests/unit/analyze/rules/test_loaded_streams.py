"""Ranks that finished because their DataLoader read a stream of its own: no sampler deals it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import CLOSED, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

SOURCE = """class Base({0}):
    pass
class Shards(Base):
    def __init__(self, names, rank, world):
        self.names = {1}
    def {2}(self, *index):
        for name in self.names:
            yield from read(name)
def fit(model, loader, opt):
    for number, batch in enumerate(loader):
        {3}
        opt.step()
def main(rank, world):
    loader = DataLoader(Shards(os.listdir("."), rank, world), batch_size=4)
    fit(model, loader, opt)
"""
PART, BACKWARD = "[name for name in names[rank::world]]", "model(batch).backward()"
CALL_LINE, CALLER_LINE = 11, 15


def left(
    run: Path,
    base: str = "torch.utils.data.IterableDataset",
    names: str = PART,
    method: str = "__iter__",
    line: str = BACKWARD,
    before: int = 3,
) -> Report:
    """Rank 1 has ended well after some rounds, and rank 0 is in its next one."""
    program = str(program_in(run, SOURCE.format(base, names, method, line)))
    job = Ranks(2)
    for rank, box in enumerate(job.boxes):
        by = box.site(("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252), ("fit", program, CALL_LINE))
        for number in range(1, before + 1 + (rank == 0)):
            state = "failed" if number > before else "completed"
            group = job.groups[rank]["0"]
            box.collective("allreduce_", group=group, by=by, sequence_nr=number, state=state, sizes=[4], nbytes=16)
    stack = [
        ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252),
        ("fit", program, CALL_LINE),
        ("main", program, CALLER_LINE),
    ]
    job.boxes[0].at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.done(1)
    return build_report(job.job(run))


def test_stream_is_named_with_what_divides_it(run: Path) -> None:
    """A sampler cannot even it out: join() does, or as many samples for all."""
    report = left(run)
    assert "the rounds of the loop of line 10 may depend on the rank (line 5: `names[rank::world]`)" in summary(report)
    said = advice(report)
    assert "`Shards` (line 3) is an IterableDataset, which no sampler deals out: wrap the loop in the join()" in said
    assert "DistributedSampler" not in said and "drop_last" not in said


def test_stream_whose_parts_are_not_known_is_named(run: Path) -> None:
    """Its number of samples is its own on each rank."""
    report = left(run, names="mine(names)")
    assert ": the loop of line 10 has as many rounds as `Shards` gives on each rank." in summary(report)
    assert "DistributedSampler" not in advice(report)


def test_join_is_not_for_collectives_of_the_program(run: Path) -> None:
    """It answers those of DistributedDataParallel."""
    said = advice(left(run, line="dist.all_reduce(grads(model, batch))"))
    assert "join()" not in said and "let all ranks stop together (all_reduce() a flag with MIN in each round)" in said


@pytest.mark.parametrize(
    "how",
    [{"base": "Dataset", "method": "__getitem__"}, {"base": "Mine"}],
)
def test_dataset_with_indices_is_no_stream(how: dict[str, Any], run: Path) -> None:
    """The look-alikes: samples of these have indices, or what the class is is not known."""
    report = left(run, **how)
    assert "is an IterableDataset" not in advice(report)
    assert "DistributedSampler" in advice(report)


def test_rounds_of_both_ranks_are_counted(run: Path) -> None:
    """From the line of the call."""
    report = left(run)
    texts = [text for finding in report.findings or () for text in finding.evidence or ()]
    assert "program.py:11 in fit had called 3 collectives on rank 1, and 4 on rank 0" in texts
    assert "how many rounds rank 0 had left" in [
        item for finding in report.findings or () for item in finding.missing or ()
    ]


COMPREHENDED = """def step(batch):
    dist.all_reduce(grads(batch))
def fit(data):
    {0}
def main(rank, world):
    fit(torch.arange(9)[rank::world])
"""


def left_step(run: Path, line: str, frame: str | None = None, at: int = 4) -> Report:
    """Rank 1 has ended well after three calls of step(), rank 0 is in its fourth; `frame`: that a comprehension has."""
    program = str(program_in(run, COMPREHENDED.format(line)))
    job, library = Ranks(2), ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    for rank, box in enumerate(job.boxes):
        by, group = box.site(library, ("step", program, 2)), job.groups[rank]["0"]
        for number in range(1, 4 + (rank == 0)):
            state = "failed" if number > 3 else "completed"
            box.collective("allreduce_", group=group, by=by, sequence_nr=number, state=state, sizes=[4], nbytes=16)
    inner = [(f"fit.<locals>.{frame}", program, at)] if frame is not None else []
    outer = line.count("\n")
    stack = [library, ("step", program, 2), *inner, ("fit", program, at), ("main", program, 6 + outer)]
    job.boxes[0].at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.done(1)
    return build_report(job.job(run))


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("return [step(batch) for batch in data]", "<listcomp>"),
        ("return [step(batch) for batch in data]", None),
        ("return {step(batch) for batch in data}", "<setcomp>"),
        ("return {n: step(batch) for n, batch in enumerate(data)}", "<dictcomp>"),
        ("return sum(step(batch) for batch in tqdm(data))", "<genexpr>"),
        ("return [batch for batch in data if step(batch)]", "<listcomp>"),
    ],
)
def test_comprehension_is_a_loop(line: str, frame: str | None, run: Path) -> None:
    """Its rounds are those of what it goes through; before Python 3.12 it has a frame of its own."""
    said = summary(left_step(run, line, frame))
    where = "the loop of line 4 may depend on the rank (line 6: `torch.arange(9)[rank::world]`), as that gives each"
    assert where in said


def test_loop_of_a_comprehension_begins_at_its_for(run: Path) -> None:
    """Of several lines; the call is in one above."""
    said = summary(left_step(run, "return [\n        step(batch)\n        for batch in data\n    ]", "<listcomp>", 5))
    assert "the loop of line 6 may depend on the rank (line 9: `torch.arange(9)[rank::world]`)" in said


@pytest.mark.parametrize(
    "line",
    [
        "return [batch for batch in step(data)]",
        "return [float(batch) for batch in step(data)]",
        "return step([batch for batch in data])",
        "return step([float(batch) for batch in data][0])",
    ],
)
def test_head_of_a_comprehension_is_called_once(line: str, run: Path) -> None:
    """Neither is what a comprehension is only passed to."""
    assert "the rounds of the loop" not in summary(left_step(run, line))
