"""A slice that a line keeps of what a round makes, and what is no such slice."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.ends.kept_slices import only_slice


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("self.rows.append((s[:, :1], top))", "s[:, :1]"),
        ("rows.append(s[2:])", "s[2:]"),
        ("rows.append(s[0])", None),
        ("rows.append((s[:1], s))", None),
        ("rows.append(other[:1])", None),
        ("rows.append(s[:, best])", None),
        ("rows.append(s[:, :1].detach().cpu())", None),
    ],
    ids=["columns", "rows", "one item", "the whole, too", "of something else", "by a tensor", "moved"],
)
def test_only_slices_of_what_is_made_are_views_of_it(line: str, kept: str | None) -> None:
    """An index of one row is a view, too, but most often of an array of numbers."""
    assert only_slice(ast.parse(line).body[0], ("s",)) == kept
