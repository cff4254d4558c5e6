"""Errors that one rank caught: a count that the program keeps of them proves that, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

PROGRAM = """\
class Trainer:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.SGD(net.parameters(), 0.1)
        self.skipped = 0
    def step(self, batch):
        self.net(batch).sum().backward()
        self.opt.step()
    def epoch(self, loader):
        for batch in loader:
            try:
                self.step(batch)
            except IndexError:
                self.skipped += 1
        self.summary()
    def summary(self):
        dist.all_reduce(total)
def main():
    trainer = Trainer(net)
    trainer.epoch(loader)
main()
"""
IN_STEP = [("Trainer.step", 6), ("Trainer.epoch", 11), ("main", 19)]
IN_SUMMARY = [("Trainer.summary", 16), ("Trainer.epoch", 14), ("main", 19)]
LEFT_OUT = "rank 1 left out a call of line 6 by an error that line 12 (`except IndexError:`) caught: "
BY_LOOP = "; rank 1 had called 5 times from line 6, rank 0 6 times, and line 12 (`except IndexError:`) goes on"


def reported(
    run: Path,
    held: Sequence[Mapping[str, str]],
    source: str = PROGRAM,
    ways: Sequence[Sequence[tuple[str, int]]] = (IN_STEP, IN_SUMMARY),
) -> Report:
    """Each rank called five times from the first line of rank 0, which calls once more; `held`: its variables.

    A way of one line: the rank ended elsewhere.
    """
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    for rank, way in enumerate(ways):
        box, group = job.boxes[rank], job.groups[rank]["0"]
        lines = [(ways[0][0][0], program, ways[0][0][1])] * 5 + [(way[0][0], program, way[0][1])]
        for number, line in enumerate(lines, 1):
            ends = number == len(lines)
            size = [1] if ends and rank == 1 else [40]
            by = box.site(in_torch, line)
            box.collective(
                "allreduce_", group=group, by=by, sequence_nr=number, state="failed" if ends else "completed",
                sizes=size, nbytes=4 * size[0],
            )  # fmt: skip
        stack: list[Frame] = [
            in_torch,
            *((function, program, line) for function, line in way),
            ("<module>", program, 20),
        ]
        if not way[1:]:
            stack = [("wait", f"{TORCH}/multiprocessing/spawn.py", 87)]
        variables = [{"name": name, "value": value} for name, value in held[rank].items()]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack, variables=variables).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


def test_count_of_caught_errors_on_one_rank_names_the_handler_that_left_out_a_call(run: Path) -> None:
    """Nothing but the `except` changes the count, which begins at 0."""
    report = reported(run, ({"self.skipped": "0"}, {"self.skipped": "1"}))
    assert f"{LEFT_OUT}`self.skipped`, which line 13 counts up, is 1 on rank 1 and 0 on rank 0." in summary(report)
    assert advice(report).startswith(
        "Rank 1 had called 5 times from line 6, rank 0 6 times: print what line 12 catches, with its batch"
    )


def test_count_of_the_other_rank_need_not_be_known(run: Path) -> None:
    """The count of the rank that left out a call proves it alone."""
    report = reported(run, ({}, {"self.skipped": "1"}))
    assert f"{LEFT_OUT}`self.skipped`, which line 13 counts up, is 1 on rank 1." in summary(report)


def test_count_is_followed_to_the_callers_of_a_function_whose_stack_is_not_known(run: Path) -> None:
    """`self.opt.step()` is torch's: `step` is called at one line of the program, in the `try`."""
    report = reported(run, ({}, {"self.skipped": "1"}), ways=([IN_STEP[0]], IN_SUMMARY))
    assert f"{LEFT_OUT}`self.skipped`, which line 13 counts up, is 1 on rank 1." in summary(report)


def test_failure_that_the_handler_may_have_caught_itself_proves_nothing(run: Path) -> None:
    """The look-alike: the call of the rank failed, and that was no end of it."""
    report = reported(run, ({}, {"self.skipped": "1"}), ways=(IN_STEP, [IN_SUMMARY[0]]))
    assert "left out" not in summary(report)


def test_several_errors_are_told_as_several(run: Path) -> None:
    """Three of them, of which each may have left out a call."""
    report = reported(run, ({"self.skipped": "2"}, {"self.skipped": "3"}))
    assert "rank 1 left out calls of line 6 by errors that line 12" in summary(report)
    assert "is 3 on rank 1 and 2 on rank 0." in summary(report)


@pytest.mark.parametrize(
    ("held", "old", "new"),
    [
        (({}, {}), "", ""),
        (({"self.skipped": "1"}, {"self.skipped": "1"}), "", ""),
        (({}, {"self.skipped": "1"}), "self.skipped = 0\n", "self.skipped = start\n"),
        (({}, {"self.skipped": "1"}), "        self.summary()\n", "        self.skipped += 1; self.summary()\n"),
        (({}, {"self.skipped": "1"}), "trainer = Trainer(net)\n", "trainer = Trainer(net); trainer.skipped = 1\n"),
    ],
    ids=["nothing held", "as many", "from elsewhere", "counted elsewhere", "set from outside"],
)
def test_what_proves_no_error_leaves_the_handler_a_possibility(
    held: Sequence[Mapping[str, str]], old: str, new: str, run: Path
) -> None:
    """The look-alikes: the number is not known, the same on both, or may be another than that of the errors."""
    report = reported(run, held, PROGRAM.replace(old, new))
    assert "left out" not in summary(report)
    assert f"{BY_LOOP} after an error there." in summary(report)
    assert "an error that rank 1 alone caught there would cost it this collective" in advice(report)


def test_count_of_zero_rules_the_handler_out(run: Path) -> None:
    """Then the loop has fewer rounds on that rank."""
    report = reported(run, ({}, {"self.skipped": "0"}))
    assert "except" not in summary(report) + advice(report)
    assert "rank 1 had left the loop of line 9 after 5 calls from line 6, rank 0 was in its 6th" in summary(report)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("                self.skipped += 1\n", "                if late: self.skipped += 1\n"),
        ("        for batch in loader:\n", "        self.skipped = 0\n        for batch in loader:\n"),
    ],
    ids=["not each error", "set back"],
)
def test_zero_that_may_hide_an_error_rules_nothing_out(old: str, new: str, run: Path) -> None:
    """Counted in some cases only, or set back to 0 later."""
    source = PROGRAM.replace(old, new)
    moved = source.count("\n") - PROGRAM.count("\n")
    ways = [[(function, line + moved * (line > 8)) for function, line in way] for way in (IN_STEP, IN_SUMMARY)]
    report = reported(run, ({}, {"self.skipped": "0"}), source, ways)
    assert "goes on after an error there" in summary(report)


def test_lines_that_show_it_are_those_of_the_code(run: Path) -> None:
    """The call, what led there, the `except`, and what counts."""
    report = reported(run, ({}, {"self.skipped": "1"}))
    assert report.verdict is not None
    assert {item.line for item in report.verdict.code or ()} == {6, 11, 12, 13}
