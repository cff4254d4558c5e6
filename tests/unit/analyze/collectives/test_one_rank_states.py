"""A loop's condition that asks what one rank alone changes; and loops that both ranks had gone through."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import CLOSED, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

SOURCE = """class State:
    def __init__(self, rank):
        self.rank, self.bad, self.best = rank, 0, None
    @property
    def is_head(self):
        return self.rank == 0
class Trainer:
    def step(self, batch):
        dist.all_reduce(grads(batch))
    def epoch(self, data):
        for batch in data:
            self.step(batch)
    def evaluate(self, state):
        dist.all_reduce(score)
        return score.item()
    def keep(self, state, score):
        if state.is_head and (state.best is None or score > state.best):
            save(state)
            state.best = score
            state.bad = 0
        else:
            state.bad += 1
    def goes_on(self, state):
        return state.bad < self.patience
    def fit(self, state, data):
        while self.goes_on(state):
            self.epoch(data)
            score = self.evaluate(state)
            self.keep(state, score)
def main(rank, world, data):
    Trainer().fit(State(rank), data[rank::world])
"""
STEP, EVALUATE = ("Trainer.step", 9), ("Trainer.evaluate", 14)
ROUND = [STEP, STEP, EVALUATE]
WAY = [STEP, ("Trainer.epoch", 12), ("Trainer.fit", 27), ("main", 31)]
Frame = tuple[str, int]


def left(
    run: Path, source: str = SOURCE, calls: list[Frame] | None = None, way: list[Frame] | None = None, rank: int = 1
) -> Report:
    """A rank has ended well after some calls; the other one is in its next one, which failed."""
    program, way = str(program_in(run, source)), way or WAY
    calls = calls if calls is not None else [*ROUND, *ROUND]
    job, waits = Ranks(2), 1 - rank
    library = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    for number, box in enumerate(job.boxes):
        for place, (name, line) in enumerate([*calls, *(way[:1] if number == waits else [])], 1):
            by, group = box.site(library, (name, program, line)), job.groups[number]["0"]
            state = "completed" if place <= len(calls) else "failed"
            box.collective("allreduce_", group=group, by=by, sequence_nr=place, state=state, sizes=[4], nbytes=16)
    stack = [library, *((name, program, line) for name, line in way)]
    job.boxes[waits].at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
    job.endings[waits] = {"exit_code": 1}
    job.done(rank)
    return build_report(job.job(run))


def test_count_that_one_rank_alone_sets_back_is_the_reason(run: Path) -> None:
    """The ranks part in the loop around both calls, by what one rank alone changes; the property is followed."""
    report = left(run)
    assert summary(report).startswith(
        "Rank 1 had left the loop of line 26 (`while self.goes_on(state):`): `state.bad` is set to 0 only on rank 0 "
        "(line 17: `if state.is_head and ...`), so it reaches `self.patience` on the others. It finished after 6"
    )
    assert "Change `state.bad` on all ranks alike: take line 20 (`state.bad = 0`) out" in advice(report)
    assert "broadcast the decision of one rank" in advice(report)
    assert "data[rank::world]" not in summary(report)


KEEP = SOURCE[SOURCE.index("        if state.is_head") : SOURCE.index("    def goes_on")]


def with_keep(*lines: str) -> str:
    """The source with other lines in keep(), as many."""
    count = KEEP.count("\n")
    return SOURCE.replace(KEEP, "".join(f"        {line}\n" for line in [*lines, *["pass"] * (count - len(lines))]))


ALIKE = with_keep("if state.is_head:", "    state.bad = 0", "else:", "    state.bad = 0")
SAVES = with_keep(
    "if state.best is None or score > state.best:", "    state.best, state.bad = score, 0", "    if state.is_head:",
    "        save(state)", "else:", "    state.bad += 1",
)  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        SAVES,
        ALIKE,
        SOURCE.replace("            self.keep(state, score)", "            self.keep(state, score); self.share(state)")
        + "class More:\n    def share(self, state):\n        state.bad = first(state.bad)\n",
        SOURCE + "def share(state):\n    dist.broadcast_object_list([state.bad], src=0)\n",
        SOURCE + "def share(state):\n    dist.broadcast_object_list([state], src=0)\n",
        SOURCE.replace("return state.bad < self.patience", "return agreed(state.bad < self.patience)"),
        SOURCE.replace("state.is_head and (", "state.is_good and ("),
        SOURCE.replace("state.bad < self.patience", "state.round < self.rounds"),
    ],
)
def test_nothing_is_said_of_what_all_ranks_change_or_share(source: str, run: Path) -> None:
    """A branch that only saves, both branches alike, and what is broadcast or reduced."""
    said = summary(left(run, source))
    assert "only on rank 0" not in said and "data[rank::world]" not in said
    assert "may have left the loop of line 26" in said


def test_rank_that_sets_it_back_does_not_leave_by_it(run: Path) -> None:
    """Rank 0 would have stayed."""
    assert "only on rank 0" not in summary(left(run, rank=0))


def test_count_of_one_rank_alone(run: Path) -> None:
    """That one leaves."""
    source = with_keep("if state.is_head and score < state.best:", "    state.bad += 1")
    said = summary(left(run, source, rank=0))
    assert "Rank 0 had left the loop of line 26" in said
    assert "`state.bad` is counted only on rank 0 (line 17: `if state.is_head and score < state.best`), so it" in said
    assert "only on rank 0" not in summary(left(run, source, rank=1))


def test_function_that_one_rank_alone_calls(run: Path) -> None:
    """The branch is around the call; on the others the count is never set back."""
    source = with_keep("state.bad = 0").replace(
        "            self.keep(state, score)\n",
        "            state.bad += 1\n            if state.rank == 0:\n                self.keep(state, score)\n",
    )
    said = summary(left(run, source, way=[*WAY[:3], ("main", 33)]))
    assert "`state.bad` is set to 0 only on rank 0 (line 30: `if state.rank == 0`)" in said


def test_number_of_all_ranks_is_no_reason_where_all_set_it_back(run: Path) -> None:
    """In each round, so that no rank's count grows over it."""
    source = SOURCE.replace("        return score.item()", "        state.bad = 0; return score.item()")
    assert "only on rank 0" not in summary(left(run, source))


