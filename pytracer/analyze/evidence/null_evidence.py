"""What was null, as evidence: variables and arguments without memory, and another thread that was refused there."""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.evidence.lifetime.variables import without_memory_words
from pytracer.analyze.evidence.operators.operator import OperatorTensor, tensor_words
from pytracer.decode.types.snapshot import AlsoCrashed, Holder
from pytracer.report.job import Evidence


def empty_evidence(item: Holder) -> Evidence:
    """A variable with a tensor that has no memory."""
    return Evidence("tensor", without_memory_words(item), tensor=item.expression, count=item.elements, nbytes=0)


def argument_evidence(item: OperatorTensor) -> Evidence:
    """A tensor without memory that the operator was given."""
    words = f"among the tensors of the operator: {tensor_words(item)}"
    return Evidence("tensor", words, tensor=item.name, count=item.item.elements, nbytes=0)


def sibling_evidence(sibling: AlsoCrashed) -> Evidence:
    """Each thread of a parallel region begins at its own part of a tensor, one of them at the beginning: null."""
    addr = hex_addr(sibling.fault_addr)
    words = f"thread {sibling.tid} was refused at {addr} in the same loop: this thread's part begins behind it"
    return Evidence("thread-state", words, tid=sibling.tid, addr=addr)
