"""What is said of a line that ranks came to a different number of times, and of a loop in an order of its own."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.rounds import rank_order_words, rounds_words
from pytracer.analyze.collectives.set_loops import set_loop
from pytracer.report.job import PythonFrame
from tests.support.scenarios import program_in

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, recorded=lambda kind: ())


def at(program: Path, line: int, function: str = "run") -> PythonFrame:
    return PythonFrame(file=str(program), line=line, function=function)


def rounds(run: Path, source: str, line: int, *way: tuple[str, int]) -> str:
    program = program_in(run, source)
    frames = [at(program, number, function) for function, number in way]
    return rounds_words(SNAPSHOT, frames, (str(program), "run", line))


SYNC = """def run(model, batches):
    for batch in batches:
        due = enough(batch)
        with {0}:
            backward(batch)
"""


@pytest.mark.parametrize("head", ["nullcontext() if due else model.no_sync()", "model.no_sync()"])
def test_with_that_does_not_synchronize_parts_the_ranks(head: str, run: Path) -> None:
    """Not the number of rounds, which may be the same on all ranks."""
    said = rounds(run, SYNC.format(head), 5)
    assert said.startswith(f": line 4 (`with {head}:`) leaves them out in some rounds.")
    assert "more rounds" not in said


def test_another_with_leaves_nothing_out(run: Path) -> None:
    """The look-alike: then the rounds are more, or one differs in a way that the loop does not show."""
    said = rounds(run, SYNC.format("autocast()"), 5)
    assert "see whether the loop of line 2 (`for batch in batches:`) has more rounds there, or one left it out" in said
    assert "or called more." in said


PARTS = """def run(model, parts):
    for part in parts:
        loss = sum(backward(row) for row in part{0})
"""


@pytest.mark.parametrize(("of", "line"), [("[:1]", 2), ("[:4]", 3), ("", 3)])
def test_rounds_of_the_first_item_alone_differ_by_the_loop_around(of: str, line: int, run: Path) -> None:
    """The look-alike: several may be fewer."""
    assert f"see whether the loop of line {line}" in rounds(run, PARTS.format(of), 3)


SKIPS = """def run(model, lines):
    for line in lines:
        try:
            batch = parse(line)
        except ValueError:
            {0}
        backward(batch)
"""


def test_caught_error_that_leaves_the_round_is_named(run: Path) -> None:
    """The line of the handler, not a list of what might have been."""
    said = rounds(run, SKIPS.format("continue"), 7)
    assert "has more rounds there, or line 5 (`except ValueError:`) left it out in one." in said


def test_handler_that_goes_on_to_the_line_leaves_nothing_out(run: Path) -> None:
    """The look-alike: it replaces the batch."""
    assert "or one left it out" in rounds(run, SKIPS.format("batch = None"), 7)


def test_handler_that_raises_only_some_errors_may_leave_the_round(run: Path) -> None:
    """`if "memory" not in str(e): raise`, then `continue`."""
    said = rounds(run, SKIPS.format("if rare: raise\n            continue"), 8)
    assert "or line 5 (`except ValueError:`) left it out in one." in said


def test_rounds_are_more_where_each_step_had_as_many(run: Path) -> None:
    """Then no round calls more than another one."""
    program = program_in(run, SYNC.format("autocast()"))
    said = rounds_words(SNAPSHOT, [], (str(program), "run", 5), alike=True)
    assert "has more rounds there, or one left it out. " in said and "called more" not in said


RESUMES = """def fit(loader, folder, epochs):
    start = {0}
    for epoch in range({1}):
        for x, y in loader:
            backward(x)
    barrier()
