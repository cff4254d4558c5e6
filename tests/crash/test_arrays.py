"""Arrays of NumPy that locals held at a crash are recorded with their memory, shape and strides."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import victim

needs_numpy = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="numpy is not installed")
pytestmark = [needs_native, needs_numpy]


def test_arrays_of_locals_are_recorded(run: Path) -> None:
    """Also of an attribute, of a subclass, flipped, transposed, without elements; the numbers beside stay numbers."""
    crash = victim("arrays.py", run=run).box.crash
    assert crash is not None
    held = {item.expression: item for item in crash.arrays}
    nothing = held.pop("nothing")  # its strides differ between versions of NumPy
    assert (nothing.dtype, nothing.shape, nothing.extent) == ("float64", (0, 3), None)
    assert {name: (item.dtype, item.shape, item.strides) for name, item in held.items()} == {
        "image": ("float32", (40, 30), (120, 4)),
        "keeper.rows": ("int16", (5, 7), (14, 2)),
        "flipped": ("float32", (40, 30), (-120, 4)),
        "turned": ("float64", (4, 3, 2), (8, 32, 96)),
        "table": ("int32", (6,), (4,)),
        "swapped": (None, (4,), (4,)),
    }
    assert held["flipped"].data == held["image"].data + 39 * 120
    assert held["flipped"].extent == held["image"].extent
    elements = {name: (item.minimum, item.maximum, item.nan_count, item.has_infinity) for name, item in held.items()}
    assert elements == {
        "image": (None, None, 2, 1), "keeper.rows": (-3, 0, None, None), "table": (0, 5, None, None),
        "flipped": (None,) * 4, "turned": (None,) * 4, "swapped": (None,) * 4,
    }  # fmt: skip
    assert ("address", 8) in [(item.expression, item.value) for item in crash.numbers]
    assert not any("shape" in item.expression or "ctypes" in item.expression for item in crash.numbers)


def test_no_values_keeps_no_arrays(run: Path) -> None:
    """As with the numbers of variables."""
    crash = victim("arrays.py", run=run, PYTRACER_NO_VALUES="1").box.crash
    assert crash is not None and crash.arrays == () and crash.numbers == ()
