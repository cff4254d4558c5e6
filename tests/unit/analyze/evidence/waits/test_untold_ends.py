"""Threads that fill a queue and died of an exception, of which who takes from the queue never learns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support.deaths import advice, summary
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Frame

GET: list[Frame] = [
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
    ("Queue.get", "/usr/lib/python3.11/queue.py", 171),
]
SOURCE = """\
class Loader:
    def fill(self, items, out):
        {tries}
            for item in items:
                out.put(load(item))
        {ends}
        out.put(None)

    def __iter__(self):
        Thread(target=self.fill, args=(self.items, self.out)).start()
        while True:
            item = self.out.get()
            if item is None:
                return
            yield item

def load(item):
    return np.frombuffer(item.read(item.length)).reshape(2, 3)
"""


def report_of(run: Path, *, tries: str = "if True:", ends: str = "pass", other: str = "out") -> Report:
    script = run / "train.py"
    script.write_text(SOURCE.format(tries=tries, ends=ends).replace("out.put(", f"{other}.put("))
    os.utime(script, (0, 0))
    died: list[Frame] = [("load", str(script), 18), ("Loader.fill", str(script), 5)]
    box = parent().at(500).thread_exception("ValueError", "cannot load", died)
    return ended(run, stopped(box, [*GET, ("Loader.__iter__", str(script), 12)]))


def test_thread_is_told_to_hand_its_exception_on(run: Path) -> None:
    """By the line that fills the queue, and the one that takes."""
    report = report_of(run)
    assert "had died of ValueError: cannot load at train.py:18 in load" in summary(report)
    assert "Let line 12 know of such an end: put the exception into the queue in Loader.fill" in advice(report)
    assert "(`except Exception as error: out.put(error)`, around line 5), and raise it" in advice(report)


@pytest.mark.parametrize(
    "changed",
    [
        {"tries": "try:", "ends": "except KeyError:\n            out.put(None)"},
        {"other": "log"},
    ],
    ids=["catches", "another queue"],
)
def test_thread_that_catches_or_fills_another_queue_is_not(changed: dict[str, str], run: Path) -> None:
    """The look-alikes."""
    report = report_of(run, **changed)
    assert "had died of ValueError" in summary(report)
    assert "put the exception into the queue" not in advice(report)