"""


def test_loop_that_begins_where_a_checkpoint_ended_comes_first(run: Path) -> None:
    """The loop inside may have as many rounds on all ranks."""
    said = rounds(run, RESUMES.format("restore(folder)", "start, epochs"), 5)
    assert said.startswith(
        ": see whether the loop of line 3 (`for epoch in range(start, epochs):`) begins at another `start` there (line "
        "2: `start = restore(folder)`), or that of line 4 (`for x, y in loader:`) has more rounds"
    )
    assert "Begin at the same on all ranks" in said


@pytest.mark.parametrize(("start", "bounds"), [("0", "start, epochs"), ("restore(folder)", "epochs")])
def test_loop_that_begins_at_a_number_begins_alike(start: str, bounds: str, run: Path) -> None:
    """The look-alikes."""
    said = rounds(run, RESUMES.format(start, bounds), 5)
    assert said.startswith(": see whether the loop of line 4 (`for x, y in loader:`) has more rounds there")
    assert "begins" not in said


def test_what_a_loop_goes_through_is_followed_to_the_rank(run: Path) -> None:
    """`loader` is made of `data`, and that by the number of the rank."""
    source = (
        "def run(rank):\n    data = load(rank)\n    loader = batches(data)\n    for x in loader:\n        step(x)\n"
    )
    said = rounds(run, source, 5)
    assert "Its rounds may depend on the rank (line 2: `load(rank)`)" in said
    assert "the rank" not in rounds(run, source.replace("load(rank)", "load(all)"), 5)


def test_loop_is_found_in_the_caller_and_with_what_it_goes_through(run: Path) -> None:
    """The line itself is in a function without one."""
    caller = "def main(data):\n    parts = cut(data)\n    for part in parts:\n        run(part)\n"
    source = f"def run(x):\n    reduce(x)\n\n{caller}"
    said = rounds(run, source, 2, ("main", 7))
    assert "the loop of line 6 (`for part in parts:`)" in said
    assert "`parts` is made at line 5 (`parts = cut(data)`)" in said


SETS = "def run(new, old):\n    names = {0}\n    for name in names:\n        broadcast(name)\n"


@pytest.mark.parametrize("value", ["set(new)", "set(new) - set(old)", "{n for n in new}", "set(new).difference(old)"])
def test_loop_over_a_set_has_another_order_in_each_process(value: str, run: Path) -> None:
    """It is named with the line that makes it, and with sorted()."""
    found = set_loop(SNAPSHOT, at(program_in(run, SETS.format(value)), 4))
    assert found is not None and "probably in another order on each rank" in found.subject
    said = found.advice
    assert "line 2" in said and said.endswith("go through sorted(names).")


@pytest.mark.parametrize(
    "value",
    [
        *("sorted(set(new))", "list(new)", "len(new) - 1", "new.difference(old)"),
        *("{3, 5}", "set(range(8))", "frozenset([1, 2])", "set((3, 5)) | {7}"),
    ],
)
def test_loop_over_what_may_be_no_set_has_an_order(value: str, run: Path) -> None:
    """The look-alikes: sorted, a list, numbers, a method of an unknown object; a set of numbers, alike on all."""
    assert set_loop(SNAPSHOT, at(program_in(run, SETS.format(value)), 4)) is None


BUCKETS = """class Sync:
    def __init__(self, state):
        self.names = {0}
        self.state = state
    def buckets(self):
        {1}
    def run(self):
        for bucket in {2}:
            broadcast(bucket)
