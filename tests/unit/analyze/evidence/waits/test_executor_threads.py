"""A thread of an executor that the end of an event loop, or of a `with`, waits for, and what looks like that."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent
from tests.support.synth import Frame

LIB = "/usr/lib/python3.11"
SOURCE = """class Server:
    def next_batch(self):
        return self.inbox.get()
async def main():
    worker = asyncio.create_task(Server().run())
    worker.cancel()
asyncio.run(main())
"""
LOOP: list[Frame] = [
    ("EpollSelector.select", f"{LIB}/selectors.py", 468),
    ("BaseEventLoop._run_once", f"{LIB}/asyncio/base_events.py", 1884),
    ("Runner.close", f"{LIB}/asyncio/runners.py", 73),
]
SHUTDOWN: list[Frame] = [
    ("Thread.join", f"{LIB}/threading.py", 1119),
    ("ThreadPoolExecutor.shutdown", f"{LIB}/concurrent/futures/thread.py", 235),
]
OF_LOOP: list[Frame] = [*SHUTDOWN, ("BaseEventLoop._do_shutdown", f"{LIB}/asyncio/base_events.py", 579)]
GET: list[Frame] = [("Queue.get", f"{LIB}/queue.py", 171)]
WORKER: Frame = ("_worker", f"{LIB}/concurrent/futures/thread.py", 83)


def stood(run: Path, main: list[Frame], *threads: list[Frame], source: str = SOURCE) -> Report:
    """The main thread's frames above line 7, and those of the others."""
    script = s.program_in(run, source)
    here = [[(name, str(script) if file == s.SCRIPT else file, line) for name, file, line in item] for item in threads]
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    others = {number + 7: item for number, item in enumerate(here)}
    main = [*main, ("<module>", str(script), 7)]
    return ended(run, box.crash(0, code=0, state=EXIT, python=main, other_python=others, native=[(s.LIBC, 16)]))


NEXT: Frame = ("Server.next_batch", s.SCRIPT, 3)


def test_loop_at_its_end_waits_for_the_thread_in_a_queue(run: Path) -> None:
    """What the thread was in, and that cancel() leaves it alone."""
    report = stood(run, LOOP, OF_LOOP, [*GET, NEXT, WORKER])
    assert verdict(report) == ("hang", "likely")
    assert (
        "had come to the end of asyncio.run(), and waited for a thread of its executor, which was at program.py:3 in "
        "Server.next_batch, in Queue.get; line 6 (`worker.cancel()`) ends a task, not its thread;"
    ) in summary(report)
    assert advice(report).startswith(
        "Let `next_batch()` return when the program ends: put a last item that says so (`self.inbox.put(None)`) before "
        "the end, and return on it behind line 3"
    )


def test_pool_at_the_end_of_its_with_is_told_the_same(run: Path) -> None:
    """Without a loop, and with no cancel()."""
    report = stood(run, SHUTDOWN, [*GET, NEXT, WORKER], source=SOURCE.replace("worker.cancel()", "pass"))
    assert "waited for a thread of an executor that it shuts down, which was at program.py:3 in Server" in summary(
        report
    )
    assert "ends a task, not its thread" not in summary(report)
    assert "asyncio.Queue" not in advice(report)


def test_thread_at_work_is_only_possibly_the_cause(run: Path) -> None:
    """The look-alike: it may end by itself."""
    report = stood(run, SHUTDOWN, [NEXT, WORKER])
    assert verdict(report) == ("hang", "possible")
    assert "it was at work at line 3" in advice(report)
    assert "raise the time limit" in advice(report)


@pytest.mark.parametrize(
    "threads",
    [
        [[*GET, NEXT, WORKER]],  # nobody shuts the executor down
        [OF_LOOP, [*GET, WORKER]],  # an idle one: it ends when the executor says so
    ],
)
def test_loop_that_still_runs_waits_for_its_tasks(threads: list[list[Frame]], run: Path) -> None:
    """The look-alikes: what the loop waits for is no thread of the executor."""
    report = stood(run, LOOP, *threads)
    assert "waited in the event loop of asyncio" in summary(report)