LOCAL = """def main(rank, data, args):
    bad, best = 0, None
    for epoch in range(args.epochs):
        for batch in data[rank::2]:
            dist.all_reduce(grads(batch))
        dist.all_reduce(score)
        if {0} and score < best:
            best, bad = score, 0
        else:
            bad += 1
        if bad >= args.patience:
            break
"""


@pytest.mark.parametrize(
    ("test", "words"),
    [("rank == 0", "rank 0"), ("args.local_rank == 0", "local rank 0"), ("is_main_process()", "the main process")],
)
def test_break_by_a_variable_of_the_function(test: str, words: str, run: Path) -> None:
    """Of a break, and of a rank that is asked in other ways."""
    one, two = ("main", 5), ("main", 6)
    said = summary(left(run, LOCAL.format(test), [one, one, two, one, one, two], [one]))
    assert (
        "Rank 1 had left the loop of line 3 (by line 11: `if bad >= args.patience:`): `bad` is set to 0 only on "
        f"{words} (line 7: `if {test} and score < best`), so it reaches `args.patience` on the others." in said
    )


def test_condition_that_one_rank_alone_asks_says_more(run: Path) -> None:
    """Who changes what it asks is then no question."""
    source = LOCAL[: LOCAL.index("        if {0}")]
    source += (
        "        if rank == 0:\n            bad += 1\n            if bad >= args.patience:\n                return\n"
    )
    one, two = ("main", 5), ("main", 6)
    said = summary(left(run, source, [one, one, two, one, one, two], [one], rank=0))
    assert "by line 9 (`if bad >= args.patience:`), to which it comes alone" in said


def test_inner_loop_with_the_last_common_call_is_uneven(run: Path) -> None:
    """There the rank left it, in the middle of a round of the outer one."""
    said = summary(left(run, SAVES, [*ROUND, STEP]))
    assert "the rounds of the loop of line 11 may depend on the rank (line 31: `data[rank::world]`)" in said


def test_call_before_the_inner_loop_does_not_end_it(run: Path) -> None:
    """Both are in the same round of the outer loop, in which the inner one may be shorter."""
    source = SAVES.replace(
        "            self.epoch(data)\n            score = self.evaluate(state)\n",
        "            score = self.evaluate(state)\n            self.epoch(data)\n",
    )
    way = [STEP, ("Trainer.epoch", 12), ("Trainer.fit", 28), ("main", 31)]
    said = summary(left(run, source, [EVALUATE, STEP, STEP, EVALUATE], way))
    assert "the rounds of the loop of line 11 may depend on the rank" in said


