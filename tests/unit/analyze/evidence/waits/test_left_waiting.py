"""A parent that went on waiting for what its child, which had died, was to send or do, and what looks like that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

GET: list[Frame] = [("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), ("learn", s.SCRIPT, 12)]
IN_PROCESS: list[Frame] = [("Queue.get", "/usr/lib/python3.11/queue.py", 171), ("learn", s.SCRIPT, 12)]
WORK: list[Frame] = [("step", s.SCRIPT, 30)]


def actor(pid: int = 102, at: int = 5_000) -> Box:
    """A child that raised."""
    return Box(pid=pid, ppid=101).at(at).exception("ValueError", "no such key", [("play", s.SCRIPT, 40)]).exit(1)


def test_parent_that_waited_for_a_dead_child_is_told(run: Path) -> None:
    """The exception is the verdict; that nobody noticed is the second trouble."""
    report = ended(run, stopped(parent(), GET), actor())
    assert verdict(report) == ("python-exception", "certain")
    assert (
        "at train.py:40 in play; its parent, process 101 (train.py), waited for a queue at train.py:12 in learn until "
        "a time limit ended it."
    ) in summary(report)
    assert advice(report).endswith(
        "With get(timeout=...) and `is_alive()` of the child at line 12, the parent notices such an end."
    )


@pytest.mark.parametrize(
    "boxes",
    [
        [stopped(parent(), GET), actor(at=59_500)],  # it was about to notice
        [stopped(parent(), GET), actor(), Box(pid=103, ppid=101).at(59_900).exit(0)],  # another one could send
        [stopped(parent(), IN_PROCESS), actor()],  # a queue of its own threads
        [stopped(parent(), WORK), actor()],  # it worked on
        [stopped(parent(), GET, by=["kubelet"]), actor()],  # somebody stopped the job
    ],
    ids=["at once", "another child", "own queue", "at work", "stopped"],
)
def test_parent_that_did_something_else_is_not_blamed(boxes: list[Box], run: Path) -> None:
    """The look-alikes."""
    report = ended(run, *boxes)
    assert "until a time limit ended it" not in summary(report)
    assert "the parent notices such an end" not in advice(report)


MP = "/usr/lib/python3.11/multiprocessing"
JOIN: list[Frame] = [("Condition.wait", f"{MP}/synchronize.py", 268), ("JoinableQueue.join", f"{MP}/queues.py", 331)]
ASKS: list[Frame] = [("Connection._recv", f"{MP}/connection.py", 395), ("Queue.get", f"{MP}/queues.py", 103)]
SERVES: list[Frame] = [("Server.serve_forever", f"{MP}/managers.py", 176)]
MAIN = """from worker import index
def build(paths):
    jobs = JoinableQueue()
    done = JoinableQueue()
    start(index, jobs, done)
    jobs.join()
"""
PLAIN = """def index(todo, results):
    while True:
        path = todo.get()
        if path is None:
            todo.task_done()
            return
        results.put(read(path))
        log(path)
        todo.task_done()
"""
FINALLY = """def index(todo, results):
    while True:
        path = todo.get()
        if path is None:
            todo.task_done()
            return
        try: results.put(read(path))
        finally: todo.task_done()
"""
HANDLER = FINALLY.replace("finally: todo.task_done()", "except OSError: todo.task_done()")
BEFORE = PLAIN.replace("            return\n", "            return\n        todo.task_done()\n", 1).replace(
    "log(path)", "pass"
)
ITER = """def index(todo, results):
    for path in iter(todo.get, None):
        log(path)


        results.put(
            read(path))
        todo.task_done()
"""


def joins(run: Path, source: str, *boxes: Box, line: int = 7, wait: list[Frame] = JOIN, at: int = 6) -> Report:
    """A worker of another file raised in its loop, while its parent waited in join()."""
    own, other = run / "train.py", run / "worker.py"
    for path, text in ((own, MAIN), (other, source)):
        path.write_text(text)
        os.utime(path, (0, 0))
    frames: list[Frame] = [("read", str(run / "gone.py"), 3), ("index", str(other), line)]
    died = Box(pid=102, ppid=101).at(5_000).exception("ValueError", "bad row", frames).exit(1)
    return ended(run, stopped(parent(), [*wait, ("build", str(own), at)]), died, *boxes)


def asking(run: Path, stack: list[Frame] = ASKS, pid: int = 103) -> Box:
    return stopped(Box(pid=pid, ppid=101), [*stack, ("index", str(run / "worker.py"), 3)])


@pytest.mark.parametrize(("source", "mark"), [(PLAIN, 9), (ITER, 8)])
def test_join_of_a_queue_whose_item_was_never_marked_as_done_is_told(source: str, mark: int, run: Path) -> None:
    """The exception comes before task_done(): with the line; and all workers are gone."""
    report = joins(run, source)
    assert verdict(report) == ("python-exception", "certain")
    assert (
        "; its parent, process 101 (train.py), waited until every item of the queue `jobs` is done at train.py:6 in "
        f"build until a time limit ended it: the exception skips `todo.task_done()` (worker.py:{mark}), and no worker "
        "was left that takes items."
    ) in summary(report)
    assert advice(report).endswith(
        "In index catch the error of one item and send it to the parent, with `todo.task_done()` "
        f"(worker.py:{mark}) in a `finally`. join() at train.py:6 has no timeout and notices no death: in place of it "
        "wait in a loop that looks at the workers' `exitcode`."
    )


@pytest.mark.parametrize("worker", [True, False])
def test_exception_of_a_worker_reached_the_top_of_its_process(worker: bool, run: Path) -> None:
    """Its parent's program may go on."""
    frames: list[Frame] = [("play", s.SCRIPT, 40), *([("BaseProcess.run", f"{MP}/process.py", 108)] * worker)]
    died = Box(pid=102, ppid=101).at(5_000).exception("ValueError", "bad row", frames).exit(1)
    said = evidence(ended(run, parent().at(9_000).exit(0), died))
    assert f"the exception reached the top of the {'process' if worker else 'program'} and was not caught" in said


