"""other-death and standstill: loops whose passes all end in their own `except`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.journal import HandledException
from pytracer.decode.types.snapshot import HeldValue, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, below, parent, stopped, with_ending
from tests.support.synth import Box

FEEDER = """\
class Feeder:
    def __init__(self, pool, names):
        self.gen = None
        self.pool, self.names = pool, names

    def take(self, size):
        batch = []
        i, failed = 0, 0
        while i < size:
            try:
                row = self.gen.next()
                batch.append(row)
                i += 1
            except (StopIteration, AttributeError):
                failed += 1
                self.gen = self.pool.imap(load, self.names, chunksize=8)
        return batch
"""
MAKES = "self.pool.imap(load, self.names, chunksize=8)"
RETURNS = """\
def clip(root, names):
    failed = 0
    while True:
        try:
            return load(root, names)
        except Exception as error:
            failed += 1
            names = names[1:]
"""


def taking(
    run: Path, source: str = FEEDER, line: int = 15, handled: HandledException | None = None, **values: object
) -> Report:
    """Ended at a line of take(), without a step or tensor for long, with these values of its variables."""
    program = str(s.program_in(run, source))
    box = parent().at(3_000).alloc(0x1000, 64)
    name = "take" if source.startswith("class") else "clip"
    return _ended(run, stopped(box, [(name, program, line)]), handled, values)


def _ended(run: Path, box: Box, handled: HandledException | None, values: dict[str, object], *others: Box) -> Report:
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, box, *others)
    held = tuple(HeldValue(name, str(value), 0) for name, value in values.items())
    changed = (
        with_ending(item, values=held, handled=handled) if item.snapshot.pid == 101 else item for item in job.processes
    )
    return build_report(replace(job, processes=tuple(changed)))


def caught(run: Path, kind: str, message: str, line: int = 11) -> HandledException:
    return HandledException(kind, message, (PythonFrame("take", str(run / "program.py"), line),))


def test_a_method_that_iterators_lack_is_why_each_pass_fails(run: Path) -> None:
    found = taking(run, i=0)
    assert verdict(found) == ("hang", "likely")
    assert "computed for ever in the loop of line 9 (`while i < size`) at program.py:15" in summary(found)
    assert (
        "its passes end in the `except (StopIteration, AttributeError)` of line 14, which goes on with the next one: "
        "`i` is still 0, as before the loop, so no pass has come to the end of line 13 (`i += 1`); `self.gen.next()` "
        "(line 11) raises AttributeError each time: iterators of Python 3 have no method next(), and it is a generator "
        "(imap() with a chunksize above 1 returns one), line 16"
    ) in summary(found)
    assert advice(found).startswith("Call `next(self.gen)` at line 11 instead of `self.gen.next()`.")
    assert advice(found).endswith("Begin with `self.gen = iter(())` at line 3 in place of None.")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("(load(name) for name in self.names)", "it is a generator, line 16"),
        ("map(load, self.names)", "it is an iterator (map()), line 16"),
    ],
)
def test_other_iterators_are_told_alike(made: str, says: str, run: Path) -> None:
    found = taking(run, FEEDER.replace(MAKES, made), i=0)
    assert verdict(found) == ("hang", "likely")
    assert says in summary(found)


@pytest.mark.parametrize("made", ["self.pool.imap(load, self.names)", "Reader(self.names)", "iter(self.names)"])
def test_what_may_have_the_method_is_not_told_to_lack_it(made: str, run: Path) -> None:
    """The look-alike: pool.imap() without a chunksize gives an iterator that has next()."""
    found = taking(run, FEEDER.replace(MAKES, made), i=0)
    assert verdict(found) == ("hang", "possible")
    assert "iterators of Python 3" not in summary(found) and "`i` is still 0" in summary(found)


def test_a_class_with_that_method_is_no_iterator_without_it(run: Path) -> None:
    source = f"{FEEDER}\nclass Pool:\n    def next(self):\n        pass\n"
    assert "iterators of Python 3" not in summary(taking(run, source, i=0))


def test_the_exception_that_it_had_caught_is_told(run: Path) -> None:
    source = FEEDER.replace(MAKES, "self.pool.open(self.names)")
    handled = caught(run, "AttributeError", "'Reader' object has no attribute 'next'")
    found = taking(run, source, handled=handled, i=0, failed=812)
    assert verdict(found) == ("hang", "likely")
    assert "812 passes (`failed`) ended in the `except" in summary(found)
    assert "it had just caught AttributeError: 'Reader' object has no attribute 'next' at program.py:11" in summary(
        found
    )
    assert advice(found).startswith("Call `next(self.gen)` at line 11")


def test_another_exception_is_told_as_that(run: Path) -> None:
    source = FEEDER.replace("self.gen.next()", "self.read(i)").replace("(StopIteration, AttributeError)", "Exception")
    handled = caught(run, "OSError", "[Errno 5] Input/output error: 'clip'")
    found = taking(run, source, handled=handled, i=0, failed=812)
    assert verdict(found) == ("hang", "likely")
    assert "it had just caught OSError" in summary(found) and "next()" not in summary(found)
    assert advice(found).endswith("Count the passes that fail, and raise the last exception after a few of them.")


def test_a_pass_that_has_come_past_the_call_had_its_item(run: Path) -> None:
    """The look-alike: another version, whose iterator has the method, is at work with an item."""
    assert "iterators of Python 3" not in summary(taking(run, line=12, i=0))


def test_passes_that_came_through_are_work(run: Path) -> None:
    """The look-alike: slow, but `i` has gone on."""
    source = FEEDER.replace("self.gen.next()", "self.read(i)")
    found = taking(run, source, i=3, failed=812)
    assert "is still" not in summary(found) and "passes" not in summary(found)
    assert verdict(found) == ("external-kill", "certain")


@pytest.mark.parametrize("counted", [{}, {"failed": 0}])
def test_a_first_pass_that_goes_on_is_work(counted: dict[str, Any], run: Path) -> None:
    """The look-alike: nothing has failed yet, as far as is known."""
    source = FEEDER.replace("self.gen.next()", "self.read(i)")
    found = taking(run, source, 11, None, i=0, **counted)
    assert "is still" not in summary(found) and "passes" not in summary(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "                failed += 1\n",
            "                failed += 1\n                if failed > 9:\n                    raise\n",
        ),
        ("                failed += 1\n", "                i += 1\n"),
        ("(StopIteration, AttributeError)", "queue.Empty"),
    ],
)
def test_passes_that_may_end_the_loop_otherwise_are_not_told(old: str, new: str, run: Path) -> None:
    """The look-alikes: the `except` bounds the tries, goes on itself, or waits for what others put."""
    found = taking(run, FEEDER.replace("self.gen.next()", "self.read(i)").replace(old, new), i=0, failed=6)
    assert "ended in the `except" not in summary(found) and "end in the `except" not in summary(found)


@pytest.mark.parametrize(
    "moves",
    [
        "if fits(row):\n                    i += 1",
        "if row is None:\n                    continue\n                i += 1",
        "i = i + 1 if worse(row) else 0",
        "i += len(row)",
    ],
)
def test_passes_that_raise_nothing_and_bring_it_no_nearer_are_no_errors(moves: str, run: Path) -> None:
    """The look-alikes: healthy passes that reject what they drew, or set the counter back, beside some errors."""
    source = FEEDER.replace("self.gen.next()", "self.read(i)").replace("i += 1", moves)
    found = taking(run, source, line=11, i=0, failed=82)
    assert "ended in the `except" not in summary(found) and "is still 0" not in summary(found)


def test_errors_of_a_loop_that_is_left_at_its_end_are_no_reason(run: Path) -> None:
    """The look-alike: bad lines among many good ones, until there is none."""
    source = RETURNS.replace(
        "return load(root, names)", "line = load(root, names)\n            if line is None:\n                break"
    )
    found = taking(run, source, line=5, failed=5_120)
    assert "ended in the `except" not in summary(found)


def test_tries_that_are_counted_are_told_with_their_number(run: Path) -> None:
    found = taking(run, RETURNS, line=7, failed=5_120)
    assert verdict(found) == ("hang", "likely")
    assert "5,120 passes (`failed`) ended in the `except Exception` of line 6" in summary(found)


def test_tries_that_wait_in_between_may_be_of_what_is_not_there_yet(run: Path) -> None:
    """The look-alike: a job of another host that is asked for until it is done."""
    source = RETURNS.replace("            names = names[1:]\n", "            time.sleep(1)\n")
    found = taking(run, source, line=5, failed=5_120)
    assert "5,120 passes (`failed`) ended in" in summary(found)
    assert verdict(found) == ("hang", "possible")


def test_workers_that_wait_for_a_parent_in_such_a_loop_are_its_consequence(run: Path) -> None:
    program = str(s.program_in(run, FEEDER))
    pool = "/usr/lib/python3.11/multiprocessing"
    box = stopped(parent().at(3_000).alloc(0x1000, 64), [("take", program, 15)])
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0")
    stack = [
        ("SemLock.__enter__", f"{pool}/synchronize.py", 95),
        ("SimpleQueue.put", f"{pool}/queues.py", 376),
        ("worker", f"{pool}/pool.py", 131),
    ]
    found = _ended(run, box, None, {"i": 0}, stopped(worker, stack))
    assert verdict(found) == ("hang", "likely")
    assert "Process 101" in summary(found) and "`self.gen.next()`" in summary(found)


@pytest.mark.parametrize(
    ("native", "expected"),
    [(("pthread_cond_timedwait", "take_gil"), "hang"), (("read", "os_read"), "external-kill")],
)
def test_a_turn_among_threads_is_no_wait(native: tuple[str, str], expected: str, run: Path) -> None:
    """The look-alike reads: it may wait for what comes from elsewhere."""
    program = str(s.program_in(run, FEEDER))
    box = stopped(parent().at(3_000).alloc(0x1000, 64), [("take", program, 15)])
    found = below(run, box, native=[(native[0], s.LIBC), (native[1], s.PYTHON)])
    assert verdict(found)[0] == expected
