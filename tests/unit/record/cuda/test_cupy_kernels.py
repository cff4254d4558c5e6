"""Launches of CuPy's kernels, with a stand-in for CuPy."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytracer.record.cuda import cupy_kernels

torch = pytest.importorskip("torch")
CHUNK, OUT = 0x7F49_0000_0000, 0x7F49_0040_0000


class Array:
    def __init__(self, ptr: int) -> None:
        self.data = SimpleNamespace(ptr=ptr)


class Kernel:
    def __init__(self, code: str, name: str) -> None:
        self.code, self.name = code, name

    def __call__(self, grid: object, block: object, args: object, *, shared_mem: int = 0) -> object:
        return grid, block, args, shared_mem


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, list[int]]]]:
    """What is recorded while CuPy is imported."""
    found: list[tuple[str, list[int]]] = []
    cupy: Any = ModuleType("cupy")
    cupy.RawKernel, cupy.ndarray, cupy.made_by_module = Kernel, Array, Kernel("", "of_module")
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    errors = SimpleNamespace(pytracer_count_hook_error=lambda: found.append(("error", [])))
    hooks = SimpleNamespace(record_launch=lambda name, storages: found.append((name, storages)))
    cupy_kernels.install(SimpleNamespace(lib=errors), hooks)  # type: ignore[arg-type]
    yield found
    cupy_kernels.uninstall()
    assert cupy.RawKernel is Kernel


def test_a_launch_has_its_name_and_its_memory(recorded: list[tuple[str, list[int]]]) -> None:
    """Addresses and arrays; a count is neither."""
    cupy = sys.modules["cupy"]
    kernel = cupy.RawKernel("code", "reduce_chunk")
    args = (CHUNK, Array(OUT), 1 << 24, 1.5, True)
    assert kernel((1,), (2,), args, shared_mem=3) == ((1,), (2,), args, 3)
    assert recorded == [("cupy::reduce_chunk", [CHUNK, OUT])]


def test_wrong_arguments_are_left_to_cupy(recorded: list[tuple[str, list[int]]]) -> None:
    """Its own exception reaches the program, and nothing is recorded."""
    kernel = sys.modules["cupy"].RawKernel("code", "reduce_chunk")
    with pytest.raises(TypeError):
        kernel((1,), (2,))
    assert kernel((1,), (2,), None)[2] is None
    assert recorded == []


def test_a_launch_on_a_stream_that_is_not_torchs_is_not_recorded(
    recorded: list[tuple[str, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record would have the wrong one."""
    cupy = sys.modules["cupy"]
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: SimpleNamespace(ptr=0x55D0))
    cupy.RawKernel("code", "reduce_chunk")((1,), (2,), (CHUNK,))
    assert recorded == []


def test_the_class_behaves_as_cupys(recorded: list[tuple[str, list[int]]]) -> None:
    """Kernels of RawModule are instances, and a kernel can be pickled."""
    cupy = sys.modules["cupy"]
    assert isinstance(cupy.made_by_module, cupy.RawKernel) and not isinstance(1, cupy.RawKernel)
    assert issubclass(Kernel, cupy.RawKernel)
    assert pickle.loads(pickle.dumps(cupy.RawKernel("code", "scale"))).name == "scale"
    assert recorded == []
