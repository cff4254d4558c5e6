"""DataLoader workers that a time limit found inside a batch, and that left no stack."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.analyze import engine
from pytracer.decode.types.host_counters import SeenProcess
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import MS, Box, Frame

LOADER = "/usr/lib/python3/site-packages/torch/utils/data/dataloader.py"
QUEUES = "/usr/lib/python3.11/multiprocessing/queues.py"
SOURCE = """\
class Crops(Dataset):
    def __getitem__(self, i):
        {tries}:
            crop = self.crops[i]
            if crop is not None:
                return crop
            i = (i + 2) % len(self.crops)

def train(loader):
    for batch in loader:
        step(batch)
"""


def report_of(
    run: Path, monkeypatch: pytest.MonkeyPatch, *, cpu: float | None, tries: str = "while True", dataset: str = "Crops"
) -> Report:
    """Process 101 waits for its worker, process 102, which has been loading since its first second."""
    script = s.program_in(run, SOURCE.format(tries=tries))
    os.utime(script, (0, 0))
    stack: list[Frame] = [("Queue.get", QUEUES, 113), ("_BaseDataLoaderIter.__next__", LOADER, 725)]
    main = stopped(parent(), [*stack, ("train", str(script), 10)])
    worker = Box(pid=102, ppid=101).at(500).entry_of_worker(0, dataset).at(1_000).sample("4 0,1,2,3")
    seen = SeenProcess(102, 0, worker.created_ns, worker.created_ns + 51_000 * MS, cpu_seconds=cpu)
    monkeypatch.setattr(engine, "_seen", lambda _, process: seen if process.snapshot.pid == 102 else None)
    return ended(run, main, worker)


def test_loop_of_the_dataset_is_named_where_the_worker_computed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processor time shows that it did not wait; that it was in that loop is only likely."""
    report = report_of(run, monkeypatch, cpu=40.0)
    assert verdict(report) == ("hang", "possible")
    assert "DataLoader worker 0 (pid 102) had been loading samples 0,1,2,3 for 59.000 s" in summary(report)
    assert "and computed meanwhile (40.000 s of processor time), perhaps in the loop of line 3" in summary(report)
    assert "in Crops.__getitem__: the next `i` (line 7: `i = (i + 2) % len(self.crops)`)" in summary(report)
    assert "Bound the tries of the loop of line 3" in advice(report)
    assert "If it is not that, time the batch in one process" in advice(report)


def test_worker_that_hardly_used_the_processor_waited(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-alike: a loop that computes cannot be why."""
    report = report_of(run, monkeypatch, cpu=0.1)
    assert "and waited, or slept, meanwhile (0.100 s of processor time)" in summary(report)
    assert "line 3" not in summary(report) + advice(report)


def test_bounded_tries_are_not_blamed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops of the method that makes a sample are only to be looked at."""
    report = report_of(run, monkeypatch, cpu=40.0, tries="for _ in range(9)")
    assert "perhaps in the loop" not in summary(report)
    assert "look at the loops of Crops.__getitem__() (line 2), which have to end for each sample" in advice(report)


def test_processor_time_between_shows_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine, or a worker that waits at times; without any number the loop stays possible."""
    assert "meanwhile" not in summary(report_of(run, monkeypatch, cpu=5.0))


def test_number_that_nobody_saw_leaves_the_loop_possible(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without a launcher."""
    report = report_of(run, monkeypatch, cpu=None)
    assert "meanwhile" not in summary(report)
    assert ", perhaps in the loop of line 3" in summary(report)


def test_dataset_of_a_library_has_no_loop_to_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subset, ConcatDataset: its own file is not the program's."""
    report = report_of(run, monkeypatch, cpu=40.0, dataset="torch.utils.data.dataset.Subset")
    assert "perhaps" not in summary(report)
    assert "look at the loops of the dataset" in advice(report)


STREAM = """\
class Crops(IterableDataset):
    def __iter__(self):
        {way}
        while True:
            {body}

def train(loader):
    for batch in loader:
        step(batch)
"""
EACH = "for row in stream.rows():\n                yield row"


def report_of_stream(
    run: Path, monkeypatch: pytest.MonkeyPatch, body: str, way: str = "stream = self.part()"
) -> Report:
    """As report_of(), of a dataset that is iterated over."""
    monkeypatch.setattr("tests.unit.analyze.evidence.waits.test_unseen_loading.SOURCE", "{tries}")
    return report_of(run, monkeypatch, cpu=40.0, tries=STREAM.format(body=body, way=way))


@pytest.mark.parametrize(
    "body",
    [
        EACH,
        "for n, row in enumerate(stream.rows()):\n                if n:\n                    yield row",
        "rng.shuffle(order)\n            for row in stream.rows():\n                yield from row",
    ],
)
def test_endless_stream_that_yields_nothing_over_an_empty_part(
    body: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no round ends it."""
    report = report_of_stream(run, monkeypatch, body)
    assert "perhaps in the loop of line 4 (`while True`) in Crops.__iter__: a round in which `" in summary(report)
    assert "(`stream`: line 3): if it is empty there" in advice(report)
    assert "dataset[i]" not in advice(report)


@pytest.mark.parametrize(
    "body",
    [
        f"{EACH}\n            if not self.repeat: return",
        f"{EACH}\n            yield None",
        f"rows = next(parts)\n            {EACH}",
        f"{EACH}\n            else:\n                yield None",
        "yield from stream.rows()",
    ],
)
def test_stream_that_may_end_or_yield_otherwise_is_only_to_be_looked_at(
    body: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iterable dataset has no `dataset[i]`."""
    report = report_of_stream(run, monkeypatch, body)
    assert "perhaps in the loop" not in summary(report)
    assert "Look at the loops of Crops.__iter__() (line 2), which have to yield" in advice(report)
    assert "dataset[i]" not in advice(report)
