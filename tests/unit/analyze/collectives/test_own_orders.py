"""Collectives in a loop over a dict whose keys each rank's data put in, and the near cases that have one order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.collectives import own_orders
from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.unit.analyze.collectives.test_sizes import Sizes, reported

SOURCE = """class Averager:
    def __init__(self, model):
        self.model, self.kept = model, {}
        self.kept["stem"] = list(model.stem.parameters())
    def meet(self, task):
        FILL
    def average(self):
        for name in self.kept:
            flat = torch.cat([p.grad.reshape(-1) for p in self.kept[name]])
            dist.all_reduce(flat)
def train(averager, loader):
    for batch in loader:
        for task, rows in groups(batch):
            averager.meet(task)
        averager.average()
"""
FILL = "if task not in self.kept: self.kept[task] = list(self.model.heads[task].parameters())"
WAY = [("Averager.average", 10), ("train", 15)]
MODEL = {
    "stem.weight": 400,
    "heads.rail.weight": 96,
    "heads.rail.bias": 4,
    "heads.hotel.weight": 196,
    "heads.hotel.bias": 4,
}
NEW: tuple[Sizes, Sizes] = ([[10], [1, 25]], [[10], [1, 50]])
PASSED = "goes through `self.kept` in the order in which each rank first put its keys in (line 6)"


def told(
    run: Path,
    source: str = SOURCE.replace("FILL", FILL),
    sizes: tuple[Sizes, Sizes] = NEW,
    models: Sequence[dict[str, int]] = (MODEL, MODEL),
    way: Sequence[tuple[str, int]] = WAY,
) -> Report:
    return reported(run, source, way, sizes, models=models)


@pytest.mark.parametrize(
    "fill",
    [
        FILL,
        "self.kept.setdefault(task, []).extend(self.model.heads[task].parameters())",
        "self.kept[task] += self.model.heads[task].parameters()",
        "self.kept[task].append(self.model.heads[task].weight)",
    ],
)
@pytest.mark.parametrize("loop", ["self.kept", "list(self.kept.keys())"])
def test_keys_that_data_puts_in_are_named_with_the_parts_of_the_model(fill: str, loop: str, run: Path) -> None:
    """Both models have both parts, of the same size."""
    report = told(
        run, SOURCE.replace("FILL", fill).replace("in self.kept:\n            flat", f"in {loop}:\n            flat")
    )
    assert PASSED in summary(report)
    assert "rank 0 was at that of `heads.rail`, rank 1 at that of `heads.hotel`" in summary(report)
    assert "put all keys into `self.kept` before training" in advice(report)
    assert "or go through `sorted(self.kept)`, which is enough only where every rank has every key" in advice(report)
    assert "undecidable" not in str(report)


def test_dict_that_is_handed_over_is_followed_to_its_function(run: Path) -> None:
    """The loop is in a function that is given it."""
    source = """def average(kept):
    for key, flat in kept.items():
        dist.all_reduce(flat)
def train(model, loader):
    groups = {}
    for batch in loader:
        for row in batch:
            groups.setdefault(row["task"], row["flat"])
        average(groups)
