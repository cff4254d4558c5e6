"""The variable of a line that is 0 where an integer was divided by zero."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import passed, zero_divisor
from pytracer.decode.types.snapshot import HeldNumber, PythonFrame

SOURCE = "def step(rate, words):\n    hop = rate // 1000\n    size = 7\n    frame(words, hop, size)\n"


def view_of(folder: Path, **numbers: int) -> Any:
    """A process that crashed in what the last line calls, with these variables."""
    file = folder / "train.py"
    file.write_text(SOURCE, encoding="utf-8")
    frame = PythonFrame("step", str(file), 4)
    held = tuple(HeldNumber(name, value, frame, 0) for name, value in numbers.items())
    crash = SimpleNamespace(python_stack=(frame,), registers={}, numbers=held, holders=(), arrays=())
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 7), environment={})
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), native_stack=())


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


@pytest.mark.parametrize(("rate", "words"), [(500, "here 500 // 1000, which rounds down"), (2000, "which rounds down")])
def test_numbers_of_the_division_are_said(rate: int, words: str, tmp_path: Path) -> None:
    """The look-alike: a variable that has been set to another number since."""
    found = zero_divisor.zero_divisor(view_of(tmp_path, hop=0, size=7, rate=rate))
    assert found is not None and words in found.advice
    assert ("here" in found.advice) == (rate == 500)


def test_a_line_without_a_division_is_not_said_to_round(tmp_path: Path) -> None:
    """Its number is what it is."""
    found = zero_divisor.zero_divisor(view_of(tmp_path, hop=16, size=0))
    assert found is not None
    assert found.advice.endswith("it comes from line 3 (`size = 7`).")


@pytest.mark.parametrize("numbers", [{"hop": 0, "size": 0}, {"hop": 1, "size": 7}, {"rate": 0}])
def test_none_is_named(numbers: dict[str, int], tmp_path: Path) -> None:
    """Two may be it; one that the line does not pass is not."""
    assert zero_divisor.zero_divisor(view_of(tmp_path, **numbers)) is None


MODULE = """def merge(layer):
    layer.num_heads = count(layer)
def forward(self, h, layer):
    return layer(h)
"""
LIBRARY = "/usr/lib/python3/site-packages/torch/nn/modules/activation.py"


def in_module(folder: Path, source: str = MODULE, **numbers: int) -> Any:
    """A process that crashed in a module of torch, which line 4 of the program runs."""
    view = view_of(folder)
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    inner, outer = PythonFrame("forward", LIBRARY, 1433), PythonFrame("forward", str(file), 4)
    view.crash.python_stack = (inner, outer)
    inside = [HeldNumber(f"self.{name}", value, inner, 0) for name, value in numbers.items()]
    outside = [HeldNumber(f"layer.{name}", value, outer, 3) for name, value in numbers.items()]
    view.crash.numbers = (*inside, *outside)
    return view


def test_attribute_of_the_module_that_runs(tmp_path: Path) -> None:
    found = zero_divisor.zero_divisor(in_module(tmp_path, num_heads=0, padding=0, dim=64))
    assert found is not None
    assert found.words == "`layer.num_heads` is 0"
    assert found.advice == (
        "Keep `layer.num_heads` from being 0 when line 4 runs the module: it is set by line 2 (`layer.num_heads = "
        "count(layer)`)."
    )


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        (MODULE, {"num_heads": 4, "padding": 0}),
        (MODULE.replace("layer.num_heads =", "heads ="), {"num_heads": 0}),
        (MODULE.replace("return layer(h)", "return other(h)"), {"num_heads": 0}),
        (f"{MODULE}layer.padding = 0\n", {"num_heads": 0, "padding": 0}),
    ],
    ids=["not 0", "not set by the program", "another module", "two"],
)
def test_other_attributes_are_not_named(source: str, numbers: dict[str, int], tmp_path: Path) -> None:
    assert zero_divisor.zero_divisor(in_module(tmp_path, source, **numbers)) is None
