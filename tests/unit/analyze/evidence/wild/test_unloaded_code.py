"""The words about code of a library that was unloaded, and which library that was."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from pytracer.analyze.evidence.wild.unloaded_code import UnloadedCode, _libraries

VIEW: Any = None


@pytest.mark.parametrize("tensor", [None, "the tensor of from_dlpack() of kernels.py:48"])
def test_the_tensor_whose_deleter_was_called_is_named(tensor: str | None) -> None:
    found = UnloadedCode(0x7F00_1129, "line 51", "dlclose(handle)", "Module", "__del__", tensor, "kernel.so")
    access = found.access(VIEW) or ""
    assert access.endswith("code at 0x7f001129 that is not there any more")
    assert (f"the deleter of {tensor}" in access) == (tensor is not None)
    assert found.clause(VIEW) == ": its library, kernel.so, was unloaded, likely by Module.__del__() (line 51)"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('ctypes.CDLL(str(folder / "kernel.so"))', ["kernel.so"]),
        ('torch.ops.load_library("/opt/ops/libops.so.1")', ["libops.so.1"]),
        ("ctypes.CDLL(path)", []),
        ('open("kernel.so")', []),
    ],
)
def test_the_library_that_a_call_loads(text: str, names: list[str]) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert list(_libraries(call)) == names
