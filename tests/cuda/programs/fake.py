"""The controls of the fake CUDA runtime (tests/fakecuda/README.md)."""

from __future__ import annotations

import ctypes


def control(name: str, *arguments: int) -> int:
    """Calls `fakecuda_NAME`."""
    function = getattr(ctypes.CDLL("libcudart.so.13"), "fakecuda_" + name)
    function.argtypes = [ctypes.c_size_t] * len(arguments)
    function.restype = ctypes.c_size_t
    return int(function(*arguments))
