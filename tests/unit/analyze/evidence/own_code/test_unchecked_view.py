"""Views by as_strided() that are larger than what they are made of, and those that are right."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, HeldArray, HeldNumber, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support.deaths import PROGRAM, advice, died, evidence, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

DATA, COUNT = 0x7F00_0000_0000, 960_000
END = DATA + 4 * COUNT
MAPPED = (DATA - 0x1000, END + 0xC00, "rw-p", 0, "")
LOAD = bytes.fromhex("8b02")  # mov eax, dword ptr [rdx]
IMPORT = "from numpy.lib.stride_tricks import as_strided\n"
BOUND = "def mean(wave, n):\n    windows = as_strided(wave, ({}), strides={})\n    return windows.mean()\n"
PASSED = """def frames(wave, size, hop):
    count = 1 + (len(wave) - size) // hop
    step = wave.strides[0]
    return as_strided(wave, (count, size), ({}, step))
def features(wave, size, hop):
    return frames(wave, size, hop) * 2
features(load(), 400, 160)
"""


def crashed(run: Path, source: str, line: int, arrays: dict[str, Any], addr: int, **how: Any) -> Report:
    """`arrays`: shape and strides of variables of the line, all of one type."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    past = time.time() - 10**9  # before the recorded process began
    os.utime(file, (past, past))
    function = "features" if "def features" in source else "mean"
    at = PythonFrame(function, str(file), line)
    dtype = how.pop("dtype", "float32")
    held = [HeldArray(name, DATA, dtype, shape, steps, at, 0) for name, (shape, steps) in arrays.items()]
    numbers = [HeldNumber(name, value, at, 0) for name, value in how.pop("numbers", {}).items()]
    python = [(function, str(file), line), *how.pop("below", [])]
    of_tensors = [Holder("local", name, base, at, True, 1, elements=COUNT) for name, base in how.pop("of", {}).items()]
    return died(
        run, addr=addr, registers={"rdx": addr}, code_bytes=LOAD, python=python, arrays=tuple(held),
        numbers=tuple(numbers), holders=tuple(of_tensors), mappings=[PROGRAM, MAPPED], **how,
    )  # fmt: skip


def test_a_view_that_a_variable_held_is_beyond_its_array_for_certain(run: Path) -> None:
    """Strides as of float64."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((COUNT - 19, 20), (8, 8))}
    report = crashed(run, IMPORT + BOUND.format("n, 20", "(8, 8)"), 4, arrays, END + 0x2000)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert "`windows`, a view of `wave` that as_strided() makes at line 3, reaches 7.3 MiB" in summary(report)
    assert summary(report).endswith("; its strides are of elements of 8 bytes, not 4.")
    assert advice(report).startswith("Use `wave.strides` at line 3, not (8, 8): an element of `wave` has 4 bytes.")
    assert f"{END + 0x2000 - END} bytes behind it" in evidence(report)


def test_a_shape_that_is_too_large_is_told_with_what_fits(run: Path) -> None:
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((6000, 400), (1600, 4))}
    report = crashed(run, IMPORT + BOUND.format("n, 400", "(1600, 4)"), 4, arrays, END + 0x2000)
    assert "for these strides `wave` has 2400 of 6000 in the first dimension" in advice(report)


@pytest.mark.parametrize("stride", ["hop * wave.itemsize * step", "wave.strides[0] * step * hop"])
def test_a_stride_with_the_bytes_of_an_element_twice_is_computed_from_the_source(stride: str, run: Path) -> None:
    """No variable held the view: the function that made it has returned."""
    arrays = {"wave": ((COUNT,), (4,))}
    report = crashed(
        run, IMPORT + PASSED.format(stride), 7, arrays, END + 0x1000, numbers={"size": 400, "hop": 160}
    )  # fmt: skip
    assert verdict(report) == ("out-of-bounds", "likely")
    assert f"the stride `{stride}` has the bytes of an element twice" in summary(report)
    assert "shape [5998, 400] and strides [2560, 4] in bytes" in evidence(report)
    assert advice(report).startswith(f"Take the element size out of the stride `{stride}` at line 5")


def test_elements_of_one_byte_make_no_stride_too_large(run: Path) -> None:
    """Their size changes nothing: the shape is what does not fit."""
    source = IMPORT + BOUND.format("n, 400", "(wave.strides[0] * wave.itemsize, 1)")
    arrays = {"wave": ((4 * COUNT,), (1,)), "windows": ((8 * COUNT, 400), (1, 1))}
    report = crashed(run, source, 4, arrays, END + 0x2000, dtype="uint8")
    assert "`windows`, a view of `wave`" in summary(report) and "twice" not in summary(report)
    assert "has 3839601 of 7680000 in the first dimension" in advice(report)


def test_a_stride_of_a_number_like_the_size_is_no_such_product(run: Path) -> None:
    """Four elements further: right where the count fits."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((COUNT, 400), (16, 4))}
    report = crashed(run, IMPORT + BOUND.format("n, 400", "(wave.strides[0] * 4, 4)"), 4, arrays, END + 0x2000)
    assert "twice" not in summary(report) and advice(report).startswith("Correct the shape (960000, 400)")


