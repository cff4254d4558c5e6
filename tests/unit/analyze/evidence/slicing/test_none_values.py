"""The line that makes a variable None, and the call that chose it."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.slicing.none_values import none_line
from pytracer.analyze.evidence.syntax.scopes import scope_of

SOURCE = """class Norm:
    def __init__(self, n, track=True):
        self.mean = zeros(n) if track else None
        self.var = None if not track else ones(n)
        self.bias = make(n)
        if n > 4:
            self.scale = ones(n)
        else:
            self.register_parameter("scale", None)

    def forward(self, x, mask=None):
        out = mean = None
        y = zeros(3)
        return use(x)


class Block:
    def __init__(self, n, track):
        self.norm = Norm(n, track=track)


def build():
    return Block(4, True), {second}
"""


def found(name: str, second: str = "Block(8, False)") -> tuple[int, int | None, bool] | None:
    tree = ast.parse(SOURCE.format(second=second))
    line = none_line(tree, scope_of(tree, 14), name)
    return (line.line, line.chosen.lineno if line.chosen is not None else None, line.by_default) if line else None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("self.mean", (3, 23, False)),
        ("self.var", (4, 23, False)),
        ("self.scale", (9, None, False)),
        ("mean", (12, None, False)),
        ("mask", (11, None, True)),
        ("self.bias", None),
        ("y", None),
    ],
)
def test_line_that_makes_none(name: str, line: tuple[int, int | None, bool] | None) -> None:
    assert found(name) == line


def test_no_call_is_named_where_several_chose_it() -> None:
    assert found("self.mean", "Block(8, False), Block(2, False)") == (3, None, False)
    assert found("self.mean", "Block(8, True)") == (3, None, False)
