"""Debug information is parsed once for all reports of a test process, where a user's report has a child for each image.

That is most of what a report of a small program costs: 0.3 s for Python's alone. What is found is the same.
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
    """For a conftest.py of tests that make many reports; tests/unit/decode/symbols has the children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_lines.SourceLines, "of", _of)
        yield
