"""An expanded tensor counted as a row of numbers, whose row ended in memory that had been freed; and look-alikes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import expanded
from pytracer.analyze.evidence.own_code import ran_into_freed as module
from pytracer.analyze.evidence.own_code.ran_into_freed import ran_into_freed
from pytracer.decode.types.snapshot import Holder
from tests.unit.analyze.evidence.own_code.test_expanded import STORAGE, crashed_in

FREED: Any = SimpleNamespace(base=0x2000, nbytes=8192, freed_thread=None)
PASSED = "    library.add(grad.data_ptr())\n"


@pytest.fixture(autouse=True)
def _of_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expanded, "own_function", lambda view: SimpleNamespace(name="add"))
    monkeypatch.setattr(module, "kept_address", lambda view: None)


def crashed(folder: Path, strides: tuple[int, int] = (0, 0), kind: str = "freed-storage") -> Any:
    """The line passes 4,000 elements of 16 bytes; the address is where another storage was freed."""
    view = crashed_in(folder, PASSED, {"grad": ((1000, 4), strides)}, "Scale.backward")
    view.place = SimpleNamespace(addr=0x1000 + 12000, kind=kind, storage=FREED)
    view.space = SimpleNamespace(live_around=lambda base: STORAGE if base == 0x1000 else None)
    return view


def test_freed_memory_was_only_reached(tmp_path: Path) -> None:
    """Nothing had its address."""
    found = ran_into_freed(crashed(tmp_path))
    assert found is not None and found.name == "grad"


@pytest.mark.parametrize(("strides", "kind"), [((4, 1), "freed-storage"), ((0, 0), "past-storage")])
def test_dense_tensor_and_other_memory_are_not_told_so(strides: tuple[int, int], kind: str, tmp_path: Path) -> None:
    """A tensor that has its elements in a row ends before the address."""
    view = crashed(tmp_path, strides, kind)
    if strides == (4, 1):
        view.space = SimpleNamespace(live_around=lambda base: SimpleNamespace(base=0x1000, nbytes=16000))
    assert ran_into_freed(view) is None


def test_variable_of_the_freed_memory_is_what_was_used(tmp_path: Path) -> None:
    """A tensor whose storage was resized, or taken away, while the program holds it."""
    view = crashed(tmp_path)
    frame = view.crash.python_stack[0]
    view.crash.holders = (*view.crash.holders, Holder("local", "old", 0x2000, frame, True, 1, elements=2048))
    assert ran_into_freed(view) is None


def test_kept_address_of_the_freed_memory_is_what_was_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the program's source."""
    monkeypatch.setattr(module, "kept_address", lambda view: "a pointer")
    assert ran_into_freed(crashed(tmp_path)) is None


def test_memory_that_another_thread_freed_may_have_been_meant(tmp_path: Path) -> None:
    """A race."""
    view = crashed(tmp_path)
    view.place.storage = SimpleNamespace(base=0x2000, nbytes=8192, freed_thread=77)
    view.crash.tid, view.region_opener = 5, None
    assert ran_into_freed(view) is None
