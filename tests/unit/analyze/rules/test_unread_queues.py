"""standstill: a parent joins children that wait until a queue is read, which the report names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
PROGRAM = """import multiprocessing as mp
def work(out, orders):
    while orders.empty():
        send(out)
def send(out):
    {put}
class Worker(mp.Process):
    def __init__(self, games): self.games = games
    def run(self): self.games.put(1)
def main():
    games = {made}; orders = mp.Queue()
    children = [{child}]
    for child in children:
        child.start()
    orders.put(None)
    for child in children:
        child.join()
    {after}
"""
MADE = "mp.Queue()"
CHILD = "mp.Process(target=work, args=(games, orders))"


def standing(run: Path, **parts: str) -> Report:
    """The parent is in line 17, a child at its end."""
    filled = {"put": "out.put(1)", "made": MADE, "child": CHILD, "after": "pass", **parts}
    script = str(s.program_in(run, PROGRAM.format(**filled)))
    join: list[Frame] = [("Popen.poll", f"{LIB}/popen_fork.py", 27), ("main", script, 17)]
    feeder: list[Frame] = [
        ("Thread.join", "/usr/lib/python3.11/threading.py", 1119),
        ("Queue._finalize_join", f"{LIB}/queues.py", 199),
        ("BaseProcess._bootstrap", f"{LIB}/process.py", 317),
        ("Popen._launch", f"{LIB}/popen_fork.py", 71),
        ("main", script, 14),
    ]
    child = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
    return ended(run, stopped(parent(), join), stopped(child, feeder))


def test_queue_that_children_fill_is_named_with_the_join(run: Path) -> None:
    report = standing(run)
    assert verdict(report) == ("hang", "likely")
    assert "which cannot end before all that it put into `games` is read" in summary(report)
    assert "Before `child.join()` (line 17), take from `games` until all children have ended" in advice(report)
    assert "waited at its end until what it had put into `games` is read" in evidence(report)
    assert "program.py:14" not in evidence(report)  # where it was forked


def test_queue_of_a_class_of_processes_is_named(run: Path) -> None:
    """By the attribute that its run() fills, and the argument that it was made of."""
    assert "put into `games` is read" in summary(standing(run, child="Worker(games)"))


def test_queue_that_is_read_after_the_join_is_to_be_read_before(run: Path) -> None:
    said = advice(standing(run, after="games.get()"))
    assert (
        "Line 18 (`games.get()`) comes after the join() of line 17: take all of `games` before `child.join()`" in said
    )


@pytest.mark.parametrize(
    "parts",
    [{"put": "out.put(orders) and orders.put(out)"}, {"made": "mp.Manager().Queue()"}, {"child": "make()"}],
    ids=["two", "of a manager", "unknown target"],
)
def test_queue_is_not_named_where_another_may_be_meant(parts: dict[str, str], run: Path) -> None:
    report = standing(run, **parts)
    assert "which cannot end before its queue is read" in summary(report)
    assert "get() from the queue before join()" in advice(report)


def test_queue_that_is_made_beside_another_is_named_with_who_takes_from_it(run: Path) -> None:
    report = standing(run, made="mp.Queue()", after="games.get()")
    takes = "and its parent alone takes from that queue (`games.get()` at line 18 in main), but not while it waits here"
    assert f"put into `games` is read, {takes};" in summary(report)


def test_queue_that_a_thread_takes_from_is_not_said_to_be_taken_from_by_the_parent_alone(run: Path) -> None:
    report = standing(run, after="Thread(target=lambda: games.get()).start()")
    assert "put into `games` is read;" in summary(report)


def test_two_queues_of_one_assignment_are_told_apart(run: Path) -> None:
    found = standing(run, made="mp.Queue(), 1", child="mp.Process(target=work, args=(games, orders))")
    assert "its queue is read" in summary(found)  # no name for a tuple
    pair = PROGRAM.replace("games = {made}; orders = mp.Queue()", "games, orders = mp.Queue(), mp.Event()")
    script = s.program_in(run, pair.format(put="out.put(1)", child=CHILD, after="pass"))
    join: list[Frame] = [("Popen.poll", f"{LIB}/popen_fork.py", 27), ("main", str(script), 17)]
    feeder: list[Frame] = [("Queue._finalize_join", f"{LIB}/queues.py", 199)]
    child = Box(pid=102, ppid=101, created_ns=6_000_000_000).versions(torch="2.13.0").at(100).mark("begin")
    assert "put into `games` is read" in summary(ended(run, stopped(parent(), join), stopped(child, feeder)))


READ = """import multiprocessing as mp
class Reader(mp.Process):
    def __init__(self, pages, queue): self.pages, self.queue = pages, queue
    def run(self):
        for page in self.pages:
            self.queue.put(page)
        {mark}
