"""standstill: a parent joins a child that stands in put() of a full queue, from which the parent alone takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.journal import HandledException
from pytracer.decode.types.snapshot import Process, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
PUT: list[Frame] = [("Queue.put", f"{LIB}/queues.py", 89)]
RUNS: list[Frame] = [
    ("BaseProcess.run", f"{LIB}/process.py", 108),
    ("BaseProcess._bootstrap", f"{LIB}/process.py", 314),
]
SPAWNED: list[Frame] = [("_wrap", "/lib/site-packages/torch/multiprocessing/spawn.py", 87), *RUNS]
POLL: list[Frame] = [
    ("Popen.poll", f"{LIB}/popen_fork.py", 27),
    ("Popen.wait", f"{LIB}/popen_fork.py", 43),
    ("BaseProcess.join", f"{LIB}/process.py", 149),
]
ALL: list[Frame] = [
    ("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 415),
    ("wait", f"{LIB}/connection.py", 947),
    ("ProcessContext.join", "/lib/site-packages/torch/multiprocessing/spawn.py", 140),
]
RING = "and its parent alone takes from that queue"
PROGRAM = """import multiprocessing as mp
def play(games, stop):
    while not stop.is_set():
        games.put(1)  # PUT
class Learner:
    def __init__(self, source):
        self.source = source
    def update(self):
        return [self.source.get() for _ in range(4)]  # TAKES
def judge(x):
    return x
def main():
    ctx = mp.get_context("spawn")
    games, stop = ctx.Queue(maxsize=8), ctx.Event()
    actors = [ctx.Process(target=play, args=(games, stop)) for i in range(3)]
    learner = Learner(games)
    learner.update()
    stop.set()
    for actor in actors:
        actor.join()  # JOIN
        actor.terminate()
main()
"""


def line_of(source: str, mark: str) -> int:
    return next(number for number, text in enumerate(source.splitlines(), 1) if text.endswith(f"# {mark}"))


def named(number: int, function: str = "play") -> str:
    return f"multiprocessing process running {function} (pid {number})"


def child(number: int, stack: Sequence[Frame]) -> Box:
    box = Box(pid=number, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
    return stopped(box, stack)


def joining(stack: Sequence[Frame], number: int | None = None) -> Box:
    """`number`: of the child, as it gave that to waitpid()."""
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    given = {"rdi": number} if number is not None else None
    return box.crash(0, code=0, state=EXIT, python=stack, native=[(s.LIBC, 0x10), (s.PYTHON, 0x20)], registers=given)


def built(run: Path, *boxes: Box, handled: HandledException | None = None) -> Report:
    """Process 101 was in os.waitpid(), and on its way out of an exception if it handled one."""
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, *boxes)
    return build_report(replace(job, processes=tuple(_waiting(item, handled) for item in job.processes)))


def _waiting(process: Process, handled: HandledException | None) -> Process:
    ending = process.snapshot.ending
    if ending is None or process.snapshot.pid != 101:
        return process
    frames = tuple(replace(frame, function="os_waitpid") for frame in ending.native_stack)
    ending = replace(ending, native_stack=frames, handled=handled)
    return replace(process, snapshot=replace(process.snapshot, ending=ending))


def standing(
    run: Path,
    source: str = PROGRAM,
    *,
    entry: str = "play",
    joined: int | None = None,
    wait: Sequence[Frame] = POLL,
    started: Sequence[Frame] = RUNS,
) -> Report:
    """Children 102 and 103 stand in put(), 104 works; their parent joins `joined`."""
    script = str(s.program_in(run, source))
    works: list[Frame] = [("judge", script, line_of(source, "PUT"))]
    puts: list[Frame] = [*PUT, (entry, script, line_of(source, "PUT")), *started]
    main: list[Frame] = [*wait, ("main", script, line_of(source, "JOIN"))]
    return built(run, joining(main, joined), child(102, puts), child(103, puts), child(104, [*works, *started]))


def test_ring_of_put_and_join_is_said_with_all_its_lines(run: Path) -> None:
    report = standing(run, joined=103)
    assert verdict(report) == ("hang", "likely")
    said = summary(report)
    assert f"waited in `actor.join()` at program.py:20 in main for {named(103)}, which cannot end: it waited" in said
    assert "it waited for room in the full queue `games` (maxsize 8) at line 4 in play" in said
    assert f"{RING} (`self.source.get()` at line 9 in Learner.update), but not while it waits here" in said
    assert "so it never gets back to `while not stop.is_set()` (line 3)" in said
    seen = "waited for room in the full queue `games` at program.py:4 in play, and so did"
    assert f"{named(103)} {seen} {named(102)}" in evidence(report)


def test_ring_is_opened_by_taking_or_by_a_timeout_or_by_an_end_before_the_join(run: Path) -> None:
    said = advice(standing(run, joined=102))
    assert "Before `actor.join()` (line 20), take from `games` until the children have ended" in said
    assert (
        "Or let line 4 call put(timeout=1) in a `try`, and ask `while not stop.is_set()` again at queue.Full." in said
    )
    assert "Or call `actor.terminate()` before it, which now comes after it (line 21)." in said


def test_without_the_number_of_the_joined_child_those_of_its_kind_count(run: Path) -> None:
    """By the functions that the joined processes run."""
    said = summary(standing(run))
    assert f"at program.py:20 in main for its children, of which {named(102)} cannot end: it waited" in said


OWN_POOL = """class Pool:
    def __init__(self, n):
        self.out, self.workers = mp.JoinableQueue(4), []
        for i in range(n):
            worker = mp.Process(target=play, args=(self.out,))
            self.workers.append(worker)
    def results(self):
        return self.out.get()
    def close(self):
        for worker in self.workers:
            worker.join()  # JOIN
