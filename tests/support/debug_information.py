"""Debug information is parsed once per test process; a user's report forks a child for each image.

Parsing takes most of the time of a small report: 0.3 s for Python's image alone. The results are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pytracer.decode.symbols import source_lines

_known: dict[tuple[int, int, int], Any] = {}


def _of(self: source_lines.SourceLines, fd: int, addresses: Iterable[int]) -> source_lines.Rows:
    if not self.wanted:
        return {}
    status = os.fstat(fd)
    image = (status.st_dev, status.st_ino, status.st_mtime_ns)
    if image not in _known:
        _known[image] = source_lines.parsed(fd)
    return source_lines.rows_at(_known[image], addresses)


@pytest.fixture(scope="module", autouse=True)
def debug_information_is_parsed_once() -> Iterator[None]:
    """For a conftest.py of tests that make many reports; tests/unit/decode/symbols covers the children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_lines.SourceLines, "of", _of)
        yield
