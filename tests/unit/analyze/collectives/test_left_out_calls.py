"""Calls that one rank left out in a round of both: the `if`, the gradient or the key by which, and what is no such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import NamedTensor
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, finding, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

Way = Sequence[tuple[str, int]]  # functions and their lines, the innermost first
Shape = Sequence[int]
MODEL = {"body.weight": 80, "body.bias": 20, "head.weight": 48}
BODY, BIAS, HEAD = [5, 4], [5], [3, 4]
ROUND = [BODY, BIAS, HEAD]
NO_MODEL: tuple[Mapping[str, int], ...] = ({}, {})


def reported(
    run: Path,
    source: str,
    before: Sequence[Shape],
    mine: tuple[str, Way, Shape],
    theirs: tuple[str, Way, Shape],
    models: Sequence[Mapping[str, int]] = (MODEL, MODEL),
    values: Sequence[Mapping[str, str]] = ({}, {}),
) -> Report:
    """Both ranks call all_reduce of `before` from the line of rank 0's last call; then each (op, lines, size).

    `values`: the variables of the innermost function of each.
    """
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    for rank, (op, way, shape) in enumerate((mine, theirs)):
        box, group = job.boxes[rank], job.groups[rank]["0"]
        stack = [in_torch, *((function, program, line) for function, line in way)]
        first = (mine[1][0][0], program, mine[1][0][1])
        calls = [("allreduce_", size, first, "completed") for size in before]
        calls += [(op, shape, (way[0][0], program, way[0][1]), "failed")]
        for number, (name, size, line, state) in enumerate(calls, 1):
            nbytes = 4 * size[0] * (size[1] if len(size) > 1 else 1)
            root = 0 if name == "broadcast_" else -1
            by = box.site(in_torch, line)
            box.collective(
                name, group=group, by=by, sequence_nr=number, state=state, sizes=size, nbytes=nbytes, root=root
            )
        held = [{"name": name, "value": value} for name, value in values[rank].items()]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack, variables=held).exit(1)
        job.endings[rank] = {"exit_code": 1}
    loaded = job.job(run)
    named: list[dict[int, tuple[NamedTensor, ...]]] = [
        {
            (1 << 40) + at: (NamedTensor(f"parameter {name}", "parameter", at, at, nbytes, 1, earlier=False),)
            for at, (name, nbytes) in enumerate(model.items())
        }
        for model in models
    ]
    processes = tuple(
        replace(item, snapshot=replace(item.snapshot, named=named[item.rank])) if item.rank is not None else item
        for item in loaded.processes
    )
    return build_report(replace(loaded, processes=processes))


GRADIENTS = """class Net(Module):
    def forward(self, x, y):
        h = self.body(x)
        if y is not None:
            h = h + self.head(y)
        return h
def average(model):
    for p in model.parameters():
        {0}
            dist.all_reduce(p.grad)
def main():
    for x in data:
        backward(x)
        average(model)
        {1}
    dist.broadcast(model, 0)
