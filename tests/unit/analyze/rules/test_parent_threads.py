"""Threads that a forked child waits for and its parent alone has: which line started them, and where to make them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11"
FORKED: list[Frame] = [
    ("Popen._launch", f"{LIB}/multiprocessing/popen_fork.py", 71),
    ("_MultiProcessingDataLoaderIter.__init__", f"{s.TORCH}/utils/data/dataloader.py", 1176),
]
RESULT: list[Frame] = [
    ("Condition.wait", f"{LIB}/threading.py", 327),
    ("Future.result", f"{LIB}/concurrent/futures/_base.py", 451),
]
GET: list[Frame] = [("Condition.wait", f"{LIB}/threading.py", 327), ("Queue.get", f"{LIB}/queue.py", 171)]
RUNS_LOOP: list[Frame] = [("BaseEventLoop.run_forever", f"{LIB}/asyncio/base_events.py", 607)]
RUNS_TASKS: list[Frame] = [("_worker", f"{LIB}/concurrent/futures/thread.py", 81)]

LOOP = """import asyncio, threading
_loop = None
def get_loop():
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, name="io", daemon=True).start()
    return _loop
def read(key):
    return asyncio.run_coroutine_threadsafe(fetch(key), get_loop()).result()
def main(loader):
    print(read("first"))
    for batch in loader:
        print(batch)
"""
EXECUTOR = """from concurrent.futures import ThreadPoolExecutor
class Tiles:
    def __init__(self):
        self.pool = ThreadPoolExecutor(4)
    def rows(self, keys):
        tasks = [self.pool.submit(fetch, key) for key in keys]
        return [task.result() for task in tasks]
def main(loader, tiles):
    tiles.rows([1])
    for batch in loader:
        print(batch)
"""
SERVICE = """import queue, threading
class Lookup:
    def __init__(self):
        self.asked, self.found = queue.Queue(), queue.Queue()
        threading.Thread(target=self._serve).start()
    def _serve(self):
        while True:
            self.found.put(table[self.asked.get()])
    def find(self, key):
        self.asked.put(key)
        return self.found.get()
def main(loader):
    lookup = Lookup()
    for batch in loader:
        print(batch)
"""


def job(
    run: Path, program: str, waits: Sequence[Frame], own: tuple[str, int], fork: int, thread: Sequence[Frame] | None
) -> Report:
    """A forked DataLoader worker that waits at `own`; `thread`: what another thread of its parent is in."""
    script = str(s.program_in(run, program))
    others = {5: [(name, file or script, line) for name, file, line in thread]} if thread is not None else None
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    get: list[Frame] = [("Queue.get", f"{LIB}/multiprocessing/queues.py", 103), ("main", script, fork)]
    box.crash(0, code=0, state=EXIT, python=get, other_python=others, native=[(s.LIBC, 0x10)])
    child = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
    stack = [*waits, (own[0], script, own[1]), *FORKED, ("main", script, fork)]
    return ended(run, box, stopped(child, stack))


def test_event_loop_of_the_parent_is_named_with_what_started_it(run: Path) -> None:
    """The child finds a loop that nobody runs."""
    report = job(run, LOOP, RESULT, ("read", 10), 13, RUNS_LOOP)
    assert verdict(report) == ("hang", "likely")
    assert report.verdict is not None and report.verdict.pid == 102
    words = summary(report)
    assert "it is the thread `io` of line 7 (`threading.Thread(target=_loop.run_forever, name" in words
    assert (
        "which runs the event loop `_loop`, started in the parent by line 12 (`read('first')`) before line 13" in words
    )
    assert "a forked worker has `_loop`, but not its thread, and line 5 (`if _loop is None`) makes no new" in advice(
        report
    )
    assert "Set `_loop` to None in each worker, in a `worker_init_fn` of the DataLoader" in advice(report)
    assert 'by spawn, with `multiprocessing_context="spawn"`' in advice(report)


def test_executor_whose_threads_the_parent_had_used_is_named(run: Path) -> None:
    """Tasks start the threads of an executor, not its constructor."""
    report = job(run, EXECUTOR, RESULT, ("Tiles.rows", 7), 10, RUNS_TASKS)
    assert "threads of the executor `self.pool` of line 4 (`ThreadPoolExecutor(4)`), used in the parent" in summary(
        report
    )
    assert "by line 9 (`tiles.rows([1])`) before line 10 forked" in summary(report)
    assert "Make it in each worker, at its first use there" in advice(report)
    assert "spawn" not in advice(report)  # the threads of what is passed cannot be pickled


def test_thread_that_fills_the_queue_is_named(run: Path) -> None:
    """The queue that the child waits for is filled by the function of that thread."""
    report = job(run, SERVICE, GET, ("Lookup.find", 11), 14, [("Lookup._serve", "", 8)])
    assert "it is the thread of line 5 (`threading.Thread(target=self._serve)`), started in the parent by" in summary(
        report
    )
    assert "line 13 (`Lookup()`) before line 14 forked" in summary(report)
    assert "has a copy of the `Lookup`, but not its thread. Make a `Lookup` in each worker" in advice(report)


def test_loop_of_a_module_starts_when_that_is_imported(run: Path) -> None:
    """No line of the parent leads there."""
    program = """import asyncio, threading
