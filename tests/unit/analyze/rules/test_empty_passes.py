"""A loop without end over a DataLoader that has no batch, when a time limit ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.blackbox.numbers import Entry
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box

PROGRAM = """\
def forever(clips, size):
    loader = DataLoader(clips, batch_size={size}, shuffle=True{drop})
    epoch = 0
    while True:
        for video in loader:
            yield epoch, video
        epoch += 1

class Trainer:
    def __init__(self, rows):
        self.loader = DataLoader(rows, batch_size=4)
    def fit(self, steps):
        done = 0
        while done < steps:
            for batch in self.loader:
                done += step(batch)
    def epochs(self, epochs):
        done = 0
        while done < epochs:
            for batch in self.loader:
                step(batch)
            done += 1

def again(rows):
    while True:
        for row in rows:
            yield row

def served(queue):
    while True:
        for item in queue.take():
            work(item)
"""
TORCH = "/venv/lib/python3.11/site-packages/torch/utils/data/"
SAMPLER, NEXT = ("BatchSampler.__iter__", f"{TORCH}sampler.py", 337), ("__next__", f"{TORCH}dataloader.py", 725)
RANGE = ("record_function.__exit__", "/venv/lib/python3.11/site-packages/torch/autograd/profiler.py", 950)
FETCH = ("fetch", f"{TORCH}_utils/fetch.py", 54)
COLLATE = ("default_collate", f"{TORCH}_utils/collate.py", 398)
IMAGE = ("open", "/venv/lib/python3.11/site-packages/PIL/Image.py", 9)
DROP = ", drop_last=True"
LOADER = {"dataset": "Clips", "iterable": False, "sampler": "RandomSampler", "distributed": False, "plain": True}
FULL = {**LOADER, "samples": 72, "batch_size": 28, "drop_last": True, "batches": 2}
EMPTY = {**LOADER, "samples": 14, "batch_size": 28, "drop_last": True, "batches": 0}
OLD = {**LOADER, "samples": 14}


def report(
    run: Path,
    *loaders: dict[str, object],
    at: tuple[str, int] = ("forever", 5),
    above: tuple[tuple[str, str, int], ...] = (SAMPLER, NEXT),
    size: str = "size",
    drop: str = DROP,
    step_ms: float | None = 8_000,
    nbytes: int = 112,
) -> Report:
    """Ended at 60 s; its last step was at `step_ms`, and until the end it made the order of samples."""
    program = str(s.program_in(run, PROGRAM.format(size=size, drop=drop)))
    box: Box = parent()
    if step_ms is not None and step_ms < 9_000:
        box.at(step_ms).step(1)
    box.at(9_000)
    for loader in loaders:
        box._json(Entry.LOADER, loader)
    if step_ms is not None and step_ms > 9_000:
        box.at(step_ms).step(1)
    for number in range(50 if nbytes else 0):
        box.at(59_000 + number).alloc(0x1000 + 0x1000000 * number, nbytes)
    return ended(run, stopped(box, [*above, (at[0], program, at[1]), ("train", "/gone/train.py", 70)]))


@pytest.mark.parametrize("above", [(SAMPLER, NEXT), (RANGE, NEXT), (NEXT,), ()])
def test_a_loader_with_fewer_samples_than_a_batch_is_why_nothing_is_yielded(
    above: tuple[tuple[str, str, int], ...], run: Path
) -> None:
    found = report(run, EMPTY, above=above)
    assert verdict(found) == ("hang", "likely")
    assert (
        "it yields only inside of the loop of line 5, and the DataLoader of line 2 had no batch when it was made: it "
        "had 14 samples of Clips, fewer than its batch_size of 28, and drop_last=True leaves out what is no whole batch"
    ) in summary(found)
    assert advice(found).startswith("Pass drop_last=False or a smaller batch_size (at most 14)")
    assert "time limit" not in advice(found)


@pytest.mark.parametrize("loaders", [(FULL, EMPTY), (EMPTY, EMPTY)])
def test_of_several_loaders_the_last_one_is_possible(loaders: tuple[dict[str, object], ...], run: Path) -> None:
    found = report(run, *loaders)
    assert verdict(found) == ("hang", "possible")
    assert "the last DataLoader of line 2 had no batch when it was made: it had 14 samples of Clips" in summary(found)
    assert "if this loop is over that one: print `len(loader)` before line 4" in advice(found)


@pytest.mark.parametrize(
    ("loaders", "drop"),
    [
        (({**EMPTY, "samples": 0, "drop_last": False, "sampler": "SequentialSampler"},), ""),
        ((FULL, EMPTY), DROP),
        ((EMPTY,), DROP),
    ],
    ids=["a buffer that is filled later", "a loader for validation", "a buffer of few"],
)
def test_a_program_without_steps_that_makes_tensors_is_at_work(
    loaders: tuple[dict[str, object], ...], drop: str, run: Path
) -> None:
    """The look-alike: it only infers, and the numbers are those at construction."""
    found = report(run, *loaders, drop=drop, step_ms=None, nbytes=1 << 20)
    assert verdict(found)[0] == "external-kill" and "no batch" not in summary(found)


def test_a_program_without_steps_that_does_nothing_is_stuck(run: Path) -> None:
    assert verdict(report(run, EMPTY, step_ms=None, nbytes=0)) == ("hang", "likely")


def test_a_sampler_that_draws_few_of_many_is_told_so(run: Path) -> None:
    found = report(run, {**EMPTY, "samples": 1000})
    assert "its sampler drew fewer of its 1000 samples of Clips than its batch_size of 28" in summary(found)
    assert "at most" not in advice(found)


@pytest.mark.parametrize(
    "at",
    [
        ("DataLoader.__init__", "/venv/lib/python3.11/site-packages/torch_geometric/loader/dataloader.py"),
        ("DataLoader.__init__", "/home/me/loaders.py"),
    ],
    ids=["library", "own"],
)
def test_a_loader_of_a_subclass_is_found_whose_constructor_hides_the_line(at: tuple[str, str], run: Path) -> None:
    hidden = {"at": {"function": at[0], "file": at[1], "line": 90}}
    assert verdict(report(run, {**EMPTY, **hidden})) == ("hang", "likely")
    assert verdict(report(run, {**FULL, **hidden}, {**EMPTY, **hidden})) == ("hang", "possible")


def test_a_loader_made_in_a_constructor_is_known_by_its_line(run: Path) -> None:
    """The look-alike: `at` is a constructor, but that of the trainer."""
    file = str(run / "program.py")
    full = {**FULL, "batch_size": 4, "drop_last": False, "at": {"function": "A.__init__", "file": file, "line": 11}}
    empty = {**full, "samples": 0, "batches": 0, "at": {"function": "B.__init__", "file": file, "line": 99}}
    assert "no batch" not in summary(report(run, full, empty, at=("Trainer.fit", 15)))


def test_loaders_of_other_lines_do_not_show_that_this_one_has_batches(run: Path) -> None:
    other = {**FULL, "at": {"function": "main", "file": str(run / "program.py"), "line": 99}}
    found = report(run, other)
    assert verdict(found) == ("hang", "possible")
    assert "has no batch where it has fewer samples than batch_size" in summary(found)


def test_between_two_passes_it_is_the_same(run: Path) -> None:
    assert verdict(report(run, EMPTY, at=("forever", 7), above=())) == ("hang", "likely")


def test_the_source_has_the_batch_size_of_an_older_recording(run: Path) -> None:
    found = report(run, OLD, size="28")
    assert verdict(found) == ("hang", "likely")
    assert "it had 14 samples of Clips, fewer than its batch_size of 28" in summary(found)


def test_without_the_batch_size_it_is_possible(run: Path) -> None:
    found = report(run, OLD)
    assert verdict(found) == ("hang", "possible")
    assert (
        "the DataLoader of line 2 (drop_last=True) has no batch where it has fewer samples than batch_size; the last "
        "one that was made had 14 samples of Clips"
    ) in summary(found)
    assert advice(found).startswith("Print `len(loader)` before line 4. Where it is 0, pass drop_last=False")


@pytest.mark.parametrize("loaders", [(FULL,), (FULL, FULL)])
def test_a_loader_with_batches_is_not_to_blame(loaders: tuple[dict[str, object], ...], run: Path) -> None:
    """The look-alike: by its numbers it has some."""
    found = report(run, *loaders, step_ms=20_000)
    assert verdict(found)[0] == "external-kill"
    assert "has no batch" not in summary(found)


def test_a_loader_that_keeps_its_last_batch_has_one(run: Path) -> None:
    """The look-alike, of an older recording."""
    assert "has no batch" not in summary(report(run, OLD, drop="", step_ms=20_000))


@pytest.mark.parametrize("taker", [(IMAGE, FETCH), (FETCH,), (IMAGE,), (COLLATE, FETCH)])
def test_a_loader_that_takes_samples_has_some(taker: tuple[tuple[str, str, int], ...], run: Path) -> None:
    """The look-alike: a library's data set is slow."""
    found = report(run, EMPTY, above=(*taker, NEXT))
    assert "has no batch" not in summary(found)


