"""What assertions in kernels of torch mean, and which operators have them: `device_assertions.toml`."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

RANGE = ("{}.min()", "{}.max()")
_FILE = Path(__file__).resolve().parent / "device_assertions.toml"


class Meaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an assertion whose source's path ends with `file`.

    `function`: how its name begins, `condition`: a part of it; "": any. `operators`: how the names of those begin whose
    kernels have it. `what`: what is so whenever it fails. `next`: what to look at. `checks`: which parameter of which
    function of torch the condition is about, `gather.index`; "[]": what is between the brackets of x[...]. `ask`: what
    to print of that argument, `{}`.
    """

    file: str
    what: str
    next: str
    function: str = ""
    condition: str = ""
    operators: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    ask: tuple[str, ...] = RANGE

    def fits(self, file: str, function: str, condition: str) -> bool:
        """Whether it is that assertion."""
        return file.endswith(self.file) and function.startswith(self.function) and self.condition in condition


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    assertion: tuple[Meaning, ...]


@functools.cache
def meanings() -> tuple[Meaning, ...]:
    """All entries; the first that fits holds."""
    return msgspec.toml.decode(_FILE.read_bytes(), type=_File).assertion


def meaning_of(file: str, function: str, condition: str) -> Meaning | None:
    """None: it is not known, or of another library."""
    return next((item for item in meanings() if item.fits(file, function, condition)), None)
