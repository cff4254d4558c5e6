"""Indices that lead out of an array which the running line passes: by the failing instruction, or by a register."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.freed_neighbor import may_be_counted_from_array
from pytracer.analyze.evidence.wild import array_index as module
from pytracer.analyze.evidence.wild.array_index import array_index
from pytracer.decode.types.snapshot import HeldArray, PythonFrame, Storage

DATA = 0x7F00_0010_0010
BELOW_0 = 450 * 2**32 - 195


def view_of(
    folder: Path,
    *,
    moved: int,
    index: int | None = None,
    base: int = DATA,
    scale: int = 4,
    second: int | None = None,
    line: str = "kernel.align(value.ctypes.data, other.ctypes.data)",
) -> Any:
    """A process that died `moved` bytes from `base`; `second`: where `other` begins."""
    program = folder / "train.py"
    program.write_text(f"def forward(kernel, value, other):\n    {line}\n", encoding="utf-8")
    frame = PythonFrame("forward", str(program), 2)
    shape, strides = (16, 100, 50), (20000, 200, 4)
    arrays = [HeldArray("value", DATA, "float32", shape, strides, frame, 0)]
    if second is not None:
        arrays.append(HeldArray("other", second, "float32", shape, strides, frame, 0))
    crash = SimpleNamespace(
        arrays=tuple(arrays), numbers=(), holders=(), arguments=(), python_stack=(frame,), python_threads=(),
        native_stack=(), registers={"rdi": base, "rcx": index or 0}, images=(), mappings=(), stack=(1, 2), memory=(),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    addr = base + moved
    indexed = index is not None
    instruction = SimpleNamespace(
        base="rdi" if indexed else "rax", base_value=base if indexed else addr, index="rcx" if indexed else None,
        index_value=index % (1 << 64) if index is not None else None, scale=scale, addr=addr, is_lane=False,
    )  # fmt: skip
    return SimpleNamespace(
        native_stack=[], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=(),
        place=SimpleNamespace(addr=addr, kind="unmapped"), instruction=instruction,
        space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    monkeypatch.setattr(module, "native_bounds", lambda view: None)
    monkeypatch.setattr(module, "row_below", lambda view, index: None)


def test_index_that_the_instruction_adds_to_the_first_byte_is_certain(tmp_path: Path) -> None:
    view = view_of(tmp_path, moved=-700, index=-175)
    found = array_index(view)
    assert found is not None
    assert (found.verdict_class, found.confidence(view), found.missing) == ("out-of-bounds", "certain", None)
    assert found.clause(view) == ": 700 bytes before `value` [16, 100, 50] float32"
    assert found.advice(view).startswith("The index of `value`, which line 2 passes, goes below 0")


def test_advice_has_the_row_before_the_first_one_where_the_source_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    row = SimpleNamespace(advice=lambda view: "ops.c:9 takes `x[(y - 1) * w]`")

    def known(view: Any, index: int | None) -> Any:
        asked.append(index)
        return row

    monkeypatch.setattr(module, "row_below", known)
    for index, words in ((-175, "goes below 0: ops.c:9 takes"), (10**6, "goes past its end: compare the lengths")):
        view = view_of(tmp_path, moved=4 * index, index=index)
        found = array_index(view)
        assert found is not None and words in found.advice(view)
    assert asked == [-175]


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([("ys", "int32", (16,)), ("xs", "int32", (16,))], "compare `ys` and `xs`, item by item, with its shape"),
        ([("ys", "int32", (16,)), ("xs", "float32", (16,))], "compare the lengths and indices"),
        ([("ys", "int32", (16,)), ("xs", "int32", (12,))], "compare the lengths and indices"),
    ],
)
def test_whole_numbers_of_each_item_are_named(lengths: list[Any], words: str, tmp_path: Path) -> None:
    view = view_of(tmp_path, moved=-700, index=-175, line="kernel.align(value.ctypes.data, ys, xs)")
    frame = view.crash.python_stack[0]
    more = (HeldArray(name, 4096, dtype, shape, (4,), frame, 0) for name, dtype, shape in lengths)
    view.crash.arrays = (*view.crash.arrays, *more)
    found = array_index(view)
    assert found is not None and words in found.advice(view)


def test_pointer_into_the_middle_may_be_of_another_array(tmp_path: Path) -> None:
    view = view_of(tmp_path, base=DATA + 4000, moved=4 * 10**6, index=10**6)
    found = array_index(view)
    assert found is not None and found.confidence(view) == "likely"
    assert " behind `value` [16, 100, 50] float32" in found.clause(view)


def test_number_that_an_unsigned_subtraction_left_is_taken_apart(tmp_path: Path) -> None:
    view = view_of(tmp_path, moved=4 * BELOW_0, index=BELOW_0)
    found = array_index(view)
    assert found is not None
    assert found.clause(view) == (
        ": index 1932735283005 ((2**32 - 1) * 450 + 255: an unsigned -1, times 450) leads out of `value` "
        "[16, 100, 50] float32"
    )
    assert "which line 2 passes, goes below 0: " in found.advice(view)


def test_other_large_number_is_not_taken_apart(tmp_path: Path) -> None:
    found = array_index(view_of(tmp_path, moved=4 * 10**12, index=10**12))
    assert found is not None
    assert found.clause(view_of(tmp_path, moved=4, index=1)).startswith(": index 1000000000000 leads out of `value`")


def test_row_that_the_array_has_not_is_told_where_a_register_has_its_first_byte(tmp_path: Path) -> None:
    view = view_of(tmp_path, moved=-20000)
    found = array_index(view)
    assert found is not None
    assert (found.confidence(view), found.missing is None) == ("likely", False)
    assert found.clause(view) == ": 19.5 KiB before `value` [16, 100, 50] float32, where row -1 would begin"


@pytest.mark.parametrize(
    "how",
    [
        {"moved": 4000, "index": 1000},  # inside of it
        {"moved": -700_000},  # farther than the array is long, and nothing was added
        {"moved": -700, "base": DATA + 4000},  # a register that points into the middle, and nothing was added
        {"moved": -700, "index": -175, "line": "kernel.align(other.ctypes.data)"},  # the line does not pass it
        {"moved": -700, "index": -175, "second": DATA},  # a view of the same memory
    ],
)
def test_what_need_not_be_counted_from_an_array_is_none(how: dict[str, Any], tmp_path: Path) -> None:
    assert array_index(view_of(tmp_path, **how)) is None


def test_torch_operator_has_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: object())
    assert array_index(view_of(tmp_path, moved=-700, index=-175)) is None


@pytest.mark.parametrize(("held", "expected"), [(False, True), (True, False)])
def test_freed_storage_whose_address_was_held_may_have_been_meant(held: bool, expected: bool) -> None:
    """The array lies in the hole that the storage left."""
    storage = Storage.__new__(Storage)
    object.__setattr__(storage, "base", DATA - (1 << 20))
    object.__setattr__(storage, "nbytes", 8 << 20)
    frame = PythonFrame("forward", "train.py", 2)
    registers = {"rdi": DATA, "rax": DATA - 4000} | ({"rsi": storage.base} if held else {})
    crash = SimpleNamespace(
        arrays=(HeldArray("value", DATA, "float32", (16, 100, 50), (20000, 200, 4), frame, 0),), registers=registers,
        also_crashed=(), memory=(), holders=(), mappings=(), sp=0, stack=(1, 2),
    )  # fmt: skip
    space: Any = SimpleNamespace(snapshot=SimpleNamespace(crash=crash))
    place = Place(DATA - 4000, "freed-storage", storage=storage)
    assert may_be_counted_from_array(space, place) is expected
