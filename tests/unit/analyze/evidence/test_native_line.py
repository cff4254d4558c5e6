"""What a line passes to native code that failed: origins of its variables, and a large number that a register held."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence import native_line, pointer_content
from pytracer.decode.types.snapshot import PythonFrame


def view_of(folder: Path, source: str, line: int, **registers: int) -> Any:
    """A process that crashed in what that line of a program called."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    stack = (PythonFrame(function="step", file=str(file), line=line),)
    snapshot = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9)
    crash = SimpleNamespace(python_stack=stack, registers=registers)
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_line, "find_operator", lambda view: None)


@pytest.mark.parametrize("number", ["500_000_000", "5 * 10**8"])
def test_a_large_number_of_the_program_that_a_register_held_is_the_first_suspect(number: str, tmp_path: Path) -> None:
    """As the program writes it, also as a product or power."""
    view = view_of(tmp_path, f"ahead = {number}\ntorch.forward(ahead)\n", 2, rbp=500_000_000)
    assert native_line.with_native_line(view, "Check it.") == (
        f"500000000, a number of line 1 (`ahead = {number}`), was in a register: check it first. Check it. "
        f"Line 2 passes `ahead` (line 1: `ahead = {number}`)."
    )


@pytest.mark.parametrize(("number", "held"), [("4096", 4096), ("1 << 20", 1 << 20), ("500_000", 600_000)])
def test_small_round_and_other_numbers_are_in_registers_by_chance(number: str, held: int, tmp_path: Path) -> None:
    """The look-alike: a page's size, a power of two, and a number that none held."""
    view = view_of(tmp_path, f"ahead = {number}\ntorch.forward(ahead)\n", 2, rbp=held)
    assert native_line.with_native_line(view, "Check it.").startswith("Check it.")


def test_a_division_by_zero_names_the_argument_that_was_divided(tmp_path: Path) -> None:
    """Not the others of the line; and none of an advice that names it."""
    source = "rows = read()\nheads = width // 64\ntorch.attend(rows, heads)\n"
    view = view_of(tmp_path, source, 3)
    said = native_line.with_native_line(view, "Check the counts: one is made so by a division.")
    assert said.endswith("Line 3 passes `heads` (line 2: `heads = width // 64`).")
    assert native_line.with_native_line(view, "Check `rows` and `heads`.") == "Check `rows` and `heads`."


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0x3F42F519, "what may be the float32 number 0.7616"),
        (0x0000_0005_0000_0003, "what may be two int32 numbers, 3 and 5"),
        (0xBF42F612BF42F612, "two float32 numbers, -0.7616 and -0.7616"),
        (0x3F000000_A1B2_C3D8, "the float32 number 0.5 in its upper half"),  # as float64: 3.052e-05
        (0x3F800000_0000_5581, "the float32 number 1 in its upper half"),
        (0x3FE0_0000_0000_0000, "the float64 number 0.5"),  # its upper half alone: 1.75
        (0x3FB9_9999_9999_999A, "the float64 number 0.1, or the float32 number 1.45 in its upper half"),
        (0x7F50_0000_3010, None),  # of a block
        (0x55CA_0000_0010, None),  # of the heap
        (0x1_0000, None),
        (0x7_FFFF_F000, None),
    ],
)
def test_numbers_in_a_pointer(value: int, words: str | None) -> None:
    """Addresses that are in use look like none."""
    view: Any = SimpleNamespace(instruction=SimpleNamespace(base_value=value), place=None)
    assert pointer_content.numbers_in_pointer(view) == words
