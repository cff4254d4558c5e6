"""standstill: a batch that a DataLoader worker could not pickle, and the lines that put such a thing into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
GET: list[Frame] = [("Queue.get", f"{LIB}/queues.py", 103), ("next", f"{s.TORCH}/utils/data/dataloader.py", 1300)]
IDLE: list[Frame] = [*GET[:1], ("_worker_loop", f"{s.TORCH}/utils/data/_utils/worker.py", 300)]
FEED: list[Frame] = [("Queue._feed", f"{LIB}/queues.py", 244)]
FILE = "cannot pickle '_io.BufferedReader' object"
PROGRAM = """class Page:
    def __init__(self, path):
        self.fp = open(path, "rb")
    def load(self):
        self.fp = None
class Pages(Dataset):
    def __getitem__(self, i):
        page = Page(i)
        if page.mode == "P5":
            page.load()
        return page
def collate(rows):
    return rows
def main():
    for batch in DataLoader(Pages(), num_workers=2, collate_fn=collate):
        train(batch)
"""


def dropped(run: Path, message: str, program: str = PROGRAM, errors: int = 1, worker: bool = True) -> Report:
    """A worker whose queue's thread dropped what it could not pickle."""
    script = str(s.program_in(run, program))
    box = Box(pid=102, ppid=101).versions(torch="2.13.0")
    if worker:
        box.entry_of_worker(0, "Pages")
    for number in range(errors):
        box.at(1_000 + 100 * number).sample(f"8 {8 * number}-{8 * number + 7}").sample("")
        box.exception("TypeError", message, FEED, thread="QueueFeederThread", on_its_way="put")
    return ended(run, stopped(parent(), [*GET, ("main", script, 15)]), stopped(box, IDLE))


def test_batch_that_cannot_be_pickled_names_the_lines_that_make_it(run: Path) -> None:
    report = dropped(run, FILE)
    assert verdict(report) == ("hang", "likely")
    assert "could not send a batch, which was dropped: TypeError: cannot pickle '_io.BufferedReader'" in summary(report)
    assert "it had just loaded samples 0-7" in summary(report)
    assert "line 3 (`self.fp = open(path, 'rb')`) keeps one in each Page; only load() drops it (line 5)" in advice(
        report
    )
    assert "which line 10 calls only `if page.mode == 'P5'`" in advice(report)
    assert "from Pages.__getitem__() (line 7) and collate() (line 12), for every sample" in advice(report)
    assert "put()" not in advice(report)


def test_several_batches_that_were_dropped_name_no_samples(run: Path) -> None:
    """The look-alike: which one the loader waits for is not known."""
    assert "had just loaded" not in summary(dropped(run, FILE, errors=2))


def test_call_in_every_case_names_no_condition(run: Path) -> None:
    """The look-alike: load() is called for each sample."""
    program = PROGRAM.replace('        if page.mode == "P5":\n            page.load()', "        page.load()")
    assert "calls only" not in advice(dropped(run, FILE, program))


@pytest.mark.parametrize("program", ["def main():\n" + "    pass\n" * 20, PROGRAM.replace("open(", "reader(")])
def test_program_that_makes_none_names_no_line(program: str, run: Path) -> None:
    """The look-alike: a library made it."""
    found = advice(dropped(run, FILE, program))
    assert found.startswith("A batch goes to the main process by pickle, and a `_io.BufferedReader` cannot. Return")


def test_lambda_in_a_sample_is_named_with_its_line(run: Path) -> None:
    program = PROGRAM.replace("return page\n", "return page, lambda t: t\n")
    report = dropped(run, "Can't pickle local object 'Pages.__getitem__.<locals>.<lambda>'", program)
    assert "(`Pages.__getitem__.<locals>.<lambda>`, line 11)" in advice(report)
    assert "__getstate__" not in advice(report)


def test_object_of_the_programs_own_queue_is_no_batch(run: Path) -> None:
    """The look-alike: no worker of a DataLoader."""
    report = dropped(run, FILE, worker=False)
    assert "could not send what it had put into a queue" in summary(report)
    assert "plain data" in advice(report)