def test_the_memory_of_a_tensor_is_told_by_its_name(run: Path) -> None:
    """Where no other array has its first byte, the tensor's storage is what counts; here none is known."""
    source = IMPORT + BOUND.format("n, 20", "(8, 8)").replace("wave, (", "wave.numpy(), (")
    arrays = {"windows": ((COUNT - 19, 20), (8, 8))}
    assert "as_strided() makes" not in summary(crashed(run, source, 4, arrays, END + 0x2000, of={"wave": DATA}))


@pytest.mark.parametrize(("rows", "told"), [(400, True), (40, False)], ids=["to its end", "but a part"])
def test_strides_in_another_order_are_told_where_they_would_fit(rows: int, told: bool, run: Path) -> None:
    """Windows of 2400 samples, one behind the other; of a tenth of them, the other order is but one that fits."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((rows, 2400), (4, 9600))}
    report = crashed(run, IMPORT + BOUND.format("n, 2400", "wave.strides + wave[::n].strides"), 4, arrays, END + 0x2000)
    order = "in the order (9600, 4), as with `wave[::n].strides` before `wave.strides`, it would reach 3.7 MiB"
    assert (order in advice(report)) == ("in another order its strides would fit" in summary(report)) == told


@pytest.mark.parametrize(
    ("source", "arrays", "addr"),
    [
        (BOUND.format("n, 400", "(4, 4)"), {"windows": ((COUNT - 399, 400), (4, 4))}, END + 0x2000),
        (BOUND.format("n, 20", "(8, 8)"), {"windows": ((COUNT - 19, 20), (8, 8))}, END + (64 << 20)),
        (BOUND.replace("as_strided", "torch.as_strided").format("n, 20", "(8, 8)"), {"windows": ((9, 9), (8, 8))}, END),
        (BOUND.replace("windows.mean", "windows.copy").format("n, 20", "(8, 8)"), {}, END + 0x2000),
        (BOUND.replace("return windows", "return wave").format("n, 20", "(8, 8)"), {}, END + 0x2000),
    ],
    ids=["a view that fits", "an address elsewhere", "torch's, which checks", "size not known", "not of the line"],
)
def test_other_faults_are_not_the_view_s(source: str, arrays: dict[str, Any], addr: int, run: Path) -> None:
    report = crashed(run, IMPORT + source, 4, {"wave": ((COUNT,), (4,)), **arrays}, addr)
    assert "as_strided() makes" not in summary(report)


def test_a_fault_is_told_once(run: Path) -> None:
    """Another explanation of it is a finding, marked as such."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((COUNT - 19, 20), (8, 8))}
    report = crashed(run, IMPORT + BOUND.format("n, 20", "(8, 8)"), 4, arrays, END + 0x2000)
    causes = [
        (item.id, item.same_fault) for item in report.findings or () if item.id in ("unchecked-view", "wild-pointer")
    ]
    assert causes == [("unchecked-view", None), ("wild-pointer", True)]


