"""Regular expressions that are compiled when they are first used.

The rules have nine hundred, of which a report needs a part: to compile all of them was a fifth of the time in which
`pytracer inspect` starts (docs/measurements/cost.md).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any


class Pattern:
    """As re.compile() of the same arguments: its methods that the rules use."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """For what takes a pattern of `re`."""
        return re.compile(self.pattern, self._flags)

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        """See re.Pattern."""
        return self.compiled.search(text, start, end)

    def match(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        """See re.Pattern."""
        return self.compiled.match(text, start, end)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """See re.Pattern."""
        return self.compiled.fullmatch(text)

    def finditer(self, text: str, start: int = 0, end: int = sys.maxsize) -> Iterator[re.Match[str]]:
        """See re.Pattern."""
        return self.compiled.finditer(text, start, end)

    def findall(self, text: str, start: int = 0, end: int = sys.maxsize) -> list[Any]:
        """See re.Pattern."""
        return self.compiled.findall(text, start, end)

    def split(self, text: str, maxsplit: int = 0) -> list[Any]:
        """See re.Pattern."""
        return self.compiled.split(text, maxsplit)

    def sub(self, by: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        """See re.Pattern."""
        return self.compiled.sub(by, text, count)
