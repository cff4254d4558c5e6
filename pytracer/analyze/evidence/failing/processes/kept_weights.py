"""A weight that FSDP gathered for a forward() or backward(), kept by the program and used when FSDP has freed it."""

from __future__ import annotations

import ast
import math

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import parts, walk_in_order
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import is_sharded
from pytracer.analyze.evidence.lifetime.gathered_weights import GatheredWeight, kept_weight
from pytracer.decode.types.journal import Unit

_MESSAGE = Pattern(
    r"setStorage: sizes \[(?P<sizes>[\d, ]+)\].* out of bounds for storage of size 0"
    r"|non-zero number of elements, but its data is not allocated"
)


def freed_weight(at: FailingLine) -> str | None:
    """What to do about it."""
    found = _found(at)
    return found.advice if found is not None else None


def freed_weight_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    return found.summary if found is not None else None


def _found(at: FailingLine) -> GatheredWeight | None:
    match = _MESSAGE.search(at.message)
    if match is None or at.node is None or not at.snapshot.recorded(Unit):
        return None
    read = {
        ast.unparse(item): item
        for part in parts(at.node)
        for item in walk_in_order(part)
        if isinstance(item, (ast.Name, ast.Attribute))
    }
    told = match["sizes"]
    found = []
    for name, node in read.items():
        if is_sharded(at.values.get(name)):
            continue
        shape = at.shape(node)
        sizes = [int(size) for size in told.split(",")] if told else shape.sizes if shape is not None else ()
        kept = kept_weight(at.files, at.slice, [name], math.prod(sizes), at.snapshot) if sizes else None
        if kept is not None and kept.lines:
            found.append(kept)
    return found[0] if len({item.lines for item in found}) == 1 else None
