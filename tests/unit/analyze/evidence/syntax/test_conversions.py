"""Calls that make integers of floats, and of how many bits."""

import ast

import pytest

from pytracer.analyze.evidence.syntax.conversions import integer_operand, makes_32_bits


def call(text: str) -> ast.Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    return node


@pytest.mark.parametrize(
    ("text", "operand", "narrow"),
    [
        ("x.int()", "x", True),
        ("x.to(torch.int32)", "x", True),
        ("x.to('cuda', dtype=torch.int32)", "x", True),
        ("(x / y).astype(np.int32)", "x / y", True),
        ("x.astype('i4')", "x", True),
        ("np.asarray(x, dtype=np.intc)", "x", True),
        ("torch.IntTensor(x)", "x", True),
        ("x.long()", "x", False),
        ("x.astype(int)", "x", False),
        ("x.to(torch.int64)", "x", False),
        ("np.array(x, dtype='int64')", "x", False),
    ],
)
def test_conversion_of_floats(text: str, operand: str, narrow: bool) -> None:
    found = integer_operand(call(text))
    assert found is not None and ast.unparse(found) == operand
    assert makes_32_bits(call(text)) is narrow


@pytest.mark.parametrize(
    "text",
    ["int(x)", "x.float()", "x.to('cuda')", "x.argmax(1).int()", "np.array([1, 2], dtype=np.int32)", "x.astype(float)"],
)
def test_what_makes_no_integers_of_floats(text: str) -> None:
    assert integer_operand(call(text)) is None