LOOP = asyncio.new_event_loop()
def serve():
    LOOP.run_forever()
threading.Thread(target=serve, daemon=True).start()
def read(key):
    return asyncio.run_coroutine_threadsafe(fetch(key), LOOP).result()
def main(loader):
    for batch in loader:
        print(batch)
"""
    report = job(run, program, RESULT, ("read", 7), 9, RUNS_LOOP)
    assert "runs the event loop `LOOP`, started when its module was imported in the parent" in summary(report)


@pytest.mark.parametrize(
    ("program", "waits", "own", "fork", "thread"),
    [
        (SERVICE.replace("self.found.put(", "print("), GET, ("Lookup.find", 11), 14, [("Lookup._serve", "", 8)]),
        (LOOP, RESULT, ("read", 10), 13, [("beat", "", 2)]),  # nobody runs a loop in the parent
        (
            f"{LOOP}\ndef other(loop):\n    threading.Thread(target=loop.run_forever)\n",
            RESULT,
            ("read", 10),
            13,
            RUNS_LOOP,
        ),
        (
            EXECUTOR.replace("    tiles.rows([1])", "    print()"),
            RESULT,
            ("Tiles.rows", 7),
            10,
            None,
        ),  # never used before
    ],
)
def test_thread_that_is_not_known_to_be_waited_for_is_not_named(
    program: str, waits: Sequence[Frame], own: tuple[str, int], fork: int, thread: Sequence[Frame] | None, run: Path
) -> None:
    """The look-alikes: the wait is the same, and what it is for is not known."""
    report = job(run, program, waits, own, fork, thread)
    assert "waited in a forked child for a thread that exists in its parent only" in summary(report)
    assert "it is " not in summary(report)
    assert advice(report).startswith("fork() copies one thread only")


FSSPEC = f"{LIB}/site-packages/fsspec/asyn.py"
STORE = """from fsspec.asyn import sync, get_loop
def read(loop, key):
    return sync(loop, fetch, key)
def main(loader):
    loop = get_loop()
    print(read(loop, "first"))
    for batch in loader:
        print(batch)
"""


@pytest.mark.parametrize("thread", [RUNS_LOOP, [("beat", "", 2)]])
def test_thread_of_a_library_is_named_with_what_had_used_it(thread: Sequence[Frame], run: Path) -> None:
    """fsspec runs a loop of its own. The look-alike: no thread of the parent runs one, so nothing is known."""
    waits: list[Frame] = [
        ("Condition.wait", f"{LIB}/threading.py", 331),
        ("Event.wait", f"{LIB}/threading.py", 629),
        ("sync", FSSPEC, 100),
    ]
    report = job(run, STORE, waits, ("read", 3), 7, thread)
    named = thread is RUNS_LOOP
    assert (
        "it is a thread of fsspec (`sync()`), which line 6 (`read(loop, 'first')`) had used" in summary(report)
    ) == named
    assert ("Make what line 3 uses of fsspec in each worker" in advice(report)) == named


def test_class_of_a_thread_that_runs_a_loop_is_one_of_its_starts(run: Path) -> None:
    """`class Io(threading.Thread)` with run()."""
    program = """import asyncio, threading
class Io(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.loop = asyncio.new_event_loop()
    def run(self):
        self.loop.run_forever()
    def ask(self, key):
        return asyncio.run_coroutine_threadsafe(fetch(key), self.loop).result()
def begin():
    io = Io()
    io.start()
    return io
def main(loader):
    io = begin()
    for batch in loader:
        print(batch)
"""
    report = job(run, program, RESULT, ("Io.ask", 9), 16, RUNS_LOOP)
    assert "it is the thread of line 11 (`Io()`), which runs the event loop `self.loop`" in summary(report)
    assert "started in the parent by line 15 (`begin()`) before line 16 forked" in summary(report)
