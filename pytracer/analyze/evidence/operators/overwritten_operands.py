"""Operands whose recorded numbers prove nothing: a write that ran on has gone over their memory before it was refused.

`index` may be all 1 at the crash because the write put 1 there, and have held other numbers when the call began.
"""

from __future__ import annotations

from pytracer.analyze.evidence.indices.runs import ran_on
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument


def may_be_overwritten(view: ProcessView, item: Argument) -> bool:
    """Whether the write probably went over it: all of it is alike, as after a write of one number."""
    alike = item.minimum is not None and item.minimum == item.maximum and item.elements > 1
    return alike and _lies_on_the_way(view, item)


def _lies_on_the_way(view: ProcessView, item: Argument) -> bool:
    """Whether a write that ran upwards to the address may have gone over it, wherever it began."""
    place, fault = view.place, view.fault
    if place is None or fault is None or fault.access != "write" or not item.base:
        return False
    overrun = place.overrun
    if overrun is not None:
        return not overrun.downwards and overrun.start <= item.base < place.addr
    storage = place.storage if place.kind == "past-storage" else None
    if storage is not None and storage.base + storage.nbytes <= item.base < place.addr:
        return True  # element by element, from what the storage holds on
    run = ran_on(view)
    return run is not None and not run.downwards and run.low <= item.base < place.addr