def test_an_empty_loader_of_another_line_is_not_this_one(run: Path) -> None:
    """The look-alike: the order of very many samples takes long, and a loader for validation is empty."""
    file = str(run / "program.py")
    large = {**FULL, "samples": 10**9, "batches": 10**8, "at": {"function": "forever", "file": file, "line": 2}}
    other = {**EMPTY, "at": {"function": "main", "file": file, "line": 99}}
    assert "has no batch" not in summary(report(run, large, other, step_ms=20_000))


def test_of_several_loaders_the_last_one_counts_only_if_nothing_was_done_since(run: Path) -> None:
    """The look-alike: it made steps afterwards, so that it had some batches."""
    found = report(run, FULL, EMPTY, step_ms=20_000)
    assert verdict(found) == ("hang", "possible")
    assert "fewer than its batch_size of 28" not in summary(found)


def test_steps_until_the_end_are_of_another_loader(run: Path) -> None:
    """The look-alike: met between two batches."""
    assert verdict(report(run, EMPTY, step_ms=59_900))[0] == "external-kill"


def test_a_generator_that_yields_is_not_stuck(run: Path) -> None:
    """The look-alike: the caller was at work."""
    found = report(run, EMPTY, at=("forever", 6), above=())
    assert "has no batch" not in summary(found)


