"""standstill: a program at its end waits for the thread of its own queue, whose reader has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
AT_END: list[Frame] = [
    ("Thread.join", "/usr/lib/python3.11/threading.py", 1119),
    ("Queue._finalize_join", f"{LIB}/queues.py", 199),
    ("Finalize.__call__", f"{LIB}/util.py", 224),
    ("_exit_function", f"{LIB}/util.py", 360),
]
OF_CHILD: list[Frame] = [*AT_END, ("BaseProcess._bootstrap", f"{LIB}/process.py", 317)]
WRITES: list[Frame] = [("Connection._send", f"{LIB}/connection.py", 384), ("Queue._feed", f"{LIB}/queues.py", 250)]
IDLE: list[Frame] = [
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
    ("Queue._feed", f"{LIB}/queues.py", 231),
]
PROGRAM = """\
import multiprocessing as mp
class Sink:
    def __init__(self, batches):
        self.batches = batches
        self.queue = mp.Queue()
        self.process = mp.Process(target=self._run)
        self.process.start()
    def _run(self):
        {loop}
            part = self.queue.get()
            {test}
            save(part)
    def put(self, part):
        self.queue.put(part)
    def close(self):
        {mark}
        self.process.join()
def main():
    loader = load()
    sink = Sink(len(loader))
    for batch in loader:
        for view in views:
            sink.put(view(batch))
    sink.close()
main()
"""
COUNTED = {"loop": "for _ in range(self.batches):", "test": "pass", "mark": "pass"}
MARKED = {"loop": "while True:", "test": "if part is None: return", "mark": "self.queue.put(None)"}


def at_end(
    run: Path,
    stack: list[Frame] = AT_END,
    thread: list[Frame] = WRITES,
    reader: int | None = 0,
    source: str = PROGRAM,
    parts: dict[str, str] = COUNTED,
) -> Report:
    script = str(s.program_in(run, source.format(**parts)))
    box = Box(pid=101, ppid=90, argv=["python", script]).versions(torch="2.13.0")
    if reader is not None:
        box.at(4_000).wait(102, exit_code=reader)
    box.at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=stack, other_python={5: thread}, native=[(s.LIBC, 0x10)])
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    children = [Box(pid=102, ppid=101).versions(torch="2.13.0").at(3_900)] if reader is not None else []
    return build_report(s.load(run, root, box, *children))


def test_reader_that_counts_less_than_is_put_is_told_with_both_counts(run: Path) -> None:
    report = at_end(run)
    assert verdict(report) == ("hang", "likely")
    assert "had come to its end, and waited until all that it had put into `self.queue` is read" in summary(report)
    assert "had ended with status 0 at 4.000 s, and no other child could read it" in summary(report)
    assert "Sink._run takes `self.batches` items (the loop of line 9; `self.batches` is `len(loader)`" in advice(report)
    assert "line 14 puts, called at line 23 in each round of `for batch in loader` (line 21) and" in advice(report)
    assert "before join()" not in advice(report)


def test_reader_that_stops_at_a_mark_is_told_with_the_line_that_puts_it(run: Path) -> None:
    report = at_end(run, parts=MARKED)
    assert "Sink._run takes (line 10) until it gets `None`, and ends" in advice(report)
    assert "and line 16 puts the mark. Put that mark last" in advice(report)


def test_source_that_shows_no_such_queue_gets_general_advice(run: Path) -> None:
    report = at_end(run, source=PROGRAM.replace("mp.Queue()", "make()"))
    assert "had put into a multiprocessing queue is read" in summary(report)
    assert "whoever reads the queue has to take all of it before it ends" in advice(report)


@pytest.mark.parametrize("more", [{"stack": OF_CHILD}, {"thread": IDLE}])
def test_other_ends_are_not_explained_so(more: dict[str, list[Frame]], run: Path) -> None:
    """The look-alikes: a child of multiprocessing, and a thread that has sent all."""
    report = at_end(run, **more)  # type: ignore[arg-type]
    assert "had come to its end" not in summary(report)
    assert "no other child could read it" not in summary(report)


def test_without_a_reader_that_ended_it_is_only_possible(run: Path) -> None:
    report = at_end(run, reader=None)
    assert verdict(report) == ("hang", "possible")
    assert "no other child" not in summary(report)