"""
TEST = "if p.grad is not None:"
SKIPPED = f"; line 9 (`{TEST}`) skipped the all_reduce on rank 1, where the gradient of `head.weight` was None"


def averaged(run: Path, test: str = TEST, more: str = "pass", calls: int = 5, **options: object) -> Report:
    """Rank 1 is behind the loop after so many calls of both, and rank 0 calls one more."""
    before = [ROUND[n % 3] for n in range(calls)]
    ways = [("average", 10), ("main", 14)], [("main", 16)]
    models = options.get("models", (MODEL, MODEL))
    assert isinstance(models, tuple)
    return reported(
        run,
        GRADIENTS.format(test, more),
        [*ROUND, *ROUND, *before],
        ("allreduce_", ways[0], ROUND[calls % 3]),
        ("broadcast_", ways[1], [4]),
        models,
    )


def test_gradient_that_is_none_on_one_rank(run: Path) -> None:
    """In a round whose first calls both made: with the parameter, and the branch of forward() that runs its layer."""
    report = averaged(run)
    assert f"{SKIPPED}: `head` runs only below `if y is not None:` (line 4)." in summary(report)
    said = advice(report)
    assert said.startswith("Make the same calls on all ranks: set gradients that are None to zeros first")
    assert "find_unused_parameters=True" in said and "run `head` in each step" in said
    found = finding(report, "collective-mismatch")
    assert found is not None and found.confidence == "certain" and not found.missing


@pytest.mark.parametrize("test", ["if p.grad is not None and p.ndim:", "if (g := p.grad) is not None:"])
def test_other_ways_to_ask_for_a_gradient(test: str, run: Path) -> None:
    """A second condition beside it, and a name that it gets on the way."""
    assert "the gradient of `head.weight` was None" in summary(averaged(run, test))


def test_frozen_parameter(run: Path) -> None:
    """An `if` that asks for requires_grad."""
    report = averaged(run, "if p.requires_grad:", "p.requires_grad_(False)")
    assert "line 9 (`if p.requires_grad:`) skipped the all_reduce on rank 1, where the parameter is frozen" in summary(
        report
    )
    assert "freeze the same parameters on all ranks, in the same step (line 15)" in advice(report)


@pytest.mark.parametrize("thaws", ["p.requires_grad_()", "p.requires_grad_(True)", "p.requires_grad = True"])
def test_line_that_thaws_a_parameter(thaws: str, run: Path) -> None:
    """The look-alike: it is none of those that freeze."""
    assert "in the same step," in advice(averaged(run, "if p.requires_grad:", thaws))


@pytest.mark.parametrize(
    "options",
    [
        {"calls": 6},
        {"test": "if p.grad is None: break\n        if True:"},
        {"models": (MODEL, {"body.weight": 80, "body.bias": 20})},
    ],
    ids=["whole-rounds", "break", "other-model"],
)
def test_rank_that_may_have_had_fewer_rounds_or_parameters(options: dict[str, object], run: Path) -> None:
    """The look-alikes: rank 0 begins a round, the loop may end early, or rank 1 has no such parameter."""
    report = averaged(run, **options)  # type: ignore[arg-type]
    assert "skipped" not in summary(report)
    assert ("; the model of rank 1 has no parameter `head.weight`." in summary(report)) is ("models" in options)


def test_next_round_of_the_rank_that_skipped_a_call(run: Path) -> None:
    """It is at the same line with another size then."""
    way = [("average", 10), ("main", 14)]
    report = reported(
        run,
        GRADIENTS.format(TEST, "pass"),
        [*ROUND, *ROUND, BODY, BIAS],
        ("allreduce_", way, HEAD),
        ("allreduce_", way, BODY),
    )
    assert SKIPPED in summary(report)


LOOP = """def worst(loss):
    {0}
        value = loss.clone()
        dist.all_reduce(value)
def main():
    for step in range(9):
        loss = run()
        worst(loss)
        {1}
        dist.broadcast(loss, 0)
"""


def test_condition_that_one_rank_passed_by(run: Path) -> None:
    """The only one on the way from the line at which the ranks part."""
    mine, theirs = [("worst", 4), ("main", 8)], [("main", 10)]
    source = LOOP.format("if loss > 3:", "pass")
    report = reported(run, source, [], ("allreduce_", mine, [1]), ("broadcast_", theirs, [1]), NO_MODEL)
    assert "; line 2 (`if loss > 3:`) skipped the all_reduce on rank 1." in summary(report)
    assert advice(report).startswith("Line 2 (`if loss > 3:`) decides about the call, and came out differently on rank")


@pytest.mark.parametrize(
    "line",
    [
        "[dist.all_reduce(item) for item in loss]",
        "due and dist.all_reduce(value)",
        "dist.all_reduce(value) if due else None",
    ],
    ids=["comprehension", "and", "choice"],
)
def test_line_that_decides_itself(line: str, run: Path) -> None:
    """The `if` around it is not the only one that can have decided."""
    mine, theirs = [("worst", 4), ("main", 8)], [("main", 10)]
    source = LOOP.format("if loss > 3:", "pass").replace("dist.all_reduce(value)", line)
    report = reported(run, source, [], ("allreduce_", mine, [1]), ("broadcast_", theirs, [1]), NO_MODEL)
    assert "skipped" not in summary(report)


@pytest.mark.parametrize(
    "test",
    [
        "if loss > 3:\n        if more():",
        "for value in loss:\n        if value > 3:",
        "try:\n        if loss > 3:",
    ],
    ids=["two-conditions", "loop", "try"],
)
def test_several_that_may_have_decided(test: str, run: Path) -> None:
    """The look-alikes: no one of them is named for the headline."""
    source = LOOP.format(test, "pass").replace("\n        value", "\n            value")
    source = source.replace("        dist.all_reduce", "            dist.all_reduce")
    mine, theirs = [("worst", 5), ("main", 9)], [("main", 11)]
    if test.startswith("try"):
        source = source.replace("def main", "    except ValueError:\n        pass\ndef main")
        mine, theirs = [("worst", 5), ("main", 11)], [("main", 13)]
    report = reported(run, source, [], ("allreduce_", mine, [1]), ("broadcast_", theirs, [1]), NO_MODEL)
    assert "skipped" not in summary(report)


KEYS = """def measured(batch):
    out = {{"loss": batch.mean()}}
    if batch.any():
        out["recall"] = batch.sum()
    return out
