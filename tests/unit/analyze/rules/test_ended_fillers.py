"""standstill: the thread that should have filled a queue of its process had ended, and where it puts the mark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent
from tests.support.synth import Frame

LIB = "/usr/lib/python3.11"
WAIT: list[Frame] = [("Condition.wait", f"{LIB}/threading.py", 327), ("Queue.get", f"{LIB}/queue.py", 171)]

OF_CLASS = """\
class Producer(threading.Thread):
    def __init__(self, source, out, most):
        super().__init__(daemon=True)
        self.source, self.sink, self.most = source, out, most

    def run(self):
        try:
            for n, item in enumerate(self.source, 1):
                self.sink.put(item)
                if n >= self.most:
                    self.sink.put(None)
                    break
        except Exception as error:
            self.sink.put(error)


class Batches:
    def __init__(self, source, total):
        self.source, self.total, self.ready = source, total, queue.Queue(8)

    def __iter__(self):
        thread = Producer(self.source, self.ready, self.total)
        thread.start()
        while True:
            item = self.ready.get(True)
            if item is None:
                return
            yield item


def main():
    for batch in Batches(source, total=len(rows)):
        train(batch)
"""
FILLS = "the only thread that fills it (Producer.run, lines 9 and 14) had ended in order"
OF_FUNCTION = """\
def fill(rows, out):
    for row in rows:
        out.put(row)

def main():
    box = queue.Queue()
    threading.Thread(target=fill, args=(rows, box)).start()
    for item in iter(box.get, END):
        train(item)
"""


def waits(
    run: Path,
    source: str,
    wanted: str = "ready.get",
    others: Mapping[int, Sequence[Frame]] | None = None,
    own: str = "main",
) -> Report:
    """A time limit met its main thread in the line that has these words."""
    script = run / "train.py"
    script.write_text(source)
    os.utime(script, (0, 0))
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if wanted in text)
    last = len(source.splitlines()) - 1
    way: list[Frame] = [("Batches.__iter__", str(script), line), ("main", str(script), last)]
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    stack = [*WAIT, *(way if "Batches" in source else [(own, str(script), line)])]
    native = [(s.LIBC, 0x10)]
    return ended(run, box.crash(0, code=0, state=EXIT, python=stack, other_python=others, native=native))


def test_mark_below_a_condition_is_named_with_what_the_condition_reads(run: Path) -> None:
    report = waits(run, OF_CLASS)
    assert verdict(report) == ("hang", "likely")
    assert f"{FILLS}; line 11 puts the mark `None` only where `n >= self.most` (line 10)" in summary(report)
    assert "Let Producer.run put `None` on every way, behind its loop (line 8) or in a `finally`" in advice(report)
    assert "`self.most` is `len(rows)` (line 32)" in advice(report)


def test_mark_that_nobody_puts_is_named(run: Path) -> None:
    report = waits(run, OF_FUNCTION, "box.get")
    assert verdict(report) == ("hang", "likely")
    assert "(fill, line 3) had ended in order, and no line puts the mark `END` at which" in summary(report)
    assert "Let fill put `END` on every way" in advice(report)


def test_error_that_was_caught_before_the_mark_is_named(run: Path) -> None:
    body = "    for row in rows:\n        out.put(row)\n"
    caught = "    try:\n        for row in rows:\n            out.put(load(row))\n        out.put(END)\n"
    report = waits(run, OF_FUNCTION.replace(body, f"{caught}    except OSError:\n        log()\n"), "box.get")
    assert "had ended; line 5 puts the mark `END` unless `except OSError` (line 6) catches an error" in summary(report)
    assert advice(report).startswith("See first what `except OSError` (line 6) caught there.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("                    self.sink.put(None)\n", "                    pass\n"),  # put in `finally`
        (".get(True)", ".get(True, 5)"),  # ends by itself
        ("        thread.start()\n", "        if self.total:\n            thread.start()\n"),  # perhaps never started
        ("    for batch in", "    source.ready.put(1)\n    for batch in"),  # filled elsewhere, too
    ],
)
def test_look_alikes_are_not_explained_so(old: str, new: str, run: Path) -> None:
    source = OF_CLASS.replace(old, new)
    if "pass" in new:
        source = source.replace("error)\n", "error)\n        finally:\n            self.sink.put(None)\n")
    report = waits(run, source)
    assert verdict(report) == ("hang", "possible")
    assert "the only thread that fills it" not in summary(report)


def test_another_thread_may_fill_it(run: Path) -> None:
    report = waits(run, OF_CLASS, others={5: [("poll", s.SCRIPT, 31)]})
    assert "the only thread that fills it" not in summary(report)


KEPT = """\
class Loader:
    def __init__(self, rows):
        self.ready = queue.Queue(4)
        self.errors = []
        self.thread = threading.Thread(target=self.fill, args=(rows,), daemon=True)
        self.thread.start()

    def fill(self, rows):
        try:
            for row in rows:
                while not self.stop:
                    try:
                        self.ready.put(parse(row), timeout=1)
                        break
                    except queue.Full:
                        continue
        except Exception as error:
            self.errors.append(error)

    def next(self):
        return self.ready.get()

    def close(self):
        if self.errors:
            raise self.errors[0]
"""


def kept(run: Path, source: str) -> Report:
    return waits(run, source, "ready.get", own="Loader.next")


def test_error_that_the_thread_kept_is_looked_for_where_it_is_read(run: Path) -> None:
    """The taker knows no mark; the loop that tries again is not the one that ends."""
    report = kept(run, KEPT)
    assert verdict(report) == ("hang", "likely")
    assert "the only thread that fills it (Loader.fill, line 13) had ended" in summary(report)
    told = "See first what `except Exception` (line 17) caught there: it keeps the error in `self.errors`, which only"
    assert advice(report).startswith(f"{told} Loader.close (line 24) looks at. Let it put the error into the queue")
    assert "line 11" not in advice(report)


def test_thread_without_an_error_to_hide_ended_in_order(run: Path) -> None:
    """The loop that counts is the outer one."""
    source = KEPT.replace("except Exception as error", "except OSError").replace("self.errors.append(error)", "raise")
    report = kept(run, source)
    assert "the only thread that fills it (Loader.fill, line 13) had ended in order" in summary(report)
    assert "Let Loader.fill put `None` on every way, behind its loop (line 10)" in advice(report)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            self.errors.append(error)\n", "            self.ready.put(error)\n"),
        ("        self.thread.start()\n", "        self.later = self.thread.start\n"),
    ],
)
def test_thread_that_told_its_error_or_never_began_is_not_explained_so(old: str, new: str, run: Path) -> None:
    assert "the only thread that fills it" not in summary(kept(run, KEPT.replace(old, new)))


def test_thread_that_is_still_on_its_way_was_not_kept_by_an_error(run: Path) -> None:
    """The look-alike: it is slow in what it calls there."""
    script = str(run / "train.py")
    stack: list[Frame] = [("parse", script, 40), ("Loader.fill", script, 13)]
    report = waits(run, KEPT, "ready.get", own="Loader.next", others={5: stack})
    assert verdict(report) == ("hang", "possible")
    assert "in this file only `self.ready.put(...)` at line 13 in Loader.fill ends that; SIGTERM" in summary(report)
    assert "except Exception" not in advice(report)