STEREO = (COUNT // 2, 2)
ROWS = """def frames(a, size, hop):
    count = ({} - size) // hop + 1
    n = a.strides[0]
    return as_strided(a, shape=(count, size), strides=(n * hop, n))
def features(wave, size, hop):
    return frames(wave, size, hop) * 2
features(load(), 400, 160)
"""


@pytest.mark.parametrize("counted", ["a.size", "np.prod(a.shape)", "np.size(a)"])
def test_rows_that_are_counted_as_elements_are_told(counted: str, run: Path) -> None:
    """Of two channels: a stride of 8 bytes is a row of two elements of 4."""
    arrays = {"wave": (STEREO, (8, 4)), "a": (STEREO, (8, 4))}
    source = IMPORT + ROWS.format(counted)
    how = {"numbers": {"size": 400, "hop": 160, "count": (COUNT - 400) // 160 + 1}}
    report = crashed(run, source, 7, arrays, END + 0x1000, **how)
    if counted == "a.size":  # the others are no numbers that are computed, without a recorded view
        assert f"it steps by the rows of `wave` {[*STEREO]}, 8 bytes each, and `a.size` (line 3) counts its 960000" in (
            summary(report)
        )
        assert advice(report).startswith("Count rows, by `len(a)` or `a.shape[0]`: `a.size` (line 3) counts all")
    assert "elements of 8 bytes" not in summary(report) and "an element of" not in advice(report)


@pytest.mark.parametrize("counted", ["wave.size", "np.prod(wave.shape)", "np.size(wave)"])
def test_rows_of_a_view_that_a_variable_held_are_told(counted: str, run: Path) -> None:
    arrays = {"wave": (STEREO, (8, 4)), "windows": (((COUNT - 400) // 160 + 1, 400), (1280, 8))}
    source = IMPORT + BOUND.format(f"({counted} - 400) // 160 + 1, 400", "(1280, 8)")
    report = crashed(run, source, 4, arrays, END + 0x1000)
    assert f"and `{counted}` (line 3) counts its 960000 elements." in summary(report)
    assert "make `wave` one-dimensional before line 3" in advice(report)
    assert "sliding_window_view(wave, size, axis=0)" in advice(report)


def test_rows_are_told_by_the_numbers_where_the_source_does_not_show_what_was_counted(run: Path) -> None:
    arrays = {"wave": (STEREO, (8, 4)), "windows": (((COUNT - 400) // 160 + 1, 400), (1280, 8))}
    report = crashed(run, IMPORT + BOUND.format("n, 400", "(1280, 8)"), 4, arrays, END + 0x1000)
    assert "8 bytes each, and counts its 960000 elements." in summary(report)


def test_channels_one_behind_the_other_have_no_rows_to_count(run: Path) -> None:
    """Two rows of half the memory each: no window of 400 rows fits."""
    row = COUNT * 2
    arrays = {"wave": ((8, COUNT // 8), (row // 4, 4)), "windows": ((2, 5), (row // 4, row // 4))}
    source = IMPORT + BOUND.format("(wave.size - 959995) // 1 + 1, 5", "(wave.strides[0], wave.strides[0])")
    assert "it steps by the rows" not in summary(crashed(run, source, 4, arrays, END + 0x1000))
    arrays["windows"] = ((COUNT - 9, 10), (row // 4, row // 4))
    report = crashed(run, source, 4, arrays, END + 0x1000)
    assert advice(report).startswith("Make `wave` one-dimensional before line 3 (one of its rows, or their mean): ")
    assert "(wave, size, axis=...)" in advice(report)


@pytest.mark.parametrize(
    ("shape", "strides", "asked"),
    [
        ((100_000 + COUNT // 2, 400), (8, 8), "n, 400"),  # more rows than there are, and fewer than elements
        ((COUNT, 2), (4 * 160, 4), "n, 2"),  # by its elements
    ],
    ids=["another count", "elements"],
)
def test_other_views_of_several_dimensions_count_no_rows(shape: Any, strides: Any, asked: str, run: Path) -> None:
    arrays = {"wave": (STEREO, (8, 4)), "windows": (shape, strides)}
    report = crashed(run, IMPORT + BOUND.format(asked, f"{strides}"), 4, arrays, END + 0x1000)
    assert "as_strided() makes" in summary(report) and "steps by the rows" not in summary(report)
    assert "elements of 8 bytes" not in summary(report) and advice(report).startswith("Correct the shape")


def test_strides_of_two_elements_of_the_array_are_of_no_other_type(run: Path) -> None:
    """A dilation of two, counted as if there were none."""
    arrays = {"wave": ((COUNT,), (4,)), "windows": ((COUNT - 19, 20), (8, 8))}
    source = IMPORT + BOUND.format("n, 20", "(2 * wave.strides[0], 2 * wave.strides[0])")
    report = crashed(run, source, 4, arrays, END + 0x2000)
    assert "as_strided() makes" in summary(report) and "elements of 8 bytes" not in summary(report)


@pytest.mark.parametrize(("counted", "told"), [("wave.size // 4", True), ("n", False), ("2 * len(wave)", False)])
def test_rows_of_which_each_window_has_all_elements(counted: str, told: bool, run: Path) -> None:
    """Windows of four rows, with the columns as a dimension of their own."""
    arrays = {"wave": (STEREO, (8, 4)), "windows": ((COUNT // 4, 4, 2), (32, 8, 4))}
    report = crashed(run, IMPORT + BOUND.format(f"{counted}, 4, 2", "(32, 8, 4)"), 4, arrays, END + 0x1000)
    assert ("`wave.size` (line 3) counts its 960000 elements." in summary(report)) == told
    assert advice(report).startswith("Count rows, by `len(wave)`" if told else "Correct the shape (240000, 4, 2)")


OF_TENSOR = """def frames(sound, size, hop):
    n = (sound.numel() - size) // hop + 1
    return as_strided(sound.numpy(), (n, size), (hop * 8, 8))
def features(wave, size, hop):
    windows = frames(wave, size, hop)
    return windows * 2
features(load(), 400, 160)
"""


@pytest.mark.parametrize("sizes", [STEREO, (COUNT,), None])
def test_a_tensor_is_known_by_the_variable_of_the_caller(sizes: tuple[int, ...] | None, run: Path) -> None:
    """The function that had it has returned. Of an unknown shape it is not said what 8 bytes are."""
    held = Argument(
        0x5581, DATA, COUNT, 0, sizes or (), len(sizes or ()), "float32", "cpu", minimum=None, maximum=None, frame=None,
        outer_frame=None, register=None, how="held",
    )  # fmt: skip
    arrays = {"windows": (((COUNT - 400) // 160 + 1, 400), (1280, 8))}
    how: dict[str, Any] = {"arguments": (held,)} if sizes is not None else {}
    box = Box(pid=101, ppid=99).alloc(DATA, 4 * COUNT)
    report = crashed(run, IMPORT + OF_TENSOR, 7, arrays, END + 0x1000, of={"wave": DATA}, box=box, **how)
    assert "`windows`, a view of `wave` that as_strided() makes at line 4, reaches 7.3 MiB" in summary(report)
    assert ("and `sound.numel()` (line 3) counts its 960000 elements." in summary(report)) == (sizes == STEREO)
    assert advice(report).startswith("Count rows, by `len(sound)`") == (sizes == STEREO)
    assert ("elements of 8 bytes" in summary(report)) == (sizes == (COUNT,))
