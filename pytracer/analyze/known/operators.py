"""What torch's operators take for granted of their arguments: `operators.toml`."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec

_FILE = Path(__file__).resolve().parent / "operators.toml"


class Precondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of all operators in `names`: the names of their arguments by position, and what must hold.

    `modules`: classes of torch.nn that are called with the same arguments. `why` and `fix`: for one of `must`, what
    follows where it does not hold, and what to pass; `{input}` is the argument as the program writes it. `implied`:
    what breaks one of these breaks one of `must`, where that cannot be decided. `hint`: a sentence more, where values
    do not fit. `saved`: what the node of its backward keeps. `at_once`: the call itself dies of it, so that no later
    damage is laid to it. `no_memory`: the result may have none then. `needs`: arguments that may be None by the schema,
    and that are read where a flag is set (`train`), or is not (`not train`), or always (nothing). `runs`: operators
    that it calls, which the native stack may name instead. `padded`: arguments in padded rows, of which no more is
    read than another argument counts.
    """

    names: tuple[str, ...]
    arguments: str
    must: tuple[str, ...]
    implied: tuple[str, ...] = ()
    hint: str = ""
    saved: str = ""
    modules: tuple[str, ...] = ()
    why: dict[str, str] = {}
    fix: dict[str, str] = {}
    needs: dict[str, str] = {}
    at_once: bool = False
    no_memory: bool = False
    runs: tuple[str, ...] = ()
    padded: dict[str, str] = {}

    def items(self, argument: str) -> range:
        """The first items of an argument that is a list, as far as a comparison has one: `hx1`."""
        found = re.findall(rf"\b{argument}(\d+)\b", " ".join((*self.must, *self.implied)))
        return range(max((int(at) + 1 for at in found), default=0))


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operator: tuple[Precondition, ...]


@functools.cache
def preconditions() -> dict[str, Precondition]:
    """By the operator's name without namespace and overload."""
    entries = msgspec.toml.decode(_FILE.read_bytes(), type=_File).operator
    return {name: entry for entry in entries for name in entry.names}
