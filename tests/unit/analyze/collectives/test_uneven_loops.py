"""Loops that one rank left earlier: the samples of its loader, and lines that alone can have led to a function."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.ways import Side, completed
from pytracer.analyze.engine import build_report
from pytracer.blackbox.numbers import Entry
from pytracer.report.job import PythonFrame, Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame
from tests.unit.analyze.collectives.test_calls_behind import LOADER, PROGRAM, reported

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**13)
PLAIN = {**LOADER, "sampler": "RandomSampler", "distributed": False, "plain": True}
SOURCE = PROGRAM.replace("            if loss is None:\n                continue\n", "\n\n")


def test_shared_data_set_must_be_the_same(run: Path) -> None:
    """A DistributedSampler gives parts of its own data set, which has another length here."""
    report = reported(run, SOURCE, samples=(96, 150))
    assert summary(report).endswith(
        "; rank 0 had left the loop of line 8 after 5 calls from line 12, rank 1 was in its 6th; the DataLoader has 96 "
        "samples on rank 0 and 150 on rank 1."
    )
    assert advice(report).endswith(
        "and has more rounds on rank 1: the DataLoader has 96 samples on rank 0 and 150 on rank 1. DistributedSampler "
        "shares out one data set, which must be the same on all ranks: compare its len() on all ranks, and what makes "
        "it."
    )


def test_more_samples_on_the_rank_that_left_are_no_reason(run: Path) -> None:
    """The look-alike: something else ended the loop there."""
    report = reported(run, SOURCE, samples=(150, 96))
    assert summary(report).endswith(
        "; rank 0 had left the loop of line 8 after 5 calls from line 12, rank 1 was in its 6th."
    )
    assert "samples" not in advice(report)


def test_data_set_of_each_rank(run: Path) -> None:
    """Of other lengths, without a sampler that shares one out."""
    source = SOURCE.replace("sampler=DistributedSampler(rows)", "shuffle=True")
    report = reported(run, source, (PLAIN, PLAIN), samples=(96, 150))
    assert summary(report).endswith("; the DataLoader has 96 samples on rank 0 and 150 on rank 1.")
    assert "Give all ranks as many: share out one data set by a DistributedSampler, or end each loop" in advice(report)


@pytest.mark.parametrize(("samples", "cut"), [((95, 96), True), ((90, 96), False)])
def test_split_that_leaves_a_rank_one_more_is_to_be_cut(samples: tuple[int, int], cut: bool, run: Path) -> None:
    """At its line; the look-alike differs by more than the split makes."""
    source = SOURCE.replace(
        "DataLoader(rows, sampler=DistributedSampler(rows))", "DataLoader(rows[rank::world], shuffle=True)"
    )
    said = advice(reported(run, source, (PLAIN, PLAIN), samples=samples))
    assert ("Give all ranks as many: at line 14 cut `rows` to a multiple of the number n of ranks" in said) is cut
    assert "smallest len(loader)" in said


@pytest.mark.parametrize(
    ("options", "samples", "batches", "drop"),
    [
        ("batch_size=32", (96, 97), "(3 and 4 batches of at most 32)", "so that each has 3"),
        ("batch_size=32, drop_last=True", (95, 96), "(2 and 3 batches of at most 32)", None),
        ("batch_size=size()", (96, 97), None, None),  # not known
        ("batch_size=8, **more", (96, 97), None, None),
    ],
)
def test_batches_follow_from_the_size_that_the_source_has(
    options: str, samples: tuple[int, int], batches: str | None, drop: str | None, run: Path
) -> None:
    """With what leaves out the one that a rank has more."""
    source = SOURCE.replace(
        "DataLoader(rows, sampler=DistributedSampler(rows))",
        f"DataLoader(torch.split(rows, half)[proc_id], shuffle=True, {options})",
    )
    report = reported(run, source, (PLAIN, PLAIN), samples=samples)
    assert ("batches of at most" in summary(report)) is (batches is not None) and (batches or "") in summary(report)
    assert "line 14 (`torch.split(rows, half)[proc_id]`) gives each rank items of its own" in summary(report)
    assert "at line 14 cut `rows` to a multiple" in advice(report)
    assert ("drop_last" in advice(report)) is (drop is not None) and (drop or "") in advice(report)


def test_as_many_batches_of_other_samples_are_no_reason(run: Path) -> None:
    """The look-alike: the last one is smaller on a rank."""
    source = SOURCE.replace("sampler=DistributedSampler(rows)", "shuffle=True, batch_size=32")
    said = summary(reported(run, source, (PLAIN, PLAIN), samples=(95, 96)))
    assert "samples on rank" not in said


def test_draw_that_makes_the_data_set_is_told_with_its_seed(run: Path) -> None:
    """On each rank for itself; as many samples on both are no reason."""
    source = "import random\n" + SOURCE.replace(
        "DataLoader(rows, sampler=DistributedSampler(rows))",
        "DataLoader([row for row in every() if random.random() < 0.5], sampler=DistributedSampler(rows))",
    )
    ways = [("main", 19)], [("Trainer.epoch", 13), ("main", 18)]
    report = reported(run, source, samples=(96, 150), ways=ways)
    said = "; line 15 (`random.random`) draws on each rank for itself: no line seeds `random`. Ranks were at different"
    assert summary(report).startswith("In program.py, rank 0 had left the loop of line 9") and said in summary(report)
    assert "seed `random` with one number on all ranks before line 15, or draw on one rank" in advice(report)
    assert "join()" not in advice(report)
    alike = source.replace("import random", "import random; random.seed(1)")
    assert "draws on each rank" not in summary(reported(run, alike, samples=(96, 150), ways=ways))


def test_break_may_have_ended_it(run: Path) -> None:
    """The look-alike: the number of samples is then no reason, and the condition is named."""
    source = SOURCE.replace(
        "            loss.backward()\n", "            loss.backward()\n            if late(): break\n"
    )
    ways = [("main", 19)], [("Trainer.epoch", 12), ("main", 18)]
    report = reported(run, source, samples=(96, 150), ways=ways)
    assert "samples" not in summary(report)
    assert summary(report).endswith("after 5 calls from line 12, rank 1 was in its 6th.")
    assert "See whether line 13 (`if late(): break`), which ends it, came out differently" in advice(report)


TRAIN = """\
def epoch(net):
    for x in rows:
        net(x)
