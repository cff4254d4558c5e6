"""The beginning of a sentence."""

from __future__ import annotations

import pytest

from pytracer._text import capital


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        ("parts.py:26 (`self.file = open(path)`) opens it", "parts.py:26 (`self.file = open(path)`) opens it"),
        ("line 26 opens parts.py:3", "Line 26 opens parts.py:3"),
        ("", ""),
    ],
)
def test_name_of_a_file_is_not_changed(words: str, begun: str) -> None:
    """There is no file `Parts.py`."""
    assert capital(words) == begun
