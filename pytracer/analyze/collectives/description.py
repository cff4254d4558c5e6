"""One collective in words: "all_reduce (max) of float32 [10, 3]"; groups and sets of ranks in words."""

from __future__ import annotations

from pytracer._text import span_words as span_words
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.decode.types.snapshot import Collective
from pytracer.report import job as r

_DEFAULT = "default_pg"
_DIMENSIONS = 6  # as many as the record holds


def call_words(item: Collective, group: GroupMatch | None = None) -> str:
    """The operation and what it was given; ranks are global where the group's are known."""
    words = item.op
    if item.reduce_op not in (None, "sum"):
        words += f" ({item.reduce_op})"
    if item.dtype is not None and item.op not in ("barrier", "monitored_barrier"):
        words += f" {item.dtype} {_shape(item)}"
    if item.root is not None:
        words += f" {'to' if item.op in ('reduce', 'gather') else 'from'} rank {global_rank(group, item.root)}"
    if item.point_to_point and item.peer is not None:
        words += f" {'to' if item.op == 'send' else 'from'} rank {global_rank(group, item.peer)}"
        words += f", tag {item.tag}" if item.tag else ""
    return words


def value_of(item: Collective, field: str, group: GroupMatch | None = None) -> r.PassedValue:
    """The value of a field that ranks must agree on."""
    if field == "root":
        return global_rank(group, item.root) if item.root is not None else None
    if field == "size":
        return item.numel
    if field == "shape":
        return list(item.sizes)
    return {"op": item.op, "reduce_op": item.reduce_op, "dtype": item.dtype}[field]


def global_rank(group: GroupMatch | None, rank: int) -> int:
    """A rank of the group in the whole job."""
    return group.ranks[rank] if group is not None and 0 <= rank < len(group.ranks) else rank


def place_of(item: Collective) -> r.PythonFrame | None:
    """The line that called it: outside torch where that is known."""
    frame = item.place
    return python_frame(frame) if frame is not None else None


def at_place(item: Collective) -> str:
    """` at train.py:12 in step`, or nothing."""
    frame = place_of(item)
    return f" at {place_words(frame)}" if frame is not None else ""


def is_default(group: GroupMatch) -> bool:
    """Whether it is the process group of all ranks."""
    return group.description == _DEFAULT


def group_words(group: GroupMatch | None) -> str:
    """`the default group`, `group 3 (dp)`."""
    if group is None or group.name is None:
        return "the group"
    if group.description == _DEFAULT:
        return "the default group"
    about = group.description if group.description not in (None, "", "undefined", group.name) else None
    return f"group {group.name}{f' ({about})' if about else ''}"


def _shape(item: Collective) -> str:
    more = ", ..." if len(item.sizes) == _DIMENSIONS else ""
    shape = f"[{', '.join(str(n) for n in item.sizes)}{more}]"
    product = 1
    for n in item.sizes:
        product *= n
    several = item.numel is not None and product != item.numel and not more
    return f"{shape}{f' and more, {item.numel} elements in all' if several else ''}"


def call_evidence(rank: int, call: Collective, match: GroupMatch | None) -> r.Evidence:
    """`rank 1: all_to_all of float32 [4] at train.py:12 in step, failed`."""
    return r.Evidence(
        "collective-call",
        f"rank {rank}: {call_words(call, match)}{at_place(call)}, {call.state}",
        ranks=[rank],
        group=call.group,
        op=call.op,
        sequence_nr=call.sequence_nr,
        state=call.state,
        nbytes=call.nbytes,
        python=place_of(call),
    )
