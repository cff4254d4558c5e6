"""Collectives that only some ranks call: the `if` or the decorator that keeps the others from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Frame

REDUCES: Frame = ("all_reduce", f"{s.TORCH}/distributed/distributed_c10d.py", 3252)
SOURCE = "def evaluate():\n    if {}:\n        mean(loss)\n    report()\n"


def missing(run: Path, source: str, line: int, *, at: Frame = ("work", s.SCRIPT, 21), called: bool = False) -> str:
    """Rank 0 waits in a collective below this line of a program; SIGTERM finds rank 1 elsewhere."""
    program = s.program_in(run, source)
    job = Ranks(2)
    job.everybody(call(line=44 if called else 30))
    job.calls(0, call(state="failed", line=44), first=2)
    stack = [REDUCES, ("step", s.SCRIPT, 44), ("evaluate", str(program), line)]
    job.boxes[0].at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    here = at if at[1] == s.SCRIPT else (at[0], str(program), at[2])
    job.boxes[1].crash(0, code=0, state=6, python=[here], native=[(s.PYTHON, 0x1000)])
    report = build_report(job.job(run))
    assert verdict(report)[0] == "missing-rank"
    return f"{summary(report)} {advice(report)}"


@pytest.mark.parametrize("test", ["rank == 0", "dist.get_rank() == 0", "is_main", "local_rank != -1 and rank == 0"])
def test_a_branch_on_the_rank_around_the_call_of_those_that_wait(run: Path, test: str) -> None:
    """In the headline by its line, and what to do about it."""
    said = missing(run, SOURCE.format(test), 3)
    assert f"; the call of rank 0 is below `if {test}:` (program.py:2). program.py:3 in evaluate is below" in said
    assert "call it on all ranks" in said


@pytest.mark.parametrize("test", ["epoch % 2", "local_rank != -1", "rank is not None", "rank >= 0"])
def test_a_branch_that_all_ranks_take_is_not_named(run: Path, test: str) -> None:
    """The look-alikes: data, and what is the same on all ranks."""
    assert "the call of rank 0" not in missing(run, SOURCE.format(test), 3)


def test_a_late_rank_that_has_called_from_that_line_is_only_late(run: Path) -> None:
    """The look-alike: whatever the `if` asks, it was true there as well."""
    assert "the call of rank 0" not in missing(run, SOURCE.format("rank == 0"), 3, called=True)


def test_a_late_rank_in_a_branch_of_its_own_may_come_to_the_same(run: Path) -> None:
    """The look-alike: sender and receiver call it in functions of their own."""
    source = "def evaluate():\n    if rank == 0:\n        send()\n    if rank == 1:\n        receive()\n"
    assert "the call of rank 0" not in missing(run, source, 3, at=("evaluate", "", 5))


@pytest.mark.parametrize(
    "decorator, only",
    [("rank_zero_only", True), ("accelerator.on_main_process", True), ("main_process_first()", False)],
)
def test_a_decorator_by_which_one_rank_runs_a_function(run: Path, decorator: str, only: bool) -> None:
    """And one after which all have run it."""
    said = missing(run, f"@{decorator}\ndef evaluate():\n    mean(loss)\n", 3)
    assert (f"below `@{decorator}` (program.py:1)" in said) == only


@pytest.mark.parametrize("op", ["barrier", "broadcast_"])
@pytest.mark.parametrize("between", ["    write()\n    tidy()\n", ""])
def test_barrier_behind_an_early_return_stays_behind_what_it_waits_for(op: str, between: str, run: Path) -> None:
    """Only what stands between may depend on the rank; the look-alikes: another operation, and nothing between."""
    source = f"def save():\n    if rank != 0:\n        return\n\n{between}    meet()\n"
    line = source.count("\n")
    job = Ranks(2)
    job.everybody(call(line=30))
    frame = ("save", str(s.program_in(run, source)), line)
    box = job.boxes[0]
    by = box.site(REDUCES, frame)
    box.collective(op, group=job.groups[0]["0"], by=by, sequence_nr=2, sizes=[4], nbytes=16, state="failed")
    box.at(7000).exception("RuntimeError", TIME_OUT, [REDUCES, frame]).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    job.boxes[1].crash(0, code=0, state=6, python=[("work", s.SCRIPT, 21)], native=[(s.PYTHON, 0x1000)])
    report = build_report(job.job(run))
    assert "is behind `if rank != 0: return` (program.py:2)" in summary(report)
    kept = (
        "put only lines 5 to 6 below the condition (`if rank == 0:` in place of the early `return`), and call barrier"
    )
    assert (kept in advice(report)) == (op == "barrier" and between != ""), advice(report)
    assert ("move it before line 2" in advice(report)) == (op != "barrier" or not between)


TRACKER = """class Tracker:
    def __init__(self, enabled=True):
        self.enabled = {held}
    def log(self):
        if self.enabled:
            mean(loss)
    def off(self):
        {other}
main = rank == 0
{made}
"""


@pytest.mark.parametrize(
    "held, made, value, line",
    [
        ("enabled", "run = Tracker(enabled=rank == 0)", "rank == 0", 10),
        ("enabled", "run = Tracker(main)", "rank == 0", 10),
        ("enabled", "run = Tracker(args.log and dist.get_rank() == 0)", "args.log and dist.get_rank() == 0", 10),
        ("enabled", "run = Tracker(is_main_process())", "is_main_process()", 10),
        ("dist.get_rank() == 0", "run = Tracker()", "dist.get_rank() == 0", 3),
    ],
)
def test_an_attribute_that_each_object_is_made_with_by_the_rank(
    run: Path, held: str, made: str, value: str, line: int
) -> None:
    """The condition does not speak of the rank; the line that makes the object does."""
    said = missing(run, TRACKER.format(held=held, made=made, other="pass"), 6)
    assert "; the call of rank 0 is below `if self.enabled:` (program.py:5)." in said
    assert f"is below `if self.enabled:` (line 5; `self.enabled` is `{value}`, by line {line}), so that only" in said


@pytest.mark.parametrize(
    "made, other",
    [
        ("run = Tracker(args.log)", "pass"),
        ("run = Tracker()", "pass"),
        ("run = Tracker(rank >= 0)", "pass"),
        ("run = Tracker(lora_rank == 0)", "pass"),
        ("run = Tracker(path_of(rank))", "pass"),
        ("run = Tracker(**options)", "pass"),
        ("one, two = Tracker(rank == 0), Tracker(True)", "pass"),
        ("run = Tracker(rank == 0)", "self.enabled = True"),
        ("run = make(Tracker)", "pass"),
        ("class Other(Tracker):\n    pass\nrun = Tracker(rank == 0)", "pass"),
        ("run = Tracker(rank == 0)", "cls(True)"),
        ("run = Tracker(rank == 0)\nsetattr(run, key, value)", "pass"),
    ],
)
def test_an_attribute_that_may_be_the_same_on_all_ranks_is_not_named(run: Path, made: str, other: str) -> None:
    """The look-alikes: options, a default, another object, an attribute that is set later."""
    assert "the call of rank 0" not in missing(run, TRACKER.format(held="enabled", made=made, other=other), 6)


def test_an_attribute_that_another_file_sets_is_not_named(run: Path) -> None:
    """The constructor's value is then not the last one."""
    source = "import other\n" + TRACKER.format(held="enabled", made="run = Tracker(rank == 0)", other="pass")
    assert "the call of rank 0 is below `if self.enabled:`" in missing(run, source, 7)
    s.program_in(run, "def resume(run):\n    run.enabled = True\n").rename(run / "other.py")
    assert "the call of rank 0" not in missing(run, source, 7)
