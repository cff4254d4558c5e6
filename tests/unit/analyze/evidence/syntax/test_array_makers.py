"""Calls that make a new array beside the one that it is made of; and look-alikes, which hand memory on."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.array_makers import array_makers


def words(source: str) -> str | None:
    found = array_makers(ast.walk(ast.parse(source)))
    return found.words if found is not None else None


def test_lines_that_make_arrays_are_listed() -> None:
    source = "rows = np.concatenate(parts)\ntable = rows.astype(np.float64)\ntable = np.concatenate([x, table])"
    assert words(source) == "new arrays at lines 1, 2 and 3 (`np.concatenate`, `astype`)"
    assert words("x = y.detach().clone()") == "a new array at line 1 (`clone`)"
    assert words("x = torch.cat(parts)") == "a new array at line 1 (`torch.cat`)"


@pytest.mark.parametrize(
    "source",
    ["x = a.astype(t, copy=False)", "x = np.asarray(a)", "x = a.numpy()", "x = self.stack(a)", "x = os.path.concat(a)"]
    + ["x = torch.cat(parts, out=x)", "new = cfg.clone()"],
)
def test_what_may_hand_memory_on_makes_none(source: str) -> None:
    assert words(source) is None