class Writer(mp.Process):
    def __init__(self, queue): self.queue = queue
    def run(self):
        while True:
            item = self.queue.get()
            if item is None:
                break
def main():
    queue = mp.Queue()
    children = [Writer(queue), Reader([1], queue), Reader([2], queue)]
    for child in children:
        child.start()
    for child in children[1:]:
        child.join()
    {last}
main()
"""


def read_by_a_child(
    run: Path,
    mark: str = "self.queue.put(None)",
    last: str = "pass",
    writer: Box | None = None,
    *,
    others: bool = True,
    source: str = READ,
) -> Report:
    """The parent is in line 21, the second reader at its end; `writer`: None of one that had ended well."""
    script = str(s.program_in(run, source.format(mark=mark, last=last)))
    join: list[Frame] = [("Popen.poll", f"{LIB}/popen_fork.py", 27), ("main", script, 21)]
    feeder: list[Frame] = [
        ("Thread.join", "/usr/lib/python3.11/threading.py", 1119),
        ("Queue._finalize_join", f"{LIB}/queues.py", 199),
        ("BaseProcess._bootstrap", f"{LIB}/process.py", 317),
        ("main", script, 19),
    ]
    child = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
    done = Box(pid=104, ppid=101, created_ns=6_000_000_000).at(-450).versions(torch="2.13.0").at(3_800).mark("begin")
    over = Box(pid=103, ppid=101, created_ns=6_000_000_000).at(-400).versions(torch="2.13.0").at(3_900).mark("begin")
    box = parent() if writer is not None else parent().at(4_000).wait(103, exit_code=0)
    if writer is None:
        box.wait(104, exit_code=0)
    readers = [done] if writer is None and others else []
    return ended(run, stopped(box, join), stopped(child, feeder), *readers, writer or over)


def test_reader_that_ends_at_the_first_of_several_marks_is_named_and_not_the_join(run: Path) -> None:
    """Found by a twin: the parent was told to read a queue that has a reader of its own."""
    report = read_by_a_child(run)
    assert "put into `queue` is read; Writer.run takes (line 12) until it gets `None`, and ends" in summary(report)
    assert "But line 7 puts `None` in each process that runs Reader.run: the first one to do so" in advice(report)
    assert "take from `queue`" not in advice(report)


@pytest.mark.parametrize("last", ["pass", "queue.put(None)"])
def test_reader_whose_mark_the_children_do_not_put_is_not_said_to_have_ended_at_it(last: str, run: Path) -> None:
    assert "Writer.run takes" not in summary(read_by_a_child(run, mark="pass", last=last))


def test_reader_that_still_runs_is_not_said_to_have_ended(run: Path) -> None:
    running = Box(pid=103, ppid=101, created_ns=6_000_000_000).versions(torch="2.13.0").at(100).mark("begin")
    assert "and ends" not in summary(read_by_a_child(run, writer=stopped(running, [("Writer.run", "x.py", 12)])))


STARTS_LATER = READ.replace("children = [Writer(queue), ", "children = [").replace("children[1:]", "children")


@pytest.mark.parametrize(
    "parts",
    [
        {"source": STARTS_LATER, "last": "Writer(queue).start()"},
        {"others": False},
        {
            "source": READ.replace(
                "            self.queue.put(page)", "            self.queue.put(page); self.queue.put(None)"
            ),
            "mark": "pass",
        },
    ],
    ids=["a reader that starts behind the join", "one process that puts", "None in place of an item"],
)
def test_reader_of_which_more_is_not_known_is_not_said_to_end_at_the_first_of_several(
    parts: dict[str, str], run: Path
) -> None:
    """Found by reviewing: a writer that was not started yet was said to have ended at the first mark."""
    assert "Writer.run takes" not in summary(read_by_a_child(run, **parts))  # type: ignore[arg-type]
