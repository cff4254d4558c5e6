"""Ranks that gather rows of different lengths: each batch was padded to the longest of its own items."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.decode.types.snapshot import Collective

_GATHERS = ("all_gather", "all_gather_into_tensor", "gather")
_ACCELERATE = "/accelerate/"


def padded_rows(calls: Sequence[Collective]) -> str | None:
    """What to do; None unless all gather as many rows, of one dimension that differs.

    Args:
        calls: One for each side, of one operation.
    """
    sizes = [call.sizes for call in calls]
    first = sizes[0] if sizes else ()
    if not all(call.op in _GATHERS for call in calls) or len(first) < 2 or len({len(item) for item in sizes}) > 1:
        return None
    differing = [place for place, column in enumerate(zip(*sizes, strict=True)) if len(set(column)) > 1]
    if len(differing) != 1 or differing[0] == 0:
        return None
    dim = differing[0]
    lengths = " and ".join(str(item[dim]) for item in sizes)
    files = [frame.file for call in calls for frame in (call.python, call.caller) if frame is not None]
    by_accelerate = any(_ACCELERATE in file for file in files)
    pad = (
        f"`accelerator.pad_across_processes(x, dim={dim})`"
        if by_accelerate
        else "all_reduce() the length (MAX), F.pad()"
    )
    return (
        f"The ranks gather {first[0]} rows each, of {lengths} in dimension {dim}: a batch that is padded to its own "
        f"longest item has that look. Pad to one length on all ranks before ({pad}), or to a fixed one in the collate "
        "function; or gather what has one size, such as sums and counts."
    )
