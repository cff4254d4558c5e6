"""The variable of a line that is 0 where an integer was divided by zero."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence import passed, zero_divisor
from pytracer.decode.types.snapshot import HeldNumber, PythonFrame

SOURCE = "def step(rate, words):\n    hop = rate // 1000\n    size = 7\n    frame(words, hop, size)\n"


def view_of(folder: Path, **numbers: int) -> Any:
    """A process that crashed in what the last line calls, with these variables."""
    file = folder / "train.py"
    file.write_text(SOURCE, encoding="utf-8")
    frame = PythonFrame("step", str(file), 4)
    held = tuple(HeldNumber(name, value, frame, 0) for name, value in numbers.items())
    crash = SimpleNamespace(python_stack=(frame,), registers={}, numbers=held, holders=(), arrays=())
    snapshot = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, version=(1, 7), environment={})
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed, "find_operator", lambda view: None)
    monkeypatch.setattr(passed, "own_function", lambda view: None)


def test_the_only_zero_is_named_with_its_line(tmp_path: Path) -> None:
    """A division rounds down."""
    found = zero_divisor.zero_divisor(view_of(tmp_path, hop=0, size=7))
    assert found is not None
    assert found.advice == (
        "Keep `hop` from being 0, which line 4 passes: it comes from line 2 (`hop = rate // 1000`), which rounds down: "
        "max(1, ...) keeps it positive."
    )


def test_a_line_without_a_division_is_not_said_to_round(tmp_path: Path) -> None:
    """Its number is what it is."""
    found = zero_divisor.zero_divisor(view_of(tmp_path, hop=16, size=0))
    assert found is not None
    assert found.advice.endswith("it comes from line 3 (`size = 7`).")


@pytest.mark.parametrize("numbers", [{"hop": 0, "size": 0}, {"hop": 1, "size": 7}, {"rate": 0}])
def test_none_is_named(numbers: dict[str, int], tmp_path: Path) -> None:
    """Two may be it; one that the line does not pass is not."""
    assert zero_divisor.zero_divisor(view_of(tmp_path, **numbers)) is None
