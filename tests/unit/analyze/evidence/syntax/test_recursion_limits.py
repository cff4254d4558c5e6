"""The line that sets Python's limit of recursion, and its number."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.recursion_limits import recursion_limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1000000", 1_000_000),
        ("10**6", 1_000_000),
        ("1 << 20", 1 << 20),
        ("int(1e6)", 1_000_000),
        ("50 * 1000", 50_000),
        ("limit", None),
        ("2**(10**9)", None),
        ("sys.getrecursionlimit() * 2", None),
    ],
)
def test_number_of_the_call(text: str, limit: int | None) -> None:
    found = recursion_limit({"train.py": ast.parse(f"import sys\nsys.setrecursionlimit({text})\n")})
    assert (found.limit if found is not None else None) == limit
    assert found is None or found.line == 2


def test_none_of_several() -> None:
    source = "sys.setrecursionlimit(5000)\nsys.setrecursionlimit(9000)\n"
    assert recursion_limit({"train.py": ast.parse(source)}) is None


def test_number_that_the_module_names_is_followed() -> None:
    tree = ast.parse("import sys\nDEEP = 10**6\nsys.setrecursionlimit(DEEP)\n")
    found = recursion_limit({"train.py": tree})
    assert found is not None and (found.limit, found.line) == (1_000_000, 3)