def play(games):
    while True:
        emit(games)
def emit(games):
    games.put(1)  # PUT
pool = Pool(2)
pool.results()
pool.close()
"""
OF_CLASS = """class Actor(mp.Process):
    def __init__(self, games):
        super().__init__()
        self.games = games
    def run(self):
        self.games.put(1)  # PUT
games = mp.Queue(2)
actors = [Actor(games), Actor(games)]
games.get()
[item.join() for item in actors]  # JOIN
"""
SPAWN = """def play(i, games, stop):
    while True:
        if stop.is_set():
            break
        games.put(i)  # PUT
def main():
    games, stop = mp.Queue(3), mp.Event()
    context = mp.spawn(play, args=(games, stop), nprocs=2, join=False)
    games.get()
    context.join()  # JOIN
"""


def test_ring_through_a_class_that_has_the_queue_and_the_workers(run: Path) -> None:
    said = summary(standing(run, OWN_POOL))
    assert "in `worker.join()` at program.py:11 in main" in said
    assert "the full queue `games` (maxsize 4)" in said
    assert f"{RING} (`self.out.get()` at line 8 in Pool.results)" in said


def test_ring_with_a_class_of_processes(run: Path) -> None:
    said = summary(standing(run, OF_CLASS, entry="Actor.run"))
    assert "in `item.join()` at program.py:10" in said
    assert f"{RING} (`games.get()` at line 9)" in said


def test_ring_with_the_processes_of_spawn(run: Path) -> None:
    """Which torch's own join() waits for, all together."""
    said = summary(standing(run, SPAWN, wait=ALL, started=SPAWNED))
    assert "in `context.join()` at program.py:10 in main for its children, of which" in said
    assert f"{RING} (`games.get()` at line 9 in main)" in said
    assert "it never gets back to `if stop.is_set()` (line 3)" in said


@pytest.mark.parametrize("before", [True, False])
def test_ring_holds_wherever_the_parent_takes(before: bool, run: Path) -> None:
    """Above the join, in a loop with it, and below it: it waits there, and nowhere else."""
    beside = "        games.get()\n        actor.join()  # JOIN"
    behind = "        actor.join()  # JOIN\n        games.get()"
    source = PROGRAM.replace("        actor.join()  # JOIN", beside if before else behind)
    assert RING in summary(standing(run, source))


def test_line_that_takes_after_the_join_is_to_come_before_it(run: Path) -> None:
    source = PROGRAM.replace("    learner.update()\n", "").replace("terminate()", "close()\n    games.get()")
    source = source.replace("[self.source.get() for _ in range(4)]", "1").replace("(maxsize=8)", "(2 * N)")
    report = standing(run, source)
    assert "full queue `games` (maxsize `2 * N`) at line 4" in summary(report)
    assert "Line 21 (`games.get()`) comes after `actor.join()` (line 19): take from `games` before that" in (
        said := advice(report)
    )
    assert "Or call terminate() of each before it" in said


def test_exception_that_led_to_the_join_is_looked_at_first(run: Path) -> None:
    """`finally: actor.join()`."""
    script = str(s.program_in(run, PROGRAM))
    error = HandledException("ValueError", "no file", (PythonFrame("main", script, 17),))
    puts = child(102, [*PUT, ("play", script, 4), *RUNS])
    report = built(run, joining([*POLL, ("main", script, 20)], 102), puts, handled=error)
    assert "; the parent was handling ValueError: no file at program.py:17 in main; SIGTERM" in summary(report)
    assert RING in summary(report)
    assert advice(report).startswith("Look at ValueError: no file at program.py:17 in main first: it led to the join()")


