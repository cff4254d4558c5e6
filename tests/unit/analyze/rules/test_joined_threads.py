"""standstill: why the threads, or children, do not end that a process waits for: it does not do what they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, in_native, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11"
JOIN: list[Frame] = [
    ("Thread._wait_for_tstate_lock", f"{LIB}/threading.py", 1132),
    ("Thread.join", f"{LIB}/threading.py", 1112),
]
WAITS: Frame = ("Condition.wait", f"{LIB}/threading.py", 327)
GET: list[Frame] = [WAITS, ("Queue.get", f"{LIB}/queue.py", 171)]
PUT: list[Frame] = [WAITS, ("Queue.put", f"{LIB}/queue.py", 140)]
RESULT: list[Frame] = [WAITS, ("Future.result", f"{LIB}/concurrent/futures/_base.py", 451)]
IDLE: list[Frame] = [("_worker", f"{LIB}/concurrent/futures/thread.py", 81), ("Thread.run", f"{LIB}/threading.py", 982)]

TAKERS = """\
def work(jobs):
    while True:
        job = jobs.get()
        if job is None:
            break
        handle(job)

def main():
    jobs = queue.Queue()
    threads = start(work, jobs)
    jobs.put(first)
    jobs.put(None)
    for thread in threads:
        thread.join()
"""


def waits(
    run: Path,
    source: str,
    own: Sequence[Frame],
    others: Mapping[int, Sequence[Frame]],
    *,
    native: str | None = None,
) -> Report:
    """Lines of the program have `train` for their file."""
    script = str(s.program_in(run, source))

    def of(frames: Sequence[Frame]) -> list[Frame]:
        return [(name, script if file == "train" else file, line) for name, file, line in frames]

    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    threads = {pthread: of(frames) for pthread, frames in others.items()}
    box.crash(0, code=0, state=EXIT, python=of(own), other_python=threads, native=[(s.LIBC, 0x10), (s.PYTHON, 0x20)])
    return in_native(run, box, native=native) if native is not None else ended(run, box)


def joined(run: Path, source: str, *threads: Sequence[Frame], line: int = 14) -> Report:
    others = {700 + number: frames for number, frames in enumerate(threads)}
    return waits(run, source, [*JOIN, ("main", "train", line)], others)


def taker(line: int = 3) -> list[Frame]:
    return [*GET, ("work", "train", line)]


def test_one_mark_ends_one_of_several_threads(run: Path) -> None:
    found = joined(run, TAKERS, taker(), taker())
    assert verdict(found) == ("hang", "likely")
    assert "line 12 (`jobs.put(None)`) puts the mark at which they stop once, which ends one" in summary(found)
    assert "2 more waited for one at program.py:3 in work" in summary(found)
    assert advice(found).startswith("Put one `None` for each thread, in a loop over them, at line 12.")


def test_loop_that_puts_fewer_marks_than_it_joins_threads(run: Path) -> None:
    few = TAKERS.replace("    jobs.put(None)\n", "    for _ in range(len(threads) - 1):\n        jobs.put(None)\n")
    found = joined(run, few, taker(), line=15)
    assert verdict(found) == ("hang", "likely")
    assert "puts fewer marks than there are takers, one for each item of `range(len(threads) - 1)`" in summary(found)
    assert advice(found) == "Put one `None` for each thread: `for _ in threads` in line 12."


def test_mark_behind_the_join_comes_too_late(run: Path) -> None:
    found = joined(run, TAKERS.replace("    jobs.put(None)\n", "") + "    jobs.put(None)\n", taker(), line=13)
    assert "is put by line 14 (`jobs.put(None)`) only, behind the join()" in summary(found)
    assert advice(found) == "Move line 14 (`jobs.put(None)`) above line 13."


def test_mark_that_no_line_puts_is_told_with_the_queue(run: Path) -> None:
    found = joined(run, TAKERS.replace("    jobs.put(None)\n", ""), taker(), line=13)
    assert "waited for the queue `jobs` at program.py:3 in work, and no line of this file puts the mark" in summary(
        found
    )


def test_loop_of_a_taker_that_nothing_leaves_is_told(run: Path) -> None:
    endless = TAKERS.replace("        if job is None:\n            break\n", "")
    found = joined(run, endless, taker(), line=12)
    assert "and nothing leaves the loop of line 2 (`while True`)" in summary(found)
    assert "end at a mark: `if item is None: break`" in advice(found)


@pytest.mark.parametrize(
    ("source", "threads"),
    [
        (TAKERS, [taker(), [("handle", "train", 6)]]),  # one is at work
        (TAKERS.replace("    jobs.put(None)\n", "    for _ in threads:\n        jobs.put(None)\n"), [taker()]),
        (TAKERS.replace("            break\n", "            jobs.put(None)\n            break\n"), [taker()]),
        (TAKERS.replace("jobs.get()", "jobs.get(timeout=5)"), [taker()]),
        (TAKERS.replace("handle(job)", "handle([job, jobs.get_nowait()])"), [taker()]),  # takes the mark along
        (
            TAKERS.replace(
                "    jobs.put(first)\n    jobs.put(None)\n", "    for row in [*rows, None]:\n        jobs.put(row)\n"
            ),
            [taker(), taker()],
        ),
        (
            TAKERS.replace("    jobs.put(None)\n", "    add(jobs, None)\n\ndef add(jobs, job):\n    jobs.put(job)\n"),
            [taker()],
        ),
        (TAKERS.replace("    jobs.put(None)\n", "    for _ in range(count):\n        jobs.put(None)\n"), [taker()]),
    ],
)
def test_threads_that_may_go_on_are_not_explained_so(source: str, threads: list[list[Frame]], run: Path) -> None:
    """The look-alikes: a mark for each, one that is passed on, a wait that ends by itself."""
    line = 1 + next((number for number, text in enumerate(source.splitlines()) if ".join()" in text), 13)
    found = joined(run, source, *threads, line=line)
    assert verdict(found) == ("hang", "possible")
    assert "mark" not in summary(found) and "Put one" not in advice(found)


FILLS = """\
class Loader:
    def produce(self):
        for item in self.items:
            self.ready.put(item)

    def __iter__(self):
        return iter(self.ready.get, None)

    def stop(self):
        self.worker.join()
