"""Functions that return None on one of their ways."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.returns import returns_none_at


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return x", None),
        ("if x:\n  return x", (3, False)),
        ("if x:\n  return x\n else:\n  return y", None),
        ("if x:\n  return None\n return y", (3, True)),
        ("for n in x:\n  return n", (3, False)),
        ("while True:\n  if x: return x", None),
        ("with x:\n  return x", None),
        ("try:\n  return x\n except KeyError:\n  log()", (5, False)),
        ("try:\n  return x\n except KeyError:\n  raise", None),
        ("yield x", None),
    ],
)
def test_line_of_none(body: str, found: tuple[int, bool] | None) -> None:
    function = ast.parse(f"def f(x, y):\n {body}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert returns_none_at(function) == found