def share(metrics):
    for name in {0}:
        dist.all_reduce(metrics[name])
def main():
    for batch in data:
        metrics = measured(batch)
        share(metrics)
        dist.broadcast(batch, 0)
"""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("sorted(metrics)", ": `recall` is set only below `if batch.any():` (line 3)."),
        ("metrics.keys()", ": `recall` is set only below `if batch.any():` (line 3)."),
        ("names", None),
    ],
)
def test_keys_that_one_rank_does_not_have(given: str, words: str | None, run: Path) -> None:
    """The look-alike goes through names that may be a list."""
    mine, theirs = [("share", 8), ("main", 12)], [("main", 13)]
    report = reported(run, KEYS.format(given), [[1]], ("allreduce_", mine, [1]), ("broadcast_", theirs, [1]), NO_MODEL)
    assert ("has fewer keys on rank 1" in summary(report)) is (words is not None)
    if words is not None:
        assert words in summary(report) and "`recall` is set only below" in advice(report)


ADDED = """def measured(batch):
    out = dict(loss=batch.mean())
    extra = more(batch)
    if extra is not None:
        out.update(extra)
    return out
def share(metrics):
    logged = {0}
    for name, value in logged.items():
        dist.all_reduce(value)
def main():
    for batch in data:
        metrics = measured(batch)
        share(metrics)
        dist.broadcast(batch, 0)
"""


@pytest.mark.parametrize(
    ("logged", "words"),
    [
        ("OrderedDict((k, v.mean()) for k, v in metrics.items())", True),
        ("{k: v.mean() for k, v in metrics.items()}", True),
        ("{k: v.mean() for k, v in metrics.items() if v.numel()}", False),  # some of them
        ("{v: k for k, v in metrics.items()}", False),
        ("{k: metrics[k] for k in names}", False),
    ],
)
def test_dict_that_is_added_to_one_whose_keys_are_copied(logged: str, words: bool, run: Path) -> None:
    """The look-alikes have keys of their own."""
    mine, theirs = [("share", 10), ("main", 14)], [("main", 15)]
    source = ADDED.replace("{0}", logged)
    report = reported(run, source, [[1]], ("allreduce_", mine, [1]), ("broadcast_", theirs, [1]), NO_MODEL)
    assert "has fewer keys on rank 1" in summary(report)
    assert ("`extra` is added only below `if extra is not None:` (line 4)" in summary(report)) is words
    assert ("add its keys in each case, with 0" in advice(report)) is words


def test_condition_in_a_loop_over_numbers_whose_call_is_the_first_one(run: Path) -> None:
    """No rank had made it before; both had left the loop of fixed rounds inside, or are in it again."""
    mine, theirs = [("fit", 6)], [("fit", 4)]
    source = """def fit(x, y):
    for epoch in range(30):
        for _ in range(4):
            dist.all_reduce(x)
        if score(x) < 3:
            dist.broadcast(y, 0)