"""


def test_thread_that_fills_a_queue_which_the_joining_thread_takes_from(run: Path) -> None:
    own: list[Frame] = [*JOIN, ("Loader.stop", "train", 10)]
    found = waits(run, FILLS, own, {700: [*PUT, ("Loader.produce", "train", 4)]})
    assert verdict(found) == ("hang", "likely")
    assert "waited for room in the full queue `self.ready` at program.py:4 in Loader.produce, and nobody" in summary(
        found
    )
    assert "line 7 takes from it, in the thread that waits now" in summary(found)
    assert advice(found).startswith(
        "Before line 10 waits, tell the thread to stop: an Event that it looks at in the loop"
    )


HELD = """\
class Store:
    def __init__(self):
        self.lock = threading.Lock()

    def compute(self, key):
        with self.lock:
            self.table[key] = 1

    def rebuild(self, keys):
        with self.lock:
            tasks = [self.pool.submit(self.compute, key) for key in keys]
            return [task.result() for task in tasks]
"""


@pytest.mark.parametrize("own", [[*RESULT], [*JOIN]])
def test_lock_that_the_waiting_thread_holds_is_told(own: list[Frame], run: Path) -> None:
    found = waits(run, HELD, [*own, ("Store.rebuild", "train", 12)], {700: [("Store.compute", "train", 6)]})
    assert verdict(found) == ("hang", "likely")
    assert "it held `self.lock` (line 10) meanwhile, for which another thread waited at program.py:6" in summary(found)
    assert advice(found).startswith("Leave `self.lock` (line 10) before line 12 waits")


def test_lock_that_was_left_before_the_wait_is_not_told(run: Path) -> None:
    """The look-alike: the wait is behind the `with`."""
    behind = HELD.replace("            return", "        return")
    found = waits(run, behind, [*RESULT, ("Store.rebuild", "train", 12)], {700: [("Store.compute", "train", 6)]})
    assert "it held" not in summary(found)


LATER = """\
def save(jobs):
    while (item := jobs.get()) is not None:
        write(item)

def main(images):
    jobs = queue.Queue(maxsize=4)
    worker = threading.Thread(target=save, args=(jobs,))
    for image in images:
        jobs.put(image)
    worker.start()
    worker.join()
"""


def test_queue_that_is_filled_before_its_taker_starts(run: Path) -> None:
    found = waits(run, LATER, [*PUT, ("main", "train", 9)], {})
    assert verdict(found) == ("hang", "likely")
    assert "the thread that takes from it (line 2 in save) is started by line 10, behind the lines" in summary(found)
    assert advice(found).startswith("Move the start() of line 10 above the loop that fills `jobs`")


def test_taker_that_had_started_may_have_ended(run: Path) -> None:
    """The look-alike."""
    early = LATER.replace("    worker.start()\n", "").replace("    for image", "    worker.start()\n    for image")
    found = waits(run, early, [*PUT, ("main", "train", 10)], {})
    assert "is started by" not in summary(found)


ASKS = """\
class Scorer:
    def score(self, x):
        future = asyncio.run_coroutine_threadsafe(self.compute(x), self.loop)
        return future.result()
