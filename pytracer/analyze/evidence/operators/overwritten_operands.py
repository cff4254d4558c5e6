"""Operands whose recorded numbers prove nothing: a write that ran on has gone over their memory before it was refused.

`index` may be all 1 at the crash because the write put 1 there, and have held other numbers when the call began.
"""

from __future__ import annotations

from pytracer.analyze.evidence.indices.runs import ran_on
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument


def may_be_overwritten(view: ProcessView, item: Argument) -> bool:
    """Whether the write went over it; where its beginning is not known, only of a tensor in which all are alike."""
    place, fault = view.place, view.fault
    if place is None or fault is None or fault.access != "write" or not item.base:
        return False
    overrun = place.overrun
    if overrun is not None and not overrun.downwards:
        return overrun.start <= item.base < place.addr
    run = ran_on(view) if overrun is None else None
    if run is None or run.downwards or not run.low <= item.base < place.addr:
        return False
    return item.minimum is not None and item.minimum == item.maximum and item.elements > 1
