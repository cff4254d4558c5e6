"""Several living storages of one address: which of them the running call had.

Memory of others can be mapped, made a tensor, unmapped and mapped anew, all at one address, while every one of these
tensors lives on. Which one was made last says nothing about which one was used: the tensors of the call do.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.decode.types.snapshot import Argument, Snapshot, Storage


def meant_of(snapshot: Snapshot, living: Sequence[Storage]) -> list[Storage]:
    """Those of `living` that the running call can have been given: one if its tensors tell them apart, else more.

    What native frames refer to counts before what is only held by variables of the Python frames: these hold the other
    tensors, too.
    """
    if len(living) < 2 or snapshot.crash is None:
        return list(living)
    given = [item for item in snapshot.crash.arguments if item.base and not item.undefined]
    for items in ([item for item in given if item.how != "held"], given):
        found = _with_tensors(living, items)
        if len(found) == 1 or (found and len({item.base for item in found}) == 1):
            return _of_size(found, items)
    return list(living)


def _with_tensors(living: Sequence[Storage], items: Sequence[Argument]) -> list[Storage]:
    """Those that hold all of the tensors that begin with them, one at least."""
    found = []
    for storage in living:
        sizes = [_extent(item) for item in items if item.base == storage.base]
        if sizes and max(sizes) <= storage.nbytes:
            found.append(storage)
    return found


def _of_size(found: list[Storage], items: Sequence[Argument]) -> list[Storage]:
    """Of several at one address those that are just as large as the largest tensor there, if there are any."""
    largest = max(_extent(item) for item in items if item.base == found[0].base)
    return [item for item in found if item.nbytes == largest] or found


def _extent(item: Argument) -> int:
    """Bytes from the storage's beginning to the tensor's end, as far as they are known."""
    last = sum((size - 1) * step for size, step in zip(item.sizes, item.steps, strict=False) if size > 1 and step > 0)
    return (item.offset + min(item.elements, last + 1)) * (item.element_bytes or 1)  # an expanded one has fewer
