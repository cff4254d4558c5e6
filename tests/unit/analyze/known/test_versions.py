"""Ranges of versions."""

from __future__ import annotations

import pytest

from pytracer.analyze.known.versions import in_range


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("2.10.0", ">=2.10,<2.11", True),
        ("2.10.0+cpu", ">=2.10,<2.11", True),
        ("2.10", "==2.10.0", True),
        ("2.9.1", ">=2.10", False),
        ("2.11.0a0+git1234", "<2.11", False),
        ("3.14.2", ">3.14", True),
        ("3.14.2", "<=3.14", False),
        ("unknown", ">=1", False),
    ],
)
def test_version_lies_in_a_range(version: str, wanted: str, expected: bool) -> None:
    """By numbers, not by text."""
    assert in_range(version, wanted) is expected


def test_other_words_are_no_range() -> None:
    """A test of the entries asks this of each."""
    with pytest.raises(ValueError, match="no(t a)? range"):
        in_range("2.0", "~=2.0")
