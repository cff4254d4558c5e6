"""A value that two ranks passed differently: the variable in which they differ, and the line that made it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Call, Ranks, call
from tests.support.deaths import advice
from tests.support.scenarios import TORCH, program_in

C10D = ("broadcast", f"{TORCH}/distributed/distributed_c10d.py", 3000)
Values = Mapping[str, str]


def variables(values: Values) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def advised(run: Path, source: str, frames: list[tuple[str, int]], calls: list[Call], held: list[list[Values]]) -> str:
    """What two ranks are told, which failed in their only calls with these variables of each frame, innermost first."""
    program = str(program_in(run, source))
    job = Ranks(2)
    stack = [C10D, *((function, program, line) for function, line in frames)]
    for box, item, values in zip(job.boxes, calls, held, strict=True):
        given = dict(item)
        name = given.pop("name")
        given.pop("line")
        box.collective(name, group=job.groups[0]["0"], by=box.site(stack[0], stack[1]), sequence_nr=1, **given)
        outer = [{"frame": n, "variables": variables(part)} for n, part in enumerate(values[1:], 2)]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack, variables=variables(values[0]), outer=outer).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    return advice(build_report(job.job(run)))


def rooted(run: Path, source: str, frames: list[tuple[str, int]], held: list[list[Values]]) -> str:
    """Of a broadcast from rank 1 on rank 0 and the other way round."""
    return advised(run, source, frames, [call("broadcast_", root=n, state="failed") for n in (1, 0)], held)


def adopted(run: Path, fill: str, also: str = "pass") -> str:
    source = (
        "class Member:\n    def report(self, error):\n"
        f"        {fill}\n        {also}\n"
        "    def best(self):\n        return int(self.errors.argmin())\n"
        "    def adopt(self, src):\n        dist.broadcast(self.p, src=src)\n"
        "def main(me):\n    winner = me.best()\n    me.adopt(winner)\n"
        "me = Member()\nmain(me)\n"
    )
    frames = [("Member.adopt", 8), ("main", 11), ("<module>", 13)]
    return rooted(run, source, frames, [[{"src": "1"}, {"winner": "1"}], [{"src": "0"}, {"winner": "0"}]])


def test_root_is_followed_to_what_only_the_rank_itself_has_filled(run: Path) -> None:
    """Through the caller and the method that returned it."""
    said = adopted(run, "self.errors[self.rank] = error")
    assert said.startswith("`winner` is 1 on rank 0 and 0 on rank 1 (line 11: `me.adopt(winner)`)")
    assert "line 3 (`self.errors[self.rank] = error`) sets only the rank's own entry of `self.errors`" in said


@pytest.mark.parametrize(
    ("fill", "also"),
    [
        ("self.errors[self.rank] = error", "dist.all_reduce(self.errors)"),
        ("self.errors[self.rank] = error", "self.errors[0] = first"),
        ("self.errors[step] = error", "pass"),
    ],
)
def test_what_others_fill_too_is_not_said_to_be_the_own_entry(fill: str, also: str, run: Path) -> None:
    """The look-alikes: a collective gets it, another line fills it, the index is no rank."""
    said = adopted(run, fill, also)
    assert "own entry" not in said and "`winner` is 1 on rank 0 and 0 on rank 1" in said


def test_loop_over_all_ranks_fills_every_entry(run: Path) -> None:
    """The look-alike whose index has the name of a rank."""
    source = (
        "def best(errors):\n    found = {}\n    for rank in range(world):\n        found[rank] = errors(rank)\n"
        "    src = pick(found)\n    dist.broadcast(p, src)\n"
    )
    assert "own entry" not in rooted(run, source, [("best", 6)], [[{"src": "1"}], [{"src": "0"}]])


RESUMED = (
    "def order(epoch):\n    dist.broadcast(rows, src=epoch % world)\n"
    "def main(rank):\n    start = {0}\n    for epoch in range(start, 9):\n        order(epoch)\n"
)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("torch.load(path)['epoch']", "which reads files"),
        ("random.randint(0, 3)", "drawn by each rank for itself"),
        ("int(os.environ['START'])", "which differs by process or host"),
        ("first + 2 * rank", "which depends on the rank"),
        ("len(done)", "Let one rank decide and broadcast it"),
    ],
)
def test_number_of_the_round_is_followed_to_where_the_loop_begins(made: str, words: str, run: Path) -> None:
    """The variable is the one in which the ranks differ, with its line; then by what it was made."""
    held: list[list[Values]] = [[{"epoch": n}, {"start": n, "epoch": n}] for n in ("3", "2")]
    said = rooted(run, RESUMED.format(made), [("order", 2), ("main", 6)], held)
    assert said.startswith("`start` is 3 on rank 0 and 2 on rank 1 (line 5: `for epoch in range(start, 9):`)")
    assert "it comes from line 4 (`" in said and words in said


def test_ranks_in_other_rounds_of_the_same_loop_are_not_said_to_have_begun_otherwise(run: Path) -> None:
    """The look-alike: the bounds are equal."""
    held: list[list[Values]] = [[{"epoch": n}, {"start": "0", "epoch": n}] for n in ("3", "2")]
    said = rooted(run, RESUMED.format("0"), [("order", 2), ("main", 6)], held)
    assert "`epoch` is 3 on rank 0 and 2 on rank 1" in said and "`start`" not in said


def test_assignment_below_a_branch_on_the_rank_is_named(run: Path) -> None:
    """With the `if` around it."""
    source = "def share(rank):\n    src = 0\n    if rank == 0:\n        src = 1\n    dist.broadcast(p, src)\n"
    said = rooted(run, source, [("share", 5)], [[{"src": "1"}], [{"src": "0"}]])
    assert "line 4 (`src = 1`) sets it below `if rank == 0:` (line 3)" in said
    other = rooted(run, source.replace("rank == 0", "late"), [("share", 5)], [[{"src": "1"}], [{"src": "0"}]])
    assert "sets it below" not in other


def test_nothing_is_said_of_a_constant(run: Path) -> None:
    """The line that was recorded and the line of the file do not fit then."""
    source = "def share():\n    dist.broadcast(p, src=0)\n"
    said = rooted(run, source, [("share", 2)], [[{}], [{}]])
    assert said == "Pass the same root on all ranks: it must not depend on the rank."


def test_root_of_a_list_of_objects_is_its_own_argument(run: Path) -> None:
    """scatter_object_list() broadcasts the sizes first: the operation has another name than the call."""
    source = "def share(rank):\n    src = pick()\n    dist.scatter_object_list(box, jobs, src=src)\n"
    said = rooted(run, source, [("share", 3)], [[{"src": "1"}], [{"src": "0"}]])
    assert said.startswith("`src` is 1 on rank 0 and 0 on rank 1: it comes from line 2 (`src = pick()`)")


@pytest.mark.parametrize(("made", "named"), [("hash(name)", True), ("self.hash(name)", False)])
def test_hash_of_a_text_differs_by_process(made: str, named: bool, run: Path) -> None:
    """The look-alike is a method of the program's."""
    source = f"def share(name):\n    src = {made} % 2\n    dist.broadcast(p, src)\n"
    said = rooted(run, source, [("share", 3)], [[{"src": "1"}], [{"src": "0"}]])
    assert ("hash() of a text is another number in each process" in said) == named
