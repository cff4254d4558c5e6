"""What was null, as evidence: variables and arguments without memory, and another thread that was refused there."""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.evidence.lifetime.meta_tensors import meta_tensors
from pytracer.analyze.evidence.lifetime.variables import without_memory_words
from pytracer.analyze.evidence.operators.operator import OperatorTensor, tensor_words
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import AlsoCrashed, Holder
from pytracer.report.job import Evidence


def empty_evidence(view: ProcessView, item: Holder) -> Evidence:
    """A variable with a tensor that has no memory."""
    meta = meta_tensors(view, [item])
    words = meta.summary if meta is not None else without_memory_words(item)
    return Evidence("tensor", words, tensor=item.expression, count=item.elements, nbytes=0)


def argument_evidence(item: OperatorTensor) -> Evidence:
    """A tensor without memory that the operator was given."""
    words = f"among the tensors of the operator: {tensor_words(item)}"
    return Evidence("tensor", words, tensor=item.name, count=item.item.elements, nbytes=0)


def sibling_evidence(sibling: AlsoCrashed) -> Evidence:
    """Each thread of a parallel region begins at its own part of a tensor, one of them at the beginning: null."""
    addr = hex_addr(sibling.fault_addr)
    words = f"thread {sibling.tid} was refused at {addr} in the same loop: this thread's part begins behind it"
    return Evidence("thread-state", words, tid=sibling.tid, addr=addr)