"""
YIELDS = "for name in self.names:\n            yield self.state[name]"
LISTS = "found = []\n        for name in self.names:\n            found.append(name)\n        return found"
KEPT = "{name for name in state if name != 'head'}"


@pytest.mark.parametrize(
    ("made", "body", "call"),
    [
        (KEPT, YIELDS, "self.buckets()"),
        ("set(state) - {'head'}", YIELDS, "enumerate(self.buckets())"),
        (KEPT, LISTS, "self.buckets()"),
        (KEPT, "return [self.state[name] for name in self.names]", "self.buckets()"),
        (f"list({KEPT})", YIELDS, "list(self.buckets())"),
    ],
)
def test_loop_is_followed_into_what_makes_its_items(made: str, body: str, call: str, run: Path) -> None:
    """A method that goes through a set which the class keeps: both lines are named, and sorted()."""
    source = BUCKETS.format(made, body, call)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "for bucket" in text)
    found = set_loop(SNAPSHOT, at(program_in(run, source), line + 1))
    assert found is not None and f"goes through a set of line 3 (`self.names = {made}`)" in found.subject
    assert found.advice.endswith("go through sorted(self.names).") and len(found.places) == 2


@pytest.mark.parametrize(
    ("made", "body", "call"),
    [
        ("[name for name in state]", YIELDS, "self.buckets()"),
        (KEPT, YIELDS.replace("self.names:", "sorted(self.names):"), "self.buckets()"),
        (KEPT, "for name in self.names:\n            log(name)\n        return list(self.state)", "self.buckets()"),
        (KEPT, LISTS.replace("return found", "return sorted(self.state)"), "self.buckets()"),
        (KEPT, YIELDS, "sorted(self.buckets())"),
        (KEPT, LISTS.replace("return found", "return sorted(found)"), "self.buckets()"),
        (KEPT, LISTS.replace("return found", "found.sort()\n        return found"), "self.buckets()"),
        (KEPT, "return sorted(self.state[name] for name in self.names)", "self.buckets()"),
        (KEPT, "sizes = [len(name) for name in self.names]\n        log(sizes)\n        return [*self.state]",
         "self.buckets()"),
        (KEPT, "count = sum(1 for name in self.names)\n        return [*self.state][:count]", "self.buckets()"),
        ("{number for number in range(8)}", YIELDS, "self.buckets()"),
        ("{int(name) for name in state}", YIELDS, "self.buckets()"),
        ("set(map(int, state))", YIELDS, "self.buckets()"),
        ("set(state.labels.tolist())", YIELDS, "self.buckets()"),
    ],
)  # fmt: skip
def test_items_that_have_one_order_are_followed_to_no_set(made: str, body: str, call: str, run: Path) -> None:
    """The look-alikes: a list, sorted names, numbers, and a set that only something else is made of."""
    source = BUCKETS.format(made, body, call)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "for bucket" in text)
    assert set_loop(SNAPSHOT, at(program_in(run, source), line + 1)) is None


GROUPS = """def pairs(rank, world):
    mine = {0}
    order = [mine, *others(mine)]
    for n in order:
        group(n)
"""


def test_loop_in_an_order_of_the_rank_is_named(run: Path) -> None:
    """Directly, or by a variable that is made by the rank."""
    said = rank_order_words(SNAPSHOT, at(program_in(run, GROUPS.format("rank // 2")), 5, "pairs"))
    assert said is not None and said.startswith(
        "Line 4 (`for n in order:`) goes through `order`, which is made at line 3"
    )
    assert "`mine`, by the rank (line 2: `mine = rank // 2`)" in said


def test_loop_in_the_same_order_on_all_ranks_is_not(run: Path) -> None:
    """The look-alike."""
    assert rank_order_words(SNAPSHOT, at(program_in(run, GROUPS.format("world // 2")), 5, "pairs")) is None


AVERAGE = """def average(model):
    for p in model.parameters():
        reduce(p.grad)
def main(data):
    for step, batch in enumerate(data):
        {0}
            average(model)
"""


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("if step % every == 0:", "or line 6 (`if step % every == 0:`) left it out in one"),
        ("with timer():", "or one left it out"),
    ],
)
def test_loop_over_parameters_has_as_many_rounds_everywhere(head: str, words: str, run: Path) -> None:
    """The loop around the caller is meant, and the branch in it that leaves rounds out."""
    program = program_in(run, AVERAGE.format(head))
    said = rounds_words(SNAPSHOT, [at(program, 7, "main")], (str(program), "average", 3))
    assert "the loop of line 5 (`for step, batch in enumerate(data):`) has more rounds there" in said
    assert words in said


def test_branch_is_the_reason_where_all_loops_have_as_many_rounds(run: Path) -> None:
    """`range(1, 17)` has 16 on every rank."""
    source = AVERAGE.format("if step % every == 0:").replace(
        "for step, batch in enumerate(data)", "for step in range(1, 17)"
    )
    program = program_in(run, source)
    said = rounds_words(SNAPSHOT, [at(program, 7, "main")], (str(program), "average", 3))
    assert said.startswith(": see whether line 6 (`if step % every == 0:`) came out differently in some rounds.")