"""
    report = told(run, source, way=[("average", 3), ("train", 9)])
    assert "Line 2 (`for key, flat in kept.items():`) goes through `kept` in the order" in advice(report)
    assert "first put its keys in (line 8)" in summary(report)


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("FILL", FILL).replace("for name in self.kept:", "for name in sorted(self.kept):"),
        SOURCE.replace("FILL", FILL).replace("in groups(batch):", "in model.heads.named_children():"),
        SOURCE.replace("FILL", FILL).replace("task, rows in groups(batch):", "task in args.tasks:"),
        SOURCE.replace("FILL", 'self.kept["head"] = list(self.model.heads[task].parameters())'),
        SOURCE.replace("FILL", "self.kept[task.dtype] = list(self.model.heads[task].parameters())"),
        SOURCE.replace("FILL", "self.seen = task"),
    ],
)
def test_keys_of_one_order_are_no_reason(source: str, run: Path) -> None:
    """The look-alikes: sorted, the order of a model or of options, constant keys, those of dtypes, and no such line."""
    report = told(run, source)
    assert "first put its keys in" not in summary(report) + advice(report)


@pytest.mark.parametrize("skips", ["if flat.any(): dist", "if not self.kept[name]: continue\n            dist"])
def test_key_that_a_condition_skips_is_only_possible(skips: str, run: Path) -> None:
    """One rank may have left out a call."""
    source = SOURCE.replace("FILL", FILL).replace("            dist", f"            {skips}")
    line = 10 + skips.count("\n")
    report = told(run, source, way=[("Averager.average", line), ("train", line + 5)])
    assert "first put its keys in" not in summary(report)


@pytest.mark.parametrize("models", [(), (MODEL, {**MODEL, "stem.weight": 800})])
def test_other_models_or_none_recorded_leave_it_open(models: Sequence[dict[str, int]], run: Path) -> None:
    """Nothing shows that the ranks were at other keys: the sizes of one key may differ."""
    assert "first put its keys in" not in summary(told(run, models=models))


def test_sizes_that_come_later_in_the_other_order_show_it_alone(run: Path) -> None:
    """Of calls that all began before one failed; no model need be known, and a condition skips none."""
    sizes: tuple[Sizes, Sizes] = ([[10], [1, 25], [1, 50]], [[10], [1, 50], [1, 25]])
    report = told(run, sizes=sizes, models=())
    assert f"{PASSED}, which differs" in summary(report)
    assert "(each rank passed the same sizes, in another order)" in advice(report)


@pytest.mark.parametrize(("first", "named"), [(10, True), (11, False)])
def test_key_that_is_new_in_the_step_is_probably_another_one(first: int, named: bool, run: Path) -> None:
    """Both ranks made the calls of the step before, and one more; not where those of the step differ already."""
    program = str(program_in(run, SOURCE.replace("FILL", FILL)))
    job = Ranks(2)
    library = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    stack = [library, *((function, program, line) for function, line in WAY)]
    for rank, (box, last) in enumerate(zip(job.boxes, (25, 50), strict=True)):
        by, number = box.site(stack[0], stack[1]), 0
        for step, shapes in ((1, [10]), (2, [first, last])):
            box.step(step)
            for shape in shapes:
                number += 1
                state = "failed" if shape == last else "completed"
                box.collective(
                    "allreduce_", group=job.groups[rank]["0"], by=by, sequence_nr=number, state=state, sizes=[shape],
                    nbytes=4 * shape,
                )  # fmt: skip
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    report = build_report(job.job(run))
    assert (f"{PASSED}, which may differ" in summary(report)) == named
    assert ("if both are at the same key there" in advice(report).lower()) == named
    assert "Do not pad or cut the tensor" not in advice(report)


def test_rows_of_uneven_data_are_not_laid_to_the_order_of_keys(run: Path) -> None:
    """Gathered, and only their number differs: one key has more of them on one rank."""
    source = SOURCE.replace("FILL", FILL).replace("dist.all_reduce(flat)", "dist.all_gather(out, self.held())")
    said = advice(reported(run, source, WAY, ([[101, 5]], [[100, 5]]), "allgather_"))
    assert "in the order in which" not in said and "smaller on one rank: pad it" in said
    assert "in the order in which" in advice(reported(run, source, WAY, ([[101]], [[100]]), "allgather_"))


@pytest.mark.parametrize(("before", "named"), [([10, 20], False), ([], True)])
def test_key_of_the_step_before_is_no_other_part_for_its_size(
    before: list[int], named: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of a dict stays: what came at this place before, alike on both, comes there again."""
    monkeypatch.setattr(own_orders, "parts_passed", lambda *_: ("heads.rail", "heads.hotel"))
    program = str(program_in(run, SOURCE.replace("FILL", FILL)))
    job = Ranks(2)
    library = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    stack = [library, *((function, program, line) for function, line in WAY)]
    for rank, (box, last) in enumerate(zip(job.boxes, (25, 50), strict=True)):
        by, number = box.site(stack[0], stack[1]), 0
        for step, shapes in ((1, before), (2, [last])):
            box.step(step)
            for shape in shapes:
                number += 1
                state = "failed" if shape == last else "completed"
                box.collective(
                    "allreduce_", group=job.groups[rank]["0"], by=by, sequence_nr=number, state=state, sizes=[shape],
                    nbytes=4 * shape,
                )  # fmt: skip
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    assert ("first put its keys in" in summary(build_report(job.job(run)))) == named