"""
LOOP: Frame = ("BaseEventLoop._run_once", f"{LIB}/asyncio/base_events.py", 1922)


@pytest.mark.parametrize(("others", "told"), [({}, True), ({700: [LOOP, ("serve", "train", 9)]}, False)])
def test_result_that_the_loop_waits_for_itself(others: dict[int, list[Frame]], told: bool, run: Path) -> None:
    """The look-alike: the loop runs in another thread."""
    own: list[Frame] = [*RESULT, ("Scorer.score", "train", 4), ("Handle._run", f"{LIB}/asyncio/events.py", 80), LOOP]
    found = waits(run, ASKS, own, others)
    assert ("it waits in the thread of the event loop itself" in summary(found)) == told
    assert ("`await self.compute(x)` in place of line 3" in advice(found)) == told


def test_thread_of_an_executor_between_two_tasks_ends_no_wait(run: Path) -> None:
    source = "def main(slots):\n    slots.acquire()\n"
    own: list[Frame] = [WAITS, ("Semaphore.acquire", f"{LIB}/threading.py", 507), ("main", "train", 2)]
    found = waits(run, source, own, {700: IDLE})
    assert "no other Python thread of the process was left to end that" in summary(found)


PROCESSES = TAKERS.replace("thread", "worker")


@pytest.mark.parametrize("second", [3, 6])
def test_one_mark_ends_one_of_several_children(second: int, run: Path) -> None:
    """The look-alike: one of them is at work."""
    script = str(s.program_in(run, PROCESSES))
    wait: list[Frame] = [("Popen.wait", f"{LIB}/multiprocessing/popen_fork.py", 43)]
    get: list[Frame] = [("Queue.get", f"{LIB}/multiprocessing/queues.py", 103)]
    children = []
    for pid, line in ((102, 3), (103, second)):
        box = Box(pid=pid, ppid=101).versions(torch="2.13.0")
        children.append(stopped(box, [*(get if line == 3 else ()), ("work", script, line)]))
    found = ended(run, stopped(parent(), [*wait, ("main", script, 14)]), *children)
    told = second == 3
    assert ("puts the mark at which they stop once" in summary(found)) == told
    assert ("Put one `None` for each process" in advice(found)) == told


def test_lock_of_one_object_of_several_is_not_said_to_be_held(run: Path) -> None:
    """The look-alike: another store may be the one whose lock the thread waits for."""
    several = f"{HELD}\nstores = [Store() for _ in range(2)]\n"
    found = waits(run, several, [*RESULT, ("Store.rebuild", "train", 12)], {700: [("Store.compute", "train", 6)]})
    assert "it held" not in summary(found)


SECOND = """\
class Prefetcher:
    def __init__(self, loader):
        self.loader, self.ready = loader, queue.Queue(4)
        self.thread = threading.Thread(target=self.fill, daemon=True)
        self.thread.start()

    def fill(self):
        for batch in self.loader:
            self.ready.put(batch)
        self.ready.put(None)

    def __iter__(self):
        while True:
            batch = self.ready.get()
            if batch is None:
                return
            yield batch

def main(loader):
    ready = Prefetcher(loader)
    for epoch in range(3):
        for batch in ready:
            train(batch)
"""


@pytest.mark.parametrize("told", [True, False])
def test_second_pass_over_what_a_thread_has_filled_once(told: bool, run: Path) -> None:
    """The look-alike: each pass starts a thread of its own, so that somebody else has taken the mark."""
    start = "        self.thread.start()\n"
    source = (
        SECOND if told else SECOND.replace(start, "").replace("        while True:\n", f"{start}        while True:\n")
    )
    found = waits(run, source, [*GET, ("Prefetcher.__iter__", "train", 14), ("main", "train", 22)], {})
    words = "the mark `None` that it puts last (line 10) had been taken before: line 5 starts it once"
    assert (words in summary(found)) == told
    assert advice(found).startswith("Start the thread anew for each pass") == told


OF_CHILD = """\
class Server:
    def __init__(self):
        self.ready = threading.Event()
        self.process = Process(target=self.serve)

    def serve(self):
        load()
        self.ready.set()

    def open(self):
        self.process.start()
        self.ready.wait()
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", True),
        ("Process(", "Thread(", False),
        ("class Server", "import multiprocessing.dummy as mp\nclass Server", False),
        ("        load()\n", "        load()\n\n    def later(self):\n        submit(self.serve)\n", False),
        ("        self.process.start()\n", "        if self.local:\n            self.serve()\n", False),
        ("        load()\n", "        load()\n\n    def reset(self):\n        self.ready.set()\n", False),
    ],
)
def test_event_of_threads_that_a_child_sets(old: str, new: str, told: bool, run: Path) -> None:
    """The look-alikes: a thread sets it, or the process itself."""
    source = OF_CHILD.replace(old, new) if old else OF_CHILD
    own: list[Frame] = [
        WAITS,
        ("Event.wait", f"{LIB}/threading.py", 629),
        ("Server.open", "train", len(source.splitlines())),
    ]
    found = waits(run, source, own, {})
    words = "it is one of threading, and `self.ready.set()` (line 8 in Server.serve) runs in the process of line 4"
    assert (words in summary(found)) == told
    assert advice(found).startswith("Make `self.ready` by `multiprocessing.Event()`, before line 4") == told
