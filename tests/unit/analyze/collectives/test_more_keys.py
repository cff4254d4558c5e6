"""Loops over a dict of each rank's own keys, which one rank goes through further than the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

PROGRAM = """\
class Meter:
    def synchronize(self):
        if not dist.is_initialized():
            return
        dist.barrier()
        dist.all_reduce(self.total)
class Logger:
    def update(self, **values):
        for name, value in values.items():
            self.meters[name].add(value)
    def share(self):
        for meter in self.meters.values():
            meter.synchronize()
def evaluate(logger):
    for x, y, source in rows:
        logger.update(loss=measure(x, y))
        logger.update(**{f"loss_{source}": measure(x, y)})
    logger.share()
def main():
    for epoch in range(3):
        for x in data[rank::world]:
            model(x).backward()
        evaluate(Logger())
main()
"""
IN_LOOP = [("share", 13), ("evaluate", 18), ("main", 23)]
ROUND = [("synchronize", 5), ("synchronize", 6)]
BACKWARD = ("main", 22)


def reported(
    run: Path,
    source: str = PROGRAM,
    before: list[tuple[str, int]] | None = None,
    theirs: list[tuple[str, int]] | None = None,
    line: int = ROUND[0][1],
) -> Report:
    """Rank 1 is in the loop over meters; `before`: lines of calls of both; `theirs`: where rank 0 is, [] if it ended.

    `line`: the one that rank 1 is at.
    """
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    ways = [[BACKWARD] if theirs is None else theirs, [("synchronize", line), *IN_LOOP]]
    calls = [BACKWARD, BACKWARD, *ROUND, *ROUND] if before is None else before
    for rank, (box, way) in enumerate(zip(job.boxes, ways, strict=True)):
        for number, (function, at) in enumerate([*calls, *way[:1]], 1):
            by = box.site(in_torch, (function, program, at))
            state = "failed" if number > len(calls) else "completed"
            size = [1] if function == "synchronize" else [16]
            op = "barrier" if at == ROUND[0][1] else "allreduce_"
            box.collective(
                op, group=job.groups[rank]["0"], by=by, sequence_nr=number, state=state, sizes=size, nbytes=4 * size[0]
            )
        stack = [in_torch, *((function, program, at) for function, at in way), ("<module>", program, 24)]
        if way:
            box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
        else:
            box.at(6000).exit(0)
        job.endings[rank] = {"exit_code": 1 if way else 0}
    return build_report(job.job(run))


SAID = (
    "`self.meters`, which line 12 (`for meter in self.meters.values():`) goes through, has fewer keys on rank 0: line "
    "17 (`logger.update(**{f'loss_{source}': measur...`) makes a key of what each rank has"
)


def test_rank_that_went_on_has_fewer_keys(run: Path) -> None:
    """It is in the next epoch, which looks like a further round of the loop over batches."""
    report = reported(run)
    assert SAID in summary(report)
    assert "sorted union of the keys of all ranks" in advice(report) and "more rounds" not in advice(report)


def test_rank_that_ended_has_fewer_keys(run: Path) -> None:
    """Behind the last epoch."""
    report = reported(run, theirs=[])
    assert SAID in summary(report)


@pytest.mark.parametrize(
    ("source", "before"),
    [
        (PROGRAM, [BACKWARD, BACKWARD]),
        (PROGRAM.replace("self.meters.values()", "self.names"), None),
        (PROGRAM.replace("            meter.sync", "            if meter.count: meter.sync"), None),
        (PROGRAM.replace("not dist.is_initialized()", "self.total is None"), None),
        (PROGRAM.replace("    logger.share()", "    logger.share(); best.synchronize()"), None),
        (PROGRAM.replace("    logger.share()", "        logger.share()"), None),
    ],
    ids=["first round", "list", "condition", "condition inside", "called elsewhere", "each batch"],
)
def test_other_reasons_to_go_on(source: str, before: list[tuple[str, int]] | None, run: Path) -> None:
    """The look-alikes: other rounds, another loop, and what else may leave out a call."""
    assert "has fewer keys" not in summary(reported(run, source, before))


def test_rank_within_a_round_has_not_more_keys(run: Path) -> None:
    """The other one had left the round, by an error perhaps."""
    report = reported(run, before=[BACKWARD, *ROUND, ROUND[0]], line=ROUND[1][1])
    assert "has fewer keys" not in summary(report)
