"""What a DataLoader is asked for when it is noted."""

from __future__ import annotations

import sys
from pathlib import Path

from pytracer.decode.types.journal import Loader
from tests.conditions import needs_core, needs_torch
from tests.support.crash import PROGRAMS, ended, environment

pytestmark = [needs_core, needs_torch]


def test_dataset_without_a_length_is_noted_and_an_iterable_one_is_not_asked(run: Path) -> None:
    """The program prints what it prints untraced; no note says that something failed."""
    program = [sys.executable, str(PROGRAMS / "lengths_of_datasets.py")]
    untraced = ended(program, environment(), run)
    done = ended([sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", *program], environment(), run)
    assert (done.status, done.stdout) == (untraced.status, untraced.stdout) == (0, "".join(f"{n}\n" for n in range(8)))
    (box,) = done.boxes
    assert [note.text for note in box.notes] == []
    loaders = [fact.data for fact in box.facts if isinstance(fact.data, Loader)]
    assert [loader.samples for loader in loaders] == [None, None, 5]