"""
    report = reported(run, source, [], ("broadcast_", mine, [4]), ("allreduce_", theirs, [4]), NO_MODEL)
    assert "; line 5 (`if score(x) < 3:`) skipped the broadcast on rank 1." in summary(report)


SAVED = """def evaluate(model):
    total = zeros(1)
    dist.reduce(total, dst=0)
    return total.item()
def main(model):
    best = 9.0
    for epoch in range(3):
        loss = evaluate(model)
        if loss < best:
            dist.all_reduce(model)
        {later}
    dist.broadcast(model, 0)
"""


@pytest.mark.parametrize(
    ("later", "values", "shown"),
    [
        ("step()", ("0.6247129440307617", "1.0916507244110107"), " (0.624713 on rank 0, 1.09165 on rank 1)"),
        ("step()", ("0.25", "0.5"), " (0.25 on rank 0, 0.5 on rank 1)"),
        ("step()", ("0.12345678", "0.12345679"), " (0.12345678 on rank 0, 0.12345679 on rank 1)"),
        ("step()", ("0.25", "0.25"), ""),
        ("loss = 0.5", ("0.25", "0.5"), ""),
    ],
    ids=["six-digits", "short", "nearly-alike", "alike", "set-later"],
)
def test_value_of_one_rank_with_what_it_was(later: str, values: tuple[str, str], shown: str, run: Path) -> None:
    """As each had it when it ended; not where it was the same, or may have been set since."""
    mine, theirs = ("allreduce_", [("main", 10)], [4]), ("broadcast_", [("main", 12)], [4])
    held = [{"loss": value} for value in values]
    report = reported(run, SAVED.format(later=later), [], mine, theirs, NO_MODEL, held)
    assert (
        f"`loss` of line 9 (`if loss < best:`) differs between ranks{shown}, as line 3 (`dist.reduce(total, dst=0)`) "
        "leaves the result on rank 0 only."
    ) in summary(report)


FETCH = """def fetch(path, rank):
    if os.path.exists(path):
        return path
    if rank != 0:
        dist.barrier()
    download(path)
    {0}:
        {1}
    return path
def main():
    fetch("model.pt", dist.get_rank())
    dist.broadcast(weights, 0)
"""


@pytest.mark.parametrize(
    ("test", "call", "is_paired"),
    [
        ("if rank == 0", "dist.barrier()", True),
        ("if rank == 1", "dist.barrier()", False),
        ("if rank == 0", "log(path)", False),
    ],
)
def test_branches_on_the_rank_that_belong_together_decide_nothing(
    test: str, call: str, is_paired: bool, run: Path
) -> None:
    """Each rank comes to one of the two barriers, unless an earlier condition leads it past both."""
    mine, theirs = [("main", 12)], [("fetch", 5), ("main", 11)]
    source = FETCH.format(test, call)
    report = reported(run, source, [], ("broadcast_", mine, [4]), ("barrier", theirs, [1]), NO_MODEL)
    assert ("line 2 (`if os.path.exists(path):`) skipped the barrier on rank 0" in summary(report)) is is_paired
    assert ("line 4" in advice(report)) is not is_paired


ACCUMULATED = """def train(batches):
    done = 0
    for x in batches:
        if {0}:
            continue
        done += 1
        with nullcontext() if done % 4 == 0 else model.no_sync():
            dist.all_reduce(x)
def main():
    train(data)
    dist.broadcast(weights, 0)
"""


def test_rounds_that_a_continue_may_have_left_out_are_counted(run: Path) -> None:
    """Which rounds communicate at all depends on a number that it changes, so that nothing is sure of one round."""
    source = ACCUMULATED.format("not x.isfinite().all()")
    mine, theirs = ("allreduce_", [("train", 8), ("main", 10)], [4]), ("broadcast_", [("main", 11)], [4])
    report = reported(run, source, [[4], [4]], mine, theirs, NO_MODEL)
    assert (
        "rank 1 had called 2 times from line 8, rank 0 3 times, and line 4 (`if not x.isfinite().all():`) may have "
        "left out a round there" in summary(report)
    )
    never = reported(run, source, [], mine, theirs, NO_MODEL)
    assert "may have left out a round" not in summary(never)
