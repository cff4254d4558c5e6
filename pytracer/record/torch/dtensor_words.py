"""What a DTensor was: its whole shape, and how its mesh has it; read from the object, without an operator of torch's.

The local part is not looked at, and nothing is gathered: that would be a collective, for which the other ranks may not
be there any more.
"""

from __future__ import annotations

import sys

from pytracer.record.torch.object_words import module_of

_MODULE = "torch.distributed."
_NAME = "DTensor"
_DIMENSIONS = 8
_MESH_DIMENSIONS = 4


def sharded_words(value: object) -> str | None:
    """`DTensor [256, 64] float32, Shard(0)`, also of a parameter; None of anything but torch's own class."""
    kind = type(value)
    if type.__getattribute__(kind, "__name__") != _NAME or not module_of(kind).startswith(_MODULE):
        return None
    try:
        base = vars(sys.modules["torch._C"].TensorBase)
        sizes = ", ".join(str(int(size)) for size in base["shape"].__get__(value)[:_DIMENSIONS])
        dtype = str(base["dtype"].__get__(value)).removeprefix("torch.")
        placed = _placements(value)
    except Exception:  # of another version of torch
        return None
    return f"{_NAME} [{sizes}] {dtype}{f', {placed}' if placed else ''}"


def _placements(value: object) -> str:
    """`Shard(0), Replicate()`: one for each dimension of its mesh."""
    held = object.__getattribute__(object.__getattribute__(value, "_spec"), "placements")
    return ", ".join(_placement(item) for item in held[:_MESH_DIMENSIONS])


def _placement(item: object) -> str:
    name = type(item).__name__
    dim = getattr(item, "dim", None) if module_of(type(item)).startswith(_MODULE) else None
    return f"{name}({dim if type(dim) is int else ''})"
