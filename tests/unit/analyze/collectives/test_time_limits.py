"""A rank that worked in a loop of its own while the others waited for it until their time-out."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary, verdict

DISTRIBUTED = f"{s.TORCH}/distributed/distributed_c10d.py"
PREPARES = """\
def prepare(rank, texts):
    if rank > 0:
        barrier()
    else:
        {0}
            rows.append(tokenize(text))
        barrier()
def main():
    {1}
    prepare(rank, texts)
def tokenize(text):
    return text.split()
"""
LOOP = "for text in texts:"
GROUP = 'dist.init_process_group("gloo", timeout=LIMIT)'


def told(
    run: Path, loop: str = LOOP, group: str = GROUP, *, text: str = TIME_OUT, called: bool = True
) -> tuple[str, str]:
    """Rank 1 gives up; rank 0 is in line 6, which it called tokenize() from."""
    program = str(s.program_in(run, PREPARES.format(loop, group)))
    job = Ranks(2)
    way = [("prepare", program, 3), ("main", program, 10)]
    box = job.boxes[1]
    by = box.site(("barrier", DISTRIBUTED, 5300), way[0])
    box.collective("barrier", sequence_nr=1, state="failed", group=job.groups[1]["0"], by=by)
    box.at(7000).exception("RuntimeError", text, [("barrier", DISTRIBUTED, 5300), *way]).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.terminated(0)
    stack = [("tokenize", program, 12), ("prepare", program, 6), ("main", program, 10)]
    job.boxes[0].at(7900).signal_seen(15, 99).crash(
        0, code=0, state=6, python=stack if called else stack[1:], native=[(s.PYTHON, 0x1000)]
    )
    report = build_report(job.job(run))
    assert verdict(report)[0] == "missing-rank"
    return summary(report), advice(report)


def test_time_out_is_named_with_its_line_and_the_loop_of_the_other_rank(run: Path) -> None:
    """The loop is around the line that called the function in which the rank was."""
    said, do = told(run)
    assert "at program.py:3 in prepare until its time-out of 6 s (line 9)" in said
    assert "rank 0 was at program.py:12 in tokenize, in the loop `for text in texts` (program.py:5 in prepare)" in said
    assert do.startswith("program.py:6 in prepare is in the `else` of `if rank > 0:` (line 2): the others waited for")
    assert "If the loop of program.py:5 in prepare may take longer, do that work before the job" in do
    assert "give init_process_group() (line 9) a larger timeout=" in do


@pytest.mark.parametrize(
    ("loop", "group", "limit"),
    [(LOOP, "dist.init_process_group()", False), ("with pool:", GROUP, True), (LOOP, f"{GROUP}; {GROUP}", False)],
    ids=["no-time-out", "no-loop", "two-calls"],
)
def test_what_the_source_does_not_show_is_not_said(loop: str, group: str, limit: bool, run: Path) -> None:
    """The look-alikes: a time-out by default, or of one of two calls; work that is in no loop."""
    said, do = told(run, loop, group)
    assert ("until its time-out of 6 s (line 9)" in said) is limit
    assert ("in the loop" in said) is (loop == LOOP)
    assert ("init_process_group() (line" in do) is limit
    assert "their time-out of 6 s" in do


def test_loop_that_all_ranks_run_is_compared_with_that_of_the_others(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No branch on the rank: that the others did not take one would be false."""
    monkeypatch.setitem(globals(), "PREPARES", PREPARES.replace("if rank > 0:", "if ready():"))
    _, do = told(run, called=False)
    assert do.startswith("See how many rounds the loop of line 5 makes on rank 0 and on the others")
    assert "is a branch" not in do
