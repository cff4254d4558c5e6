"""A callback whose prototype declares an address as a number of 32 bits."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.own_code.narrow_callbacks import NarrowCallback, narrow_callback
from pytracer.analyze.evidence.syntax.scopes import scope_of

PROGRAM = """LOSS = ctypes.CFUNCTYPE(ctypes.c_double, KINDS)
class Fit:
    def __init__(self):
        self.callback = LOSS(self.loss)
    def loss(self, address, n):
        x = as_array(ctypes.cast(address, FLOATS), (n,))
        return x.sum()
"""


def found(program: str, kinds: str = "ctypes.c_int, ctypes.c_int") -> NarrowCallback | None:
    tree = ast.parse(program.replace("KINDS", kinds))
    return narrow_callback({"fit.py": tree}, scope_of(tree, 6), 6)


def test_parameter_that_is_declared_as_a_c_int_is_found() -> None:
    assert found(PROGRAM) == NarrowCallback("address", "loss", "LOSS", "ctypes.c_int", 1, "fit.py", 1)


@pytest.mark.parametrize(
    "kinds",
    [
        "ctypes.c_void_p, ctypes.c_int64",
        "ctypes.POINTER(ctypes.c_double), ctypes.c_long",
        "ctypes.c_void_p, ctypes.c_int",
    ],
)
def test_wide_types_keep_an_address_whole_whatever_its_length_is(kinds: str) -> None:
    assert found(PROGRAM, kinds) is None


def test_function_that_is_no_callback_is_given_no_prototype() -> None:
    assert found(PROGRAM.replace("LOSS(self.loss)", "LOSS(other)")) is None
    assert (
        found(PROGRAM.replace("LOSS(self.loss)", "None").replace("    def loss(", "    @LOSS\n    def loss(")) is None
    )