def test_steps_until_the_end_leave_no_guess(run: Path) -> None:
    """The look-alike: the time limit met it between two batches."""
    found = report(run, OLD, step_ms=59_900)
    assert verdict(found)[0] == "external-kill" and "has no batch" not in summary(found)


@pytest.mark.parametrize(("at", "class_"), [(("Trainer.fit", 15), "hang"), (("Trainer.epochs", 20), "external-kill")])
def test_a_count_of_steps_that_only_batches_move_on_does_not_end_it(
    at: tuple[str, int], class_: str, run: Path
) -> None:
    """The look-alike counts its epochs outside of the loop."""
    empty = {**EMPTY, "samples": 0, "batch_size": 4, "drop_last": False}
    found = report(run, empty, at=at)
    assert verdict(found)[0] == class_
    assert ("it ends only inside of the loop of line 15" in summary(found)) == (class_ == "hang")
    assert ("it had 0 samples of Clips" in summary(found)) == (class_ == "hang")


def test_a_loop_over_anything_is_possible_after_a_pause(run: Path) -> None:
    program = str(s.program_in(run, PROGRAM.format(size=4, drop="")))
    box = parent().at(9_000).alloc(0x1000, 64).step(1)
    found = ended(run, stopped(box, [("again", program, 26), ("train", program, 99)], native=[(s.PYTHON, 0x20)]))
    assert verdict(found) == ("hang", "possible")
    assert "where `rows` has no item, it goes round for ever" in summary(found)


def test_a_loop_that_waits_for_work_is_none(run: Path) -> None:
    """The look-alike: a service, which nothing ends."""
    program = str(s.program_in(run, PROGRAM.format(size=4, drop="")))
    box = parent().at(9_000).alloc(0x1000, 64).step(1)
    found = ended(run, stopped(box, [("served", program, 31)], native=[(s.PYTHON, 0x20)]))
    assert "goes round for ever" not in summary(found)
