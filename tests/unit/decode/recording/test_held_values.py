"""Words of the handler's values are those of an exception's variables."""

from __future__ import annotations

import struct

import pytest

from pytracer.blackbox.schema import HolderKind, LengthOf
from pytracer.decode.recording.held_values import value_text


@pytest.mark.parametrize(
    ("kind", "word", "of", "text"),
    [
        (HolderKind.WHOLE, 7, 0, "7"),
        (HolderKind.WHOLE, (1 << 64) - 3, 0, "-3"),
        (HolderKind.TRUTH, 0, 0, "False"),
        (HolderKind.TRUTH, 1, 0, "True"),
        (HolderKind.TRUTH, 2, 0, None),
        (HolderKind.REAL, struct.unpack("<Q", struct.pack("<d", 0.25))[0], 0, "0.25"),
        (HolderKind.REAL, struct.unpack("<Q", struct.pack("<d", float("-inf")))[0], 0, "-inf"),
        (HolderKind.NOTHING, 0, 0, "None"),
        (HolderKind.LENGTH, 4, LengthOf.LIST, "list of 4"),
        (HolderKind.LENGTH, 0, LengthOf.DICT, "dict of 0"),
        (HolderKind.LENGTH, 2, LengthOf.TUPLE, "tuple of 2"),
        (HolderKind.LENGTH, 2, 9, None),
    ],
)
def test_value_is_told_as_python_writes_it(kind: int, word: int, of: int, text: str | None) -> None:
    """And nothing of a word that no handler writes."""
    assert value_text(kind, word, of) == text
