"""The type of the elements that a line makes, and calls of a library that is an attribute."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.own_code.made_type import made_element
from pytracer.analyze.evidence.own_code.own_libraries import _is_foreign


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("torch.empty(n // 2 + 1)", ("float32", 4)),
        ("torch.zeros(8, dtype=torch.float64)", ("float64", 8)),
        ("torch.zeros(8, dtype=torch.long)", ("long", 8)),
        ("torch.zeros(8, dtype=float)", ("float64", 8)),
        ("np.zeros((4, 8))", ("float64", 8)),
        ("np.zeros(8, np.float32)", ("float32", 4)),
        ("np.empty(8, dtype='f4')", None),
        ("np.rand(8)", None),
        ("torch.full((8,), 1)", None),  # of its value
        ("torch.zeros(8, dtype=x.dtype)", None),
        ("zeros(8)", None),
    ],
)
def test_type_of_what_a_line_makes(text: str, made: tuple[str, int] | None) -> None:
    assert made_element(ast.parse(text, mode="eval").body, ast.parse("")) == made


def test_a_changed_default_is_not_known() -> None:
    node = ast.parse("torch.empty(8)", mode="eval").body
    assert made_element(node, ast.parse("torch.set_default_dtype(torch.float64)")) is None


@pytest.mark.parametrize(
    ("text", "modules", "foreign", "is_call"),
    [
        ("self.lib.power(x.data_ptr(), 4)", {"lib"}, True, True),
        ("self.lib.power(x.data_ptr(), 4)", set(), False, False),  # no ctypes
        ("self.lib.power(x, 4)", {"lib"}, True, False),
        ("self.power(x.data_ptr())", set(), True, False),  # a method of the program
        ("other.power(x.data_ptr())", {"lib"}, True, False),
        ("other.power(x.data_ptr())", set(), True, True),
    ],
)
def test_library_that_is_an_attribute_is_called(text: str, modules: set[str], foreign: bool, is_call: bool) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert _is_foreign(call, modules, foreign=foreign) == is_call
