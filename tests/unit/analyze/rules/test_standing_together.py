"""standstill: threads that all stand with the one that waits: at a Barrier, in their queue's put(), for a Semaphore."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Frame
from tests.unit.analyze.rules.test_joined_threads import JOIN, LIB, PUT, WAITS, waits

ARENA = """\
class Arena:
    def __init__(self, players):
        self.meeting = threading.Barrier(players + 1)

    def play(self, index):
        for _ in range(self.rounds):
            score(index)
            self.meeting.wait()

    def run(self, threads):
        for thread in threads:
            thread.join()
"""
AT_BARRIER: list[Frame] = [
    ("Condition.wait", f"{LIB}/threading.py", 327),
    ("Barrier._wait", f"{LIB}/threading.py", 735),
    ("Barrier.wait", f"{LIB}/threading.py", 686),
    ("Arena.play", "train", 8),
]


def test_barrier_that_counts_one_who_only_joins_is_told(run: Path) -> None:
    found = waits(run, ARENA, [*JOIN, ("Arena.run", "train", 12)], {700: AT_BARRIER, 701: AT_BARRIER})
    assert verdict(found) == ("hang", "likely")
    assert "2 threads waited at the Barrier `self.meeting` at program.py:8 in Arena.play: line 3 makes it for " in (
        summary(found)
    )
    assert "`players + 1`, and no other thread is left to come to it" in summary(found)
    assert "Leave out of its number whoever does not call it" in advice(found)


def test_thread_that_left_its_rounds_is_told_with_its_branch(run: Path) -> None:
    early = ARENA.replace("            score(index)\n", "            if score(index) < 0:\n                return\n")
    stack = [*AT_BARRIER[:3], ("Arena.play", "train", 9)]
    found = waits(run, early, [*JOIN, ("Arena.run", "train", 13)], {700: stack})
    assert "the `return` of line 8 in Arena.play (below `if score(index) < 0`) leaves the rounds early" in summary(
        found
    )
    assert "Let a thread that leaves early call abort() of it" in advice(found)


def test_barrier_to_which_a_thread_may_still_come_is_no_reason(run: Path) -> None:
    """The look-alike: one is at work."""
    work: list[Frame] = [("score", "train", 7), ("Arena.play", "train", 7)]
    found = waits(run, ARENA, [*JOIN, ("Arena.run", "train", 12)], {700: AT_BARRIER, 701: work})
    assert "is left to come to it" not in summary(found)


RETRIES = """\
def work(todo):
    while True:
        number = todo.get()
        try:
            read(number)
        except OSError:
            todo.put(number)

def main(count):
    todo = queue.Queue(maxsize=4)
    threads = start(work, todo)
    for number in range(count):
        todo.put(number)
    for thread in threads:
        thread.join()
"""
PUTS: list[Frame] = [*PUT, ("work", "train", 7)]


def test_takers_that_all_wait_to_put_are_told(run: Path) -> None:
    found = waits(run, RETRIES, [*PUT, ("main", "train", 13)], {700: PUTS, 701: PUTS})
    assert verdict(found) == ("hang", "likely")
    assert (
        "2 threads, which alone take from `todo` (line 3), put into it themselves and waited for room there, too"
        in (summary(found))
    )
    assert advice(found).startswith("Do not let who takes from `todo` wait in put() for it: at line 7")


@pytest.mark.parametrize(
    ("source", "second"),
    [
        (RETRIES, [("read", "train", 5), ("work", "train", 5)]),  # at work: it takes the next one then
        (f"{RETRIES}\ndef drain(todo):\n    todo.get()\n", PUTS),
        (RETRIES.replace("            todo.put", "            failed.put"), PUTS),
    ],
)
def test_queue_that_somebody_may_still_take_from_is_no_reason(source: str, second: list[Frame], run: Path) -> None:
    """The look-alikes."""
    found = waits(run, source, [*PUT, ("main", "train", 13)], {700: PUTS, 701: second})
    assert "which alone take from" not in summary(found)


CACHE = """\
slots = threading.BoundedSemaphore(3)

def render(scene):
    slots.acquire()
    if scene in VIEWS:
        return VIEWS[scene]
    VIEWS[scene] = draw(scene)
    slots.release()
    return VIEWS[scene]

def main(pool, scenes):
    return list(pool.map(render, scenes))
"""
ASKS: list[Frame] = [
    WAITS,
    ("Semaphore.acquire", f"{LIB}/threading.py", 496),
    ("render", "train", 4),
    ("_WorkItem.run", f"{LIB}/concurrent/futures/thread.py", 58),
    ("_worker", f"{LIB}/concurrent/futures/thread.py", 83),
]
RESULTS: list[Frame] = [
    WAITS,
    ("Future.result", f"{LIB}/concurrent/futures/_base.py", 451),
    ("Executor.map.<locals>.result_iterator", f"{LIB}/concurrent/futures/_base.py", 619),
    ("main", "train", 12),
]


def test_branch_that_keeps_a_semaphore_is_told(run: Path) -> None:
    found = waits(run, CACHE, RESULTS, {700: ASKS, 701: ASKS})
    assert verdict(found) == ("hang", "likely")
    assert (
        "2 threads waited for it at program.py:4 in render: the `return` of line 6 in render (below `if scene in "
        in (summary(found))
    )
    assert "leaves without `slots.release()`, so each pass through it keeps what line 4 took" in summary(found)
    assert advice(found).startswith("Take `slots` by `with` in render, in place of line 4 and line 8")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        return VIEWS[scene]\n    VIEWS", "        slots.release()\n        return VIEWS[scene]\n    VIEWS"),
        ("    slots.acquire()\n", "    if not slots.acquire(timeout=5):\n        return None\n"),
        ("        return VIEWS[scene]\n    VIEWS", "        raise KeyError(scene)\n    VIEWS"),
        ("def main(", "def drawn(job):\n    slots.release()\n\ndef main("),  # the task gives it back
        ("def main(", "DONE = [slots.release]\n\ndef main("),
    ],
)
def test_semaphore_that_no_branch_keeps_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes; an error is told as that."""
    found = waits(run, CACHE.replace(old, new), RESULTS, {700: ASKS, 701: ASKS})
    assert "leaves without" not in summary(found)
