"""What a line passes to native code that failed: origins of its variables, and a large number that a register held."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import native_line, pointer_content
from pytracer.decode.types.snapshot import PythonFrame


def view_of(folder: Path, source: str, line: int, *, function: str = "step", **registers: int) -> Any:
    """A process that crashed in what that line of a program called."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    stack = (PythonFrame(function=function, file=str(file), line=line),)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    crash = SimpleNamespace(python_stack=stack, registers=registers)
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), native_stack=None)


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_line, "find_operator", lambda view: None)
    monkeypatch.setattr(native_line, "backward", lambda view: None)


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
    instruction = SimpleNamespace(base_value=value, index_value=None, scale=1)
    view: Any = SimpleNamespace(instruction=instruction, place=None)
    assert pointer_content.numbers_in_pointer(view) == words


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("print(rows, torch.attend(heads).mean())", ["heads"]),
        ("logger.info(torch.attend(heads), rows)", ["heads"]),
        ("print(rows)", ["rows"]),  # it may be print() that runs the operator
        ("lib.use(torch.attend(heads), rows)", ["heads", "rows"]),
        ("x = print(torch.attend(rows), rows)", ["rows"]),
    ],
)
def test_what_is_only_printed_is_not_passed_to_native_code(line: str, named: list[str], tmp_path: Path) -> None:
    """An argument of the print() around the call; the look-alikes are passed to another function, too."""
    view = view_of(tmp_path, f"rows = read()\nheads = width // 64\n{line}\n", 3)
    said = native_line.with_native_line(view, "Check it.")
    assert [name for name in ("heads", "rows") if f"`{name}` (line" in said] == named


@pytest.mark.parametrize(
    ("call", "told"), [("step(**batch)", False), ("step(*batch)", False), ("x.step()", False), ("step(load())", True)]
)
def test_a_call_that_does_not_show_the_argument_is_no_origin(call: str, told: bool, tmp_path: Path) -> None:
    """`step(**batch)` and a call without arguments say nothing of a parameter; a value that is passed does."""
    source = f"def step(rows):\n    torch.attend(rows)\n\n\n{call}\n"
    view = view_of(tmp_path, source, 2, function="step")
    view.crash.python_stack += (PythonFrame(function="<module>", file=str(tmp_path / "train.py"), line=5),)
    said = native_line.with_native_line(view, "Check it.")
    assert said == ("Check it. Line 2 passes `rows` (line 5: `step(load())`)." if told else "Check it.")


def test_the_line_that_made_a_value_without_arguments_is_an_origin(tmp_path: Path) -> None:
    """Also where the caller has another name for it."""
    source = "def step(rows):\n    torch.attend(rows)\n\n\nbatch = load()\nstep(batch)\n"
    view = view_of(tmp_path, source, 2)
    view.crash.python_stack += (PythonFrame(function="<module>", file=str(tmp_path / "train.py"), line=6),)
    assert native_line.with_native_line(view, "Check it.") == (
        "Check it. Line 2 passes `rows` (line 5: `batch = load()`)."
    )


def test_of_a_line_whose_culprit_is_named_the_others_are_not(tmp_path: Path) -> None:
    """Those are in order as far as is known; where no variable of the line is named, all may be wrong."""
    view = view_of(tmp_path, "rows = read()\nheads = width // 64\ntorch.attend(rows, heads)\n", 3)
    named = "Check the size of `rows` before line 3."
    assert native_line.with_native_line(view, named) == named
    assert "Line 3 passes" in native_line.with_native_line(view, "Check the size of `other` before line 3.")


def test_a_line_that_runs_backward_passes_nothing_of_interest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions work on what the forward saved."""
    view = view_of(tmp_path, "loss = step(batch)\nloss.backward()\n", 2)
    assert native_line.with_native_line(view, "Check it.").endswith(
        "Line 2 passes `loss` (line 1: `loss = step(batch)`)."
    )
    monkeypatch.setattr(native_line, "backward", lambda view: object())
    assert native_line.with_native_line(view, "Check it.") == "Check it."


SHARED = """def mix(batch, cut):
    lib.mix(batch, cut)
def step(rows, at):
    mix(rows // 2, at(rows))
"""


def test_arguments_of_one_line_are_said_with_it_once(tmp_path: Path) -> None:
    """And of a division only what a division made: the line of the caller has more than that."""
    view = view_of(tmp_path, SHARED, 2, function="mix")
    outer = PythonFrame(function="step", file=str(tmp_path / "train.py"), line=4)
    view.crash.python_stack = (*view.crash.python_stack, outer)
    told = native_line.with_native_line(view, "Check it.")
    assert told == "Check it. Line 2 passes `batch` and `cut` (line 4: `mix(rows // 2, at(rows))`)."
    told = native_line.with_native_line(view, "Check the counts: one is made so by a division.")
    assert told.endswith("Line 2 passes `batch` (line 4: `mix(rows // 2, at(rows))`).")
