"""Variables that were made anew, with nothing in them yet."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.fresh_arrays import is_fresh, is_unset


@pytest.mark.parametrize(
    ("made", "fresh", "unset"),
    [
        ("np.zeros((h, w), order='F')", True, False),
        ("torch.empty(n, dtype=torch.int64)", True, True),
        ("np.empty_like(x)", True, True),
        ("x.new_full((2, 3), 7)", True, False),
        ("np.asfortranarray(x)", False, False),
        ("load()", False, False),
    ],
)
def test_maker_says_what_a_new_array_holds(made: str, fresh: bool, unset: bool) -> None:
    tree = ast.parse(f"def f(x):\n    out = {made}\n    lib.f(out)\n")
    assert (is_fresh(tree, "out", 3), is_unset(tree, "out", 3)) == (fresh, unset)
