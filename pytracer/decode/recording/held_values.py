"""Values of variables as the handler wrote them, as text: the words that an exception's variables have."""

from __future__ import annotations

import struct

from pytracer.blackbox.schema import HolderKind, LengthOf

VALUE_KINDS = frozenset({HolderKind.WHOLE, HolderKind.TRUTH, HolderKind.REAL, HolderKind.NOTHING, HolderKind.LENGTH})
_LENGTHS = {LengthOf.LIST: "list", LengthOf.TUPLE: "tuple", LengthOf.DICT: "dict"}


def value_text(kind: int, word: int, of: int) -> str | None:
    """`7`, `0.25`, `True`, `None`, `list of 4`; None of what no handler writes.

    Args:
        kind: One of VALUE_KINDS.
        word: `Holder.addr`, unsigned.
        of: `Holder.distance`.
    """
    if kind == HolderKind.WHOLE:
        return str(word - (1 << 64) if word >> 63 else word)
    if kind == HolderKind.TRUTH:
        return {0: "False", 1: "True"}.get(word)
    if kind == HolderKind.REAL:
        return repr(struct.unpack("<d", word.to_bytes(8, "little"))[0])
    if kind == HolderKind.NOTHING:
        return "None"
    return f"{_LENGTHS[LengthOf(of)]} of {word}" if of in _LENGTHS else None
