"""The address that a function returned of memory of its own, and what a line passes so; and what only looks so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.returned_address import (
    PassedTemporary,
    ReturnedAddress,
    dangling_argument,
    returned_address,
)
from pytracer.decode.types.storages import CallSite, PythonFrame
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of

POINTER = """def address(x):
    x = x.t().contiguous()
    return ctypes.c_void_p(x.data_ptr())
def score(lib, x):
    return lib.total(address(x), x.numel())
"""
TEMPORARY = "def address(x):\n    return x.double().data_ptr()\ndef score(lib, x):\n    return lib.total(address(x))\n"
ARRAY = "def address(x):\n    y = x.copy()\n    return y.ctypes.data\ndef score(lib, x):\n    lib.total(address(x))\n"


def found(folder: Path, source: str, made: int, freed: int, line: int = 5) -> ReturnedAddress | None:
    """Of memory that these lines made and freed."""
    view: Any = view_of(folder, source, line)
    file = str(folder / "train.py")
    sites = [CallSite(PythonFrame("f", file, number)) for number in (made, freed)]
    view.place = SimpleNamespace(storage=SimpleNamespace(allocated_by=sites[0], freed_by=sites[1]))
    return returned_address(view)


def test_function_that_returns_only_the_address_of_its_own_tensor_is_named(tmp_path: Path) -> None:
    item = found(tmp_path, POINTER, 2, 5)
    assert item is not None
    assert item.summary == (
        "address() (called at line 5) returned only the address of its own `x` (line 2: `x = x.t().contiguous()`), "
        "which was freed when it returned"
    )
    assert item.advice.startswith(
        "Let address() return `x` (line 3: `return ctypes.c_void_p(x.data_ptr())`), keep it in a variable at line 5 "
        "(`held = address(x)`) until native code has returned, and pass `ctypes.c_void_p(held.data_ptr())`:"
    )
    assert item.advice.endswith("so that the same call works.")


def test_address_of_a_temporary_that_is_returned(tmp_path: Path) -> None:
    """Freed inside of the function, whose own line must not be told to hold it."""
    item = found(tmp_path, TEMPORARY, 2, 2, line=4)
    assert item is not None
    assert "(called at line 4) returned only the address of `x.double()`, a temporary (line 2)" in item.summary
    assert "Let address() return `x.double()`" in item.advice


def test_number_of_elements_beside_the_address_holds_nothing(tmp_path: Path) -> None:
    source = POINTER.replace("ctypes.c_void_p(x.data_ptr())", "x.data_ptr(), x.numel()")
    item = found(tmp_path, source, 2, 5)
    assert item is not None
    assert "Let address() return `x`, too (line 3" in item.advice and "held =" not in item.advice


@pytest.mark.parametrize("value", ["Volume(x.data_ptr(), low)", "Volume(x.data_ptr(), x.numel())"])
def test_call_with_names_of_the_function_is_not_shown_to_its_caller(value: str, tmp_path: Path) -> None:
    """`Volume(held.data_ptr(), low)` would be a NameError there."""
    source = POINTER.replace("ctypes.c_void_p(x.data_ptr())", value).replace("(x):", "(x, low=0.0):")
    item = found(tmp_path, source, 2, 5)
    assert item is not None
    assert "Let address() return `x`, too (line 3" in item.advice and "pass" not in item.advice


WORDS = """def words(tensor):
    flat = tensor.detach().contiguous()
    held = (ctypes.c_uint16 * flat.numel()).from_address(flat.data_ptr())
    return np.ctypeslib.as_array(held).reshape(tuple(flat.shape))
def add(writer, tensor):
    writer.put(words(tensor))
"""


def test_array_at_the_address_of_its_own_tensor_that_is_returned(tmp_path: Path) -> None:
    """from_address() holds nothing, nor does what NumPy makes of that array."""
    item = found(tmp_path, WORDS, 2, 6, line=6)
    assert item is not None
    assert item.summary.startswith("words() (called at line 6) returned only the address of its own `flat` (line 2:")
    assert item.advice.startswith("Let words() return `flat`, too (line 4")


@pytest.mark.parametrize(
    ("source", "made", "freed"),
    [
        (WORDS.replace("return np", "return flat, np"), 2, 6),
        (WORDS.replace("from_address(flat.data_ptr())", "from_buffer(flat.numpy())"), 2, 6),  # which holds it
        (WORDS.replace("    return", "    held.owner = flat\n    return"), 2, 7),
        (POINTER, 2, 4),  # freed by another line: somebody held it until then
        (POINTER, 4, 5),  # made elsewhere
        (POINTER.replace("return ctypes.c_void_p(x.data_ptr())", "return x, x.data_ptr()"), 2, 5),
        (POINTER.replace("x.data_ptr()", "x.numel()"), 2, 5),
        (POINTER.replace("    x = x.t().contiguous()\n", "    pass\n"), 2, 5),  # the caller's own tensor
        (POINTER.replace("return ctypes.c_void_p(x.data_ptr())", "p = c(x.data_ptr()); p.x = x; return p"), 2, 5),
    ],
)
def test_nothing_is_said_where_the_address_is_not_all_that_was_left(
    source: str, made: int, freed: int, tmp_path: Path
) -> None:
    assert found(tmp_path, source, made, freed) is None


def passed(folder: Path, source: str, line: int = 5) -> ReturnedAddress | PassedTemporary | None:
    return dangling_argument(view_of(folder, source, line))


def test_array_whose_address_is_passed_is_known_by_the_source(tmp_path: Path) -> None:
    """The memory of NumPy is not recorded."""
    item = passed(tmp_path, ARRAY)
    assert item is not None
    assert (
        "address() (called at line 5) returned only the address of its own `y` (line 2: `y = x.copy()`)" in item.summary
    )
    item = passed(tmp_path, "lib.total(x.T.copy().ctypes.data)\n", 1)
    assert item is not None
    assert item.summary == "the address that line 1 passes is of `x.T.copy()`, a temporary that ends before the call"
    assert item.advice.startswith(
        "Hold it in a variable before line 1 (`held = x.T.copy()`), and pass held.ctypes.data"
    )


@pytest.mark.parametrize(
    "source",
    [
        ARRAY.replace("y.ctypes.data", "y.ctypes.data_as(p)"),  # such a pointer holds its array
        ARRAY.replace("    return y", "    kept.append(y); return y"),
        ARRAY.replace("    return y", "    self.y = y; return y"),
        ARRAY.replace("y = x.copy()", "y = x"),
        ARRAY.replace("address(x))", "address(x), x.double().data_ptr())"),  # which of them?
        ARRAY.replace("lib.total(address(x))", "lib.total(x.T.ctypes.data)"),  # a view
    ],
)
def test_array_that_something_holds_is_no_suspect(source: str, tmp_path: Path) -> None:
    """The look-alikes."""
    assert passed(tmp_path, source) is None
