"""Numbers of small tensors: read by the kernel, whatever the tensor's memory and the program's modes are."""

from __future__ import annotations

import ctypes
import math

import pytest

from pytracer.record.torch.tensor_numbers import MOST_ELEMENTS, numbers_of
from tests.conditions import needs_torch

pytestmark = needs_torch


def test_numbers_are_those_of_the_tensor() -> None:
    """Contiguous, strided, broadcast, without dimensions, and of every width."""
    import torch

    grid = torch.arange(6).view(2, 3)
    assert numbers_of(grid) == (0, 1, 2, 3, 4, 5)
    assert numbers_of(grid[:, 1]) == (1, 4)
    assert sorted(numbers_of(grid.T) or ()) == [0, 1, 2, 3, 4, 5]
    assert numbers_of(torch.tensor(7).expand(2, 2)) == (7, 7, 7, 7)
    assert numbers_of(torch.tensor(2.5)) == (2.5,)
    assert numbers_of(torch.tensor([True, False])) == (True, False)
    for kind in (torch.float64, torch.float16, torch.bfloat16, torch.int16, torch.uint8):
        assert numbers_of(torch.tensor([1, 3], dtype=kind)) == (1, 3)
    values = numbers_of(torch.tensor([float("nan"), float("-inf")], dtype=torch.bfloat16)) or ()
    assert math.isnan(values[0]) and values[1] == -math.inf


def test_what_is_large_or_elsewhere_is_not_read() -> None:
    """The limits, and tensors without memory of their own on the CPU."""
    import torch

    assert numbers_of(torch.zeros(MOST_ELEMENTS + 1)) is None
    assert numbers_of(torch.zeros(1 << 20)[:: 1 << 10]) is None
    assert numbers_of(torch.empty(0)) is None
    assert numbers_of(torch.zeros(2, device="meta")) is None
    assert numbers_of(torch.zeros(2, dtype=torch.complex64)) is None
    assert numbers_of(torch.zeros(2, 2).to_sparse()) is None


def test_memory_that_is_gone_is_no_fault() -> None:
    """A tensor may outlive the file that it was made of."""
    import torch

    tensor = torch.frombuffer((ctypes.c_char * 64).from_address(4096), dtype=torch.int64)
    assert numbers_of(tensor) is None


def test_programs_modes_are_not_called() -> None:
    """An operator would go through them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refuses(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise AssertionError(func)

    tensor = torch.arange(3)
    with Refuses():
        assert numbers_of(tensor) == (0, 1, 2)
        with pytest.raises(AssertionError):
            tensor.sum()
