"""A key of a store that each rank draws for itself, so that the rank which waits for it waits in vain."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, summary, verdict
from tests.support.scenarios import program_in

HEAD = "import os, random, sys, time, uuid\nimport numpy as np\nimport torch.distributed as dist\n"
TIMEOUT = "wait timeout after 5000ms, keys: /default_pg/0//job/3f/ready"
PLAIN = """\
def publish(store, rank, limit):
    {made}
    if rank == 0:
        write_all()
        store.set(f"job/{{tag}}/ready", "1")
    else:
        store.wait([f"job/{{tag}}/ready"], limit)
def main(store, rank):
    publish(store, rank, 5)
def fresh():
    return uuid.uuid4().hex
main(1, 1)
"""
SESSION = """\
class Session:
    def __init__(self, store, rank, rng=None):
        {rng}
        self.name = f"run_{{int(rng.integers(0, 99))}}"
        self.store = dist.PrefixStore(self.name, store)
        self.rank = rank
    def arrive(self):
        if self.rank == 0:
            self.store.set("built", b"1")
        else:
            self.store.get("built")
def main(store, rank):
    session = Session(store, rank{given})
    session.arrive()
main(1, 1)
"""


def raised(run: Path, source: str, way: dict[int, str], *, message: str = TIMEOUT, ranks: int = 2) -> Report:
    """The last rank waited, with these lines and functions on its stack, innermost first."""
    program = str(program_in(run, HEAD + source))
    job = Ranks(ranks)
    job.everybody(call())
    stack = [(function, program, line) for line, function in way.items()]
    job.boxes[ranks - 1].at(7000).exception("torch.distributed.DistStoreError", message, stack).exit(1)
    job.endings[ranks - 1] = {"exit_code": 1}
    return build_report(job.job(run))


def published(run: Path, made: str, more: str = "", **how: Any) -> Report:
    """`made`: lines of the function; `more`: another function."""
    text = PLAIN.format(made=made)
    extra = made.count("\n")
    at = len(HEAD.splitlines())
    way = {at + 7 + extra: "publish", at + 9 + extra: "main", at + 12 + extra: "<module>"}
    return raised(run, text + more, way, **how)


@pytest.mark.parametrize(
    ("made", "has"),
    [
        ("tag = uuid.uuid4().hex[:6]", "has another key, as line 5 (`uuid.uuid4`) gives each process another one"),
        ("tag = f'{main}-{os.getpid():x}'", "has another key, as line 5 (`os.getpid`) gives each process another one"),
        ("tag = str(int(time.time()))", "may have another key, as line 5 (`time.time`) takes the time of each process"),
        ("tag = ''.join(random.choices('abcd', k=4))", "has another key, as line 5 (`random.choices`) draws on each"),
        ("tag = np.random.randint(1 << 20)", "has another key, as line 5 (`np.random.randint`) draws on each rank"),
    ],
)
def test_key_that_each_rank_draws_is_told_with_the_lines_that_draw_and_set_it(made: str, has: str, run: Path) -> None:
    """The rank that waits is not early, and the one that sets it not late."""
    report = published(run, made)
    assert verdict(report) == ("python-exception", "certain")
    assert f"program.py:10 in publish: each rank {has}" in summary(report)
    assert summary(report).endswith("line 8 sets that of its own rank.")
    assert advice(report).startswith("Make `tag` the same on all ranks: ")
    assert ("A longer timeout does not help" in advice(report)) == ("time.time" not in made)


@pytest.mark.parametrize(
    "made",
    [
        "tag = np.random.default_rng(7).integers(9)",
        "random.seed(3)\n    tag = random.randrange(99)",
        "held = [uuid.uuid4().hex]\n    dist.broadcast_object_list(held)\n    tag = held[0]",
        "tag = uuid.uuid4().hex if rank == 0 else store.get('tag')",
        "tag = os.environ['RUN_ID']",
        "tag = sys.argv[1]",
        "tag = 'today'",
        "tag = load(uuid.uuid4())",  # whatever that returns
        "tag = uuid.uuid4().hex\n    store.set(f'tag/{rank}', tag)",  # the others may have read it
        "tag = os.getpid()\n    store.set('pid', str(os.getpid()))",
        "if rank == 1:\n        tag = uuid.uuid4().hex",  # one rank alone
        "if rank == 1:\n        tag = fresh()",
    ],
)
def test_key_that_the_ranks_share_or_may_share_is_not_told(made: str, run: Path) -> None:
    """The look-alikes."""
    report = published(run, made)
    assert "another key" not in summary(report) and "the same on all ranks" not in advice(report)


def test_key_that_no_line_sets_in_this_form_is_not_told(run: Path) -> None:
    """The look-alike: another key with the same part."""
    other = PLAIN.replace('f"job/{{tag}}/ready", "1"', 'f"job/{{tag}}/begun", "1"')
    made = "tag = uuid.uuid4().hex"
    way = {10: "publish", 12: "main", 15: "<module>"}
    assert "another key" not in summary(raised(run, other.format(made=made), way))


def test_value_that_the_parent_gives_all_ranks_is_not_told(run: Path) -> None:
    """The look-alike: it is drawn once, before the ranks are started."""
    made = "tag = uuid.uuid4().hex"
    source = (
        PLAIN.format(made=made)
        .replace(f"    {made}\n", "")
        .replace("store, rank, limit):", "rank, store, limit, tag):")
    )
    source = (
        source.split("def main")[0]
        + f"def main():\n    {made}\n    mp.spawn(publish, args=(1, 5, tag), nprocs=2)\nmain()\n"
    )
    assert "another key" not in summary(raised(run, source, {9: "publish"}))
    alone = source.replace("mp.spawn(publish, args=(1, 5, tag), nprocs=2)", "publish(0, 1, 5, tag)")
    assert "another key" in summary(raised(run / "b", alone, {9: "publish", 12: "main", 13: "<module>"}))


@pytest.mark.parametrize("how", [{"ranks": 1}, {"message": "Broken pipe"}])
def test_rank_alone_and_another_error_are_not_told(how: dict[str, Any], run: Path) -> None:
    """The look-alikes."""
    assert "another key" not in summary(published(run, "tag = uuid.uuid4().hex", **how))


@pytest.mark.parametrize(
    ("rng", "given", "told"),
    [
        ("rng = rng or np.random.default_rng()", "", True),
        ("rng = np.random.default_rng() if rng is None else rng", "", True),
        ("rng = rng if rng is not None else np.random.default_rng()", "", True),
        ("if rng is None:\n            rng = np.random.default_rng()", "", True),
        ("rng = rng or np.random.default_rng()", ", np.random.default_rng(7)", False),
        ("rng = rng or np.random.default_rng(7)", "", False),
        ("if rng is None:\n            rng = np.random.default_rng()", ", rng=np.random.default_rng(7)", False),
    ],
)
def test_prefix_of_a_store_by_a_generator_that_nobody_passes(rng: str, given: str, told: bool, run: Path) -> None:
    """The key itself is the same; where a seeded generator was passed, so is the prefix."""
    more = rng.count("\n")
    way = {14 + more: "Session.arrive", 17 + more: "main", 18 + more: "<module>"}
    report = raised(run, SESSION.format(rng=rng, given=given), way)
    made, draw, sets = f"line {6 + more}", f"line {7 + more} (`rng.integers`)", f"line {12 + more}"
    reason = f"{draw} draws on each rank for itself: no line seeds its generator ({made})"
    assert (f"each rank has another key, as {reason}; {sets} sets" in summary(report)) == told
    assert (f"or seed its generator ({made}) alike" in advice(report)) == told


def test_key_made_in_another_file_is_told_with_its_name(run: Path) -> None:
    """The draw, the wait and the set lie in three files."""
    names = run / "names.py"
    names.write_text("import uuid\ndef fresh():\n    return uuid.uuid4().hex\n")
    board = run / "board.py"
    board.write_text(
        "class Board:\n    def __init__(self, store, tag):\n        self.store, self.tag = store, tag\n"
        "    def post(self, what):\n        self.store.set(f'{self.tag}/{what}', '1')\n"
        "    def read(self, what):\n        self.store.wait([f'{self.tag}/{what}'])\n"
    )
    text = (
        "from board import Board\nfrom names import fresh\ndef main(store, rank):\n    board = Board(store, fresh())\n"
    )
    text += "    if rank == 0: board.post('x')\n    else: board.read('x')\nmain(1, 1)\n"
    program = str(program_in(run, text))
    for path in (names, board):
        os.utime(path, (0, 0))
    job = Ranks(2)
    job.everybody(call())
    stack = [("Board.read", str(board), 7), ("main", program, 6), ("<module>", program, 7)]
    job.boxes[1].at(7000).exception("torch.distributed.DistStoreError", TIMEOUT, stack).exit(1)
    job.endings[1] = {"exit_code": 1}
    report = build_report(job.job(run))
    assert summary(report).endswith(
        "each rank has another key, as names.py:3 (`uuid.uuid4`) gives each process another one; line 5 sets that of "
        "its own rank."
    )
    assert advice(report).startswith("Make `self.tag` the same on all ranks: make it on rank 0, and broadcast it")
