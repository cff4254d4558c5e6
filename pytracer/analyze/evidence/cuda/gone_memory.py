"""Memory that was gone when a kernel used it: an input of a CUDA graph, or a block that an Xid's address lies in."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import hex_addr, size_words
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError
from pytracer.analyze.evidence.cuda.cuda_graphs import (
    broken_graphs,
    broken_inputs,
    gone_words,
    keep_advice,
    lost_input,
    replay_words,
)
from pytracer.analyze.evidence.cuda.xid import FAULT, Xid
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import CudaGraph, GraphInput
from pytracer.decode.types.storages import CallSite


class GoneMemory(msgspec.Struct, frozen=True):
    """`words`: a clause behind the headline's error."""

    words: str
    advice: str


def gone_memory(view: ProcessView, error: CudaError, kernel: str | None, xids: Sequence[Xid]) -> GoneMemory | None:
    """Of an illegal access whose kernel is not known: if it is, it may be another's."""
    if not error.is_illegal_access or kernel is not None:
        return None
    named = [xid.address for xid in xids if xid.own and xid.number == FAULT and xid.address is not None]
    for graph in broken_graphs(view.process.snapshot.cuda_graphs):
        found = _of_graph(view, graph, named)
        if found is not None:
            return found
    return next((found for addr in named if (found := _of_block(view, addr)) is not None), None)


def _of_graph(view: ProcessView, graph: CudaGraph, named: Sequence[int]) -> GoneMemory | None:
    item, why = _used_input(graph, named), "the address of Xid 31 lies in it"
    if item is None:
        item, why = lost_input(view, graph), "the driver has that memory back"
    if item is None:
        return None
    words = f"before, the process {replay_words(view, graph)} after {gone_words(item)} had been freed, and {why}"
    return GoneMemory(words, keep_advice(view, graph))


def _used_input(graph: CudaGraph, named: Sequence[int]) -> GraphInput | None:
    inputs = broken_inputs(graph)
    return next((item for item in inputs for addr in named if item.base <= addr < item.base + item.nbytes), None)


def _of_block(view: ProcessView, addr: int) -> GoneMemory | None:
    place = view.space.describe(addr)
    storage = place.storage if place.kind == "device-memory" else None
    if storage is None or storage.state != "freed":
        return None
    made, freed = _at(storage.allocated_by), _at(storage.freed_by)
    lines = "".join(f", {verb} at {line}" for verb, line in (("allocated", made), ("freed", freed)) if line)
    what = f"the tensor that {made} allocates" if made else "the tensor"
    return GoneMemory(
        f"{hex_addr(addr)}, the address of Xid 31, lies in a freed block of {size_words(storage.nbytes)}{lines}",
        f"If a kernel was to use {what}, keep a reference to it until that kernel has run: its memory had been freed. "
        "Otherwise an offset or an index leads there.",
    )


def _at(site: CallSite | None) -> str | None:
    frame = site.place if site is not None else None
    return place_words(python_frame(frame)) if frame is not None else None