def test_function_that_the_inner_loop_calls_too_does_not_end_it(run: Path) -> None:
    """The last common call may be one of its rounds."""
    source = SAVES.replace("            self.step(batch)", "            self.step(batch) or self.evaluate(state)")
    said = summary(left(run, source))
    assert "the rounds of the loop of line 11 may depend on the rank" in said


LOG = """class Log:
    def __init__(self, rank):
        self.rank = rank
    def flush(self):
        if self.rank == 0:
            self.bad = 0
"""
OUTSIDE = with_keep("state.bad += 1") + (
    "class More:\n    def start(self, state):\n        if state.rank == 0:\n            state.bad = 0\n"
)
DEFAULT = SOURCE.replace(
    "    @property\n    def is_head(self):\n        return self.rank == 0\n", "    is_head: bool = True\n\n\n"
)
DRY = with_keep(
    "if self.dry:", "    if state.rank != 0: return", "state.bad += 1", "if score > 3:", "    state.bad = 0"
)
LOADED = with_keep("if state.is_head:", "    state.bad = torch.load('c')['bad']", "else:", "    state.bad += 1")


@pytest.mark.parametrize(
    "source",
    [OUTSIDE, DEFAULT, DRY, LOADED, with_keep("if state.rank == 0 and late():", "    state.bad = True")],
    ids=["not in a round", "each object has its own", "below another if", "a value that is read", "it is only set"],
)
def test_what_does_not_make_one_rank_leave_first_is_no_reason(source: str, run: Path) -> None:
    assert "only on rank 0" not in summary(left(run, source))


def test_field_of_another_class_is_another_one(run: Path) -> None:
    """Both say `self.bad`."""
    source = SOURCE.replace("state.bad", "self.bad").replace(
        "self.keep(state, score)", "self.log.flush(); self.bad += 1"
    )
    source = source.replace(KEEP.replace("state.bad", "self.bad"), KEEP.replace("state.bad", "pass; self.other"))
    assert "only on rank 0" not in summary(left(run, source + LOG))


def test_long_chain_of_variables_ends(run: Path) -> None:
    """Without an error, and without a reason."""
    chain = "".join(f"        x = g{number}(x)\n" for number in range(300))
    source = SOURCE.replace(
        "        while self.goes_on(state):", "        while self.goes_on(state) and self.long(state):"
    )
    source += f"def other():\n    pass\nclass Long:\n    def long(self, state):\n{chain}        return x\n"
    assert "Rank 1" in summary(left(run, source))


TWICE = SOURCE + "class Other:\n    def step(self, batch):\n        return batch\n"
CALLED = SOURCE.replace("            self.step(batch)", "            self.model(batch)").replace(
    "class Trainer:",
    "class Net:\n    def forward(self, batch):\n        return Trainer().evaluate(batch)\nclass Trainer:",
)


@pytest.mark.parametrize(
    ("source", "way"),
    [
        (TWICE, WAY),
        (CALLED, [(name, line + 3) for name, line in WAY]),
    ],
    ids=["two functions of a name", "an object that is called"],
)
def test_loop_that_cannot_be_followed_may_have_the_last_call(source: str, way: list[Frame], run: Path) -> None:
    """So it is not said to be gone through alike."""
    calls = [(name, line + (way[0][1] - WAY[0][1])) for name, line in [*ROUND, *ROUND]]
    assert "Rank 1 had left" not in summary(left(run, source, calls, way))


def test_loop_between_may_be_the_one_that_was_left(run: Path) -> None:
    """That of the batches was gone through alike; the folds around it may be fewer on one rank."""
    source = SOURCE.replace(
        "            self.epoch(data)\n            score = self.evaluate(state)\n",
        "            for fold in self.folds:\n                self.epoch(fold)\n"
        "                score = self.evaluate(state)\n",
    )
    way = [STEP, ("Trainer.epoch", 12), ("Trainer.fit", 28), ("main", 32)]
    assert "Rank 1 had left the loop of line 26" not in summary(left(run, source, way=way))
