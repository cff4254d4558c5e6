"""Operands that do not fit together, by what their operator takes for granted of their sizes or values."""

from __future__ import annotations

from pytracer.analyze.evidence.indices.segments import Segments, unfit_segments
from pytracer.analyze.evidence.operators.channels import UnfitChannels, unfit_channels
from pytracer.analyze.evidence.operators.recurrent_weights import CutWeight, cut_weight
from pytracer.analyze.evidence.own_code.unfit_memory import UnfitMemory, unfit_memory
from pytracer.analyze.evidence.preconditions.violated import Violated, violated
from pytracer.analyze.view import ProcessView

Unfit = UnfitChannels | Segments | CutWeight | Violated | UnfitMemory


def unfit_operands(view: ProcessView) -> Unfit | None:
    """The first that is known; None where all may fit."""
    return unfit_segments(view) or unfit_channels(view) or cut_weight(view) or violated(view) or unfit_memory(view)