def test_queue_without_a_timeout_is_not_advised_one(run: Path) -> None:
    """SimpleQueue: its pipe is full."""
    script = str(s.program_in(run, PROGRAM.replace("ctx.Queue(maxsize=8)", "ctx.SimpleQueue()")))
    puts: list[Frame] = [("SimpleQueue.put", f"{LIB}/queues.py", 370), ("play", script, 4), *RUNS]
    report = built(run, joining([*POLL, ("main", script, 20)], 102), child(102, puts))
    assert f"waited for room in the full queue `games` at line 4 in play, {RING}" in summary(report)
    assert "(while one of them is_alive(): get() where it is not empty()). Or call" in advice(report)


OTHERS = {
    "a thread of the parent": ("stop.set()", "threading.Thread(target=learner.update).start()"),
    "a task of an executor": ("stop.set()", "executor.submit(learner.update)"),
    "a third process": ("stop.set()", "ctx.Process(target=watch, args=(learner,)).start()"),
    "a lambda of somebody": ("stop.set()", "threading.Timer(1, lambda: games.get()).start()"),
    "a library": ("stop.set()", "QueueListener(games, handler).start()"),
    "another name": ("stop.set()", "pending = games"),
    "a list that has it": ("stop.set()", "queues = [games]"),
    "more arguments": ("stop.set()", "start(watch, games)"),
    "another queue of that name": ("learner.update()", "source = ctx.Queue()"),
    "the writers, too": ("games.put(1)  # PUT", "games.full() and games.get()\n        games.put(1)  # PUT"),
    "a class that a library drives": ("class Learner:", "class Learner(IterableDataset):"),
    "a put that gives up": ("games.put(1)", "games.put(1, timeout=2)"),
    "a put that does not wait": ("games.put(1)", "games.put(1, False)"),
    "a join that gives up": ("actor.join()", "actor.join(5)"),
    "another kind that is joined": ("actor.join()", "other.join()"),
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS.keys())
def test_no_ring_where_somebody_else_may_take_or_either_side_may_go_on(changed: tuple[str, str], run: Path) -> None:
    other = "    other = ctx.Process(target=judge, args=(1,))\n    learner ="
    source = PROGRAM.replace("    learner =", other).replace(*changed)
    source += (
        "def watch(seen):\n    seen.update()\ndef start(function, *more):\n    Thread(target=function, args=more)\n"
    )
    report = standing(run, source)
    assert verdict(report) == ("hang", "possible")
    assert RING not in summary(report)
    assert "waited for room in the full queue `games` at" in summary(report)


def test_no_ring_where_the_parent_joins_another_child(run: Path) -> None:
    """By the number that it gave waitpid(), whatever the lines say."""
    report = standing(run, joined=104)
    assert RING not in summary(report)
    assert "full queue" not in summary(report)
    assert f"its child, {named(104, 'judge')}, was at" in summary(report)


def test_no_ring_where_a_thread_of_the_parent_was_taking(run: Path) -> None:
    """However it was started."""
    script = str(s.program_in(run, PROGRAM))
    main: list[Frame] = [*POLL, ("main", script, 20)]
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    other: dict[int, Sequence[Frame]] = {7: [("Queue.get", f"{LIB}/queues.py", 103), ("Learner.update", script, 9)]}
    box.crash(0, code=0, state=EXIT, python=main, other_python=other, native=[(s.LIBC, 0x10), (s.PYTHON, 0x20)])
    report = built(run, box, child(102, [*PUT, ("play", script, 4), *RUNS]))
    assert RING not in summary(report)


def test_no_ring_where_the_parent_is_a_child_itself(run: Path) -> None:
    """Its own parent may take."""
    script = str(s.program_in(run, PROGRAM))
    report = built(
        run, joining([*POLL, ("main", script, 20), *RUNS], 102), child(102, [*PUT, ("play", script, 4), *RUNS])
    )
    assert RING not in summary(report)


def test_no_ring_with_a_parent_that_takes(run: Path) -> None:
    script = str(s.program_in(run, PROGRAM))
    gets: list[Frame] = [("Queue.get", f"{LIB}/queues.py", 103), ("Learner.update", script, 9)]
    report = built(run, joining(gets), child(102, [*PUT, ("play", script, 4), *RUNS]))
    assert RING not in summary(report)


def test_ring_is_found_from_the_child_that_obeyed_first(run: Path) -> None:
    script = str(s.program_in(run, PROGRAM))
    first = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
    first.at(59_000).signal_seen(15, 90, TIMEOUT)
    puts: list[Frame] = [*PUT, ("play", script, 4), *RUNS]
    first.crash(0, code=0, state=EXIT, python=puts, native=[(s.LIBC, 0x10), (s.PYTHON, 0x20)])
    report = built(run, first, joining([*POLL, ("main", script, 20)], 102))
    assert summary(report).startswith("Process 101 (train.py) waited in `actor.join()`")
