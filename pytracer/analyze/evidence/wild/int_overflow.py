"""An index that passed 2**31 in a C int: the address lies before a buffer that is larger than that.

`y * width + x` in int wraps to a negative number; 2**32 elements (or bytes) behind the address lies what was meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from pytracer._text import size_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.own_code.arrays import array_words
from pytracer.analyze.evidence.own_code.passed import names_passed
from pytracer.analyze.evidence.own_code.passed_memory import held_tensor
from pytracer.analyze.evidence.wild.address import was_large_block
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, PythonFrame

_WRAP = 1 << 32
_ITEM_BYTES = {
    **dict.fromkeys(("uint8", "int8", "bool"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
}


@dataclass(frozen=True)
class IntOverflow(Explanation):
    """`buffer`: `` `self.pixels` [48000, 64000] uint8 ``; `product`: `` `w` * `h` = 3072000000 ``."""

    verdict_class = "out-of-bounds"
    buffer: str
    function: str
    before: int
    product: str | None

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely" if self.product is not None and not was_large_block(view) else "possible"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return (
            f": {size_words(self.before)} before {self.buffer}, where an index beyond 2**31 leads that was computed in "
            "a C int"
        )

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        reason = f": {self.product} passes 2**31" if self.product is not None else ""
        return (
            f"Compute the index in 64 bits in {self.function}, by size_t or a cast of the first factor{reason}. "
            f"In a C int it wraps to a negative number; {self.buffer} is larger than that."
        )


def int_overflow(view: ProcessView) -> IntOverflow | None:
    """None unless the address and a buffer of the program's innermost frame fit."""
    frame, function, place = next(iter(program_frames(view)), None), own_function(view), view.place
    if frame is None or function is None or place is None:
        return None
    found = [
        (words, data - place.addr)
        for words, data, nbytes, item in _buffers(view, frame)
        for wrap in sorted({_WRAP, item * _WRAP})
        if data - wrap // 2 <= place.addr < data and 0 <= place.addr + wrap - data < nbytes
    ]
    if len({words for words, _ in found}) != 1:
        return None
    words, before = found[0]
    return IntOverflow(words, function.words, before, _product(view, frame))


def _buffers(view: ProcessView, frame: PythonFrame) -> Iterator[tuple[str, int, int, int]]:
    """Arrays and tensors of the frame: in words, address, bytes, bytes of an element."""
    crash, at = view.crash, (frame.file, frame.function, frame.line)
    for array in crash.arrays if crash is not None else ():
        item = _ITEM_BYTES.get(array.dtype or "")
        steps = [step * (size - 1) for step, size in zip(array.strides, array.shape, strict=False)]
        if item and min(steps, default=0) >= 0 and (array.frame.file, array.frame.function, array.frame.line) == at:
            yield array_words(array), array.data, sum(steps) + item, item
    for holder in crash.holders if crash is not None else ():
        place = holder.frame
        if place is None or holder.kind != "local" or (place.file, place.function, place.line) != at:
            continue
        tensor, storage = held_tensor(view, holder.expression), view.space.live_around(holder.base)
        item = tensor.element_bytes if tensor is not None else None
        if tensor is not None and storage is not None and item:
            yield f"`{holder.expression}` {shape_words(tensor)}", storage.base, storage.nbytes, item


def _product(view: ProcessView, frame: PythonFrame) -> str | None:
    """Of two numbers that the call passes; None where none passes 2**31, or several do."""
    tree = syntax_tree(view.process.snapshot, frame)
    names = names_passed(view, tree, frame.line) if tree is not None and frame.line is not None else None
    crash, at = view.crash, (frame.file, frame.function, frame.line)
    held = {
        item.expression: item.value
        for item in (crash.numbers if crash is not None else ())
        if item.expression in (names or ()) and (item.frame.file, item.frame.function, item.frame.line) == at
    }
    products = [(one, two) for one, two in combinations(held, 2) if held[one] * held[two] >= _WRAP // 2]
    if len(products) != 1:
        return None
    one, two = products[0]
    return f"`{one}` * `{two}` = {held[one] * held[two]}"