def test_worker_that_lives_on_takes_the_rest(run: Path) -> None:
    """One item is enough: the others only wait for their next one. A manager is no worker."""
    report = joins(run, PLAIN, asking(run), asking(run, SERVES, 104))
    assert summary(report).endswith(
        "until a time limit ended it: the exception skips `todo.task_done()` (worker.py:9)."
    )


@pytest.mark.parametrize("source", [FINALLY, HANDLER, BEFORE], ids=["finally", "handler", "before"])
def test_item_that_was_or_may_be_marked_is_not_told(source: str, run: Path) -> None:
    """The look-alikes. Where all workers are gone, nobody takes what is left in the queue."""
    report = joins(run, source, line=8 if source == BEFORE else 7)
    assert "skips" not in summary(report) and "in a `finally`" not in advice(report)
    assert summary(report).endswith(
        "until a time limit ended it: no worker was left that takes items and calls task_done()."
    )
    assert "join() at train.py:6 has no timeout" in advice(report)


@pytest.mark.parametrize("how", ["finally", "at work", "later", "elsewhere"])
def test_parent_that_waits_for_something_else_is_not_told(how: str, run: Path) -> None:
    """The look-alikes."""
    late = Box(pid=103, ppid=101).at(59_900).exit(0)
    other = {"at work": asking(run, []), "later": late}.get(how, asking(run))
    wait: list[Frame] = [("sleep", s.SCRIPT, 3)] if how == "elsewhere" else JOIN
    report = joins(run, FINALLY if how == "finally" else PLAIN, other, wait=wait)
    assert "until a time limit ended it" not in summary(report)


@pytest.mark.parametrize(("queue", "told"), [("jobs", True), ("done", False)])
def test_queue_of_another_name_in_one_file_is_another_one(queue: str, told: bool, run: Path) -> None:
    """The parent joins `jobs`; the worker marks items of that, or of its other queue."""
    own = run / "train.py"
    worker = PLAIN.replace("todo", "items").replace("results.put(read(path))", "read(path)")
    text = (
        f"def build():\n    jobs, done = JoinableQueue(), JoinableQueue()\n    run(index, {queue})\n    jobs.join()\n"
    )
    made = f"Process(target=index, args=({queue}, 1)).start()"
    own.write_text(text.replace(f"run(index, {queue})", made) + worker)
    os.utime(own, (0, 0))
    frames: list[Frame] = [("read", str(run / "gone.py"), 3), ("index", str(own), 11)]
    died = Box(pid=102, ppid=101).at(5_000).exception("ValueError", "bad row", frames).exit(1)
    report = ended(run, stopped(parent(), [*JOIN, ("build", str(own), 4)]), died)
    assert ("the exception skips `items.task_done()` (train.py:13)" in summary(report)) == told
    assert "until a time limit ended it: " in summary(report)


def test_queue_of_results_that_idle_workers_do_not_fill_is_told(run: Path) -> None:
    """Its item was with the worker that died."""
    report = joins(run, PLAIN, asking(run), wait=ASKS)
    assert summary(report).endswith("until a time limit ended it, while its other children waited for an item.")


@pytest.mark.parametrize("others", [0, 1])
def test_worker_that_failed_without_a_recorded_exception_is_told_with_the_join(others: int, run: Path) -> None:
    """As of a class derived from Process with a run() of its own: a status is all that is known."""
    own = run / "train.py"
    own.write_text(MAIN)
    os.utime(own, (0, 0))
    failed = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000).exit(1)
    idle = [asking(run)] * others
    report = ended(run, stopped(parent(), [*JOIN, ("build", str(own), 6)]), failed, *idle)
    why = (
        "its other children waited for an item, so that nobody" if others else "no worker was left that takes items and"
    )
    assert f" until a time limit ended it: {why} calls task_done()" in summary(report)
    assert advice(report).endswith("in place of it wait in a loop that looks at the workers' `exitcode`.")


def test_worker_that_ended_in_order_is_not_blamed(run: Path) -> None:
    """The look-alike: `undone_items` has it."""
    failed = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000).exit(0)
    report = ended(run, stopped(parent(), [*JOIN, ("build", s.SCRIPT, 6)]), failed)
    assert "until a time limit ended it" not in summary(report)
