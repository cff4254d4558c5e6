"""Keys of a checkpoint of which a recording has the first ones, or no unexpected ones at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pytracer.analyze.evidence.failing.stored.differing_keys import differing_keys


def _listed(kind: str, prefix: str, count: int, more: int) -> str:
    keys = ", ".join(f'"{prefix}layers.{n}.weight"' for n in range(count))
    return f"\n\t{kind} key(s) in state_dict: {keys}, and {more} more."


def _said(message: str) -> str:
    at: Any = SimpleNamespace(message=message, line=7)
    return differing_keys(at, "`net`") or ""


def test_prefix_is_found_in_the_first_of_many_keys() -> None:
    """A longer key leaves room for fewer."""
    message = f"Error(s) in loading:{_listed('Missing', '', 30, 70)}{_listed('Unexpected', 'ema.', 24, 76)}"
    assert "The checkpoint's keys begin with 'ema.' (`ema.layers.0.weight`)" in _said(message)


def test_count_of_many_keys_is_that_of_all() -> None:
    """Also of those that were too many to record."""
    message = f"Error(s) in loading:{_listed('Missing', '', 30, 70)}{_listed('Unexpected', 'a.b', 3, 7)}"
    said = _said(message)
    assert "lacks `layers.0.weight` and 99 more and has `a.blayers.0.weight` and 9 more" in said
    assert "load with strict=False" not in said


def test_nothing_is_said_of_another_architecture_where_the_keys_that_are_there_were_cut_off() -> None:
    """Older recordings have the middle left out, and with it what the checkpoint has."""
    keys = ", ".join(f'"layers.{n}.weight"' for n in range(50))
    message = f'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: {keys}\n[...]\nrs.98.weight". '
    said = _said(message)
    assert "Print the first of both before line 7. A prefix" in said
    assert "another architecture" not in said
