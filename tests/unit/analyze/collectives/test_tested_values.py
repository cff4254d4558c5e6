"""What the condition that ended a loop on one rank asked for: the values of both ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import summary
from tests.support.scenarios import TORCH, program_in

PROGRAM = """\
def fit(model):
    wait = 0
    while True:
        step(model)
        wait += late(model)
        if wait > 4:
            break
    {behind}
    finish(model)
"""


@pytest.mark.parametrize(
    ("behind", "values", "told"),
    [("pass", ("3", "5"), True), ("pass", ("5", "5"), False), ("wait = 0", ("3", "0"), False)],
    ids=["differs", "alike", "set again"],
)
def test_values_of_the_condition_that_ended_the_loop(
    behind: str, values: tuple[str, str], told: bool, run: Path
) -> None:
    """The look-alikes: a value that does not differ, and one that a line below the loop sets again."""
    program = str(program_in(run, PROGRAM.format(behind=behind)))
    job = Ranks(2)
    for rank, (box, line, value) in enumerate(zip(job.boxes, (4, 9), values, strict=True)):
        outer = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3000)
        for number, at in enumerate((4, 4, line), 1):
            given = dict(
                call("allgather_" if at == 9 else "allreduce_", state="failed" if number == 3 else "completed")
            )
            given.pop("name")
            given.pop("line")
            name = "allgather_" if at == 9 else "allreduce_"
            by = box.site(outer, ("fit", program, at))
            box.collective(name, group=job.groups[rank]["0"], by=by, sequence_nr=number, **given)
        own = [{"name": "wait", "value": value}]
        box.at(7000).exception("RuntimeError", TIME_OUT, [outer, ("fit", program, line)], variables=own).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    said = summary(build_report(job.job(run)))
    assert "rank 1 had left the loop of line 3 by line 6 (`if wait > 4:`)" in said
    assert (": `wait` is 5 on rank 1 and 3 on rank 0" in said) == told, said