def check():
    reduce()
def main():
    epoch(net)
    check()
main()
"""


def led(folder: Path, source: str) -> list[tuple[str | None, int | None]]:
    """The way to line 3 of epoch(), beside a rank that is in check()."""
    file = str(folder / "train.py")
    Path(file).write_text(source)
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=SNAPSHOT, rank=0))
    frame = PythonFrame(file=file, function="epoch", line=3)
    other = [("<module>", 9), ("main", 8), ("check", 5)]
    call: Any = None
    there = Side(view, tuple(PythonFrame(file=file, function=name, line=line) for name, line in other), call)
    return [(item.function, item.line) for item in completed(Side(view, (frame,), call), there)[0].way]


def test_way_of_an_unknown_stack_is_completed(tmp_path: Path) -> None:
    """Where one line alone calls its function, in a function that the other rank is in, too."""
    assert led(tmp_path, TRAIN) == [("<module>", 9), ("main", 7), ("epoch", 3)]


def test_way_through_a_function_between(tmp_path: Path) -> None:
    """run() is on the way of neither."""
    source = TRAIN.replace("    epoch(net)\n", "    run(net)\n") + "def run(net):\n    epoch(net)\n"
    assert led(tmp_path, source) == [("<module>", 9), ("main", 7), ("run", 11), ("epoch", 3)]


@pytest.mark.parametrize("more", ["epoch(other)\n", "fit(epoch)\n", "class Other:\n    def epoch(self): ...\n"])
def test_way_that_may_be_another(more: str, tmp_path: Path) -> None:
    """The look-alikes: two calls, a function that is handed on, two of one name."""
    assert led(tmp_path, TRAIN + more) == [("epoch", 3)]


def finished(run: Path, source: str, samples: tuple[int, int], line: int = 12) -> Report:
    """Rank 0 is done after five calls of both from a line of epoch(); rank 1 makes a sixth, which fails."""
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    here: Frame = ("Trainer.epoch", program, line)
    for rank in (0, 1):
        box, group = job.boxes[rank], job.groups[rank]["0"]
        box._json(Entry.LOADER, {**LOADER, "initialized": True, "samples": samples[rank]})
        by = box.site(in_torch, here)
        for number in range(1, 6 + rank):
            state = "failed" if number > 5 else "completed"
            box.collective("allreduce_", group=group, by=by, sequence_nr=number, state=state, sizes=[40], nbytes=160)
    stack: list[Frame] = [in_torch, here, ("main", program, 17), ("<module>", program, 19)]
    job.boxes[1].at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.done(0)
    return build_report(job.job(run))


def test_rank_that_finished_with_fewer_samples(run: Path) -> None:
    """It left for good, while the other one went on."""
    report = finished(run, SOURCE, (96, 150))
    assert summary(report).endswith("; the DataLoader has 96 samples on rank 0 and 150 on rank 1.")
    assert advice(report).startswith("The loop of line 8 (`for batch in loader:`) is uneven: the DataLoader has 96")
    assert "must be the same on all ranks" in advice(report)


@pytest.mark.parametrize(("more", "samples"), [("", (96, 96)), ("            if late(): break\n", (96, 150))])
def test_rank_that_finished_for_another_reason(more: str, samples: tuple[int, int], run: Path) -> None:
    """The look-alikes: as many samples, and a `break`."""
    source = SOURCE.replace("            loss.backward()\n", f"            loss.backward()\n{more}")
    report = finished(run, source, samples)
    assert "finished after 5 collectives" in summary(report)
    assert "samples" not in summary(report)
