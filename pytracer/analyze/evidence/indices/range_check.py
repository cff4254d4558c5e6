"""An index that std::vector::at() and the like refused: its number is in the text, and maybe in a tensor."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.own_code.passed_memory import held_tensor
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_RANGE = Pattern(r"__n \(which is (\d+)\) >= this->size\(\) \(which is (\d+)\)")
_NEGATIVE = 1 << 63
_MOST = 3


def range_advice(view: ProcessView) -> str | None:
    """None where the exception is another one, or its numbers are not in the text."""
    exception = cpp_exception(view)
    match = _RANGE.search(exception.what or "") if exception is not None and exception.type else None
    if match is None:
        return None
    index, size = int(match[1]), int(match[2])
    number = index - (1 << 64) if index >= _NEGATIVE else index
    function = own_function(view)
    where = f" in {function.words}" if function is not None else ""
    given = list_words(_tensors(view, number), _MOST)
    frame = next(iter(program_frames(view)), None)
    line = f"line {frame.line} passes" if frame is not None else "it is given"
    source = f": {given}, which {line}" if given else f": check the indices that {line}"
    return (
        f"The index {number} is outside of a container of {size}{where}{source}. Check or clamp them before; no "
        "exception may leave a thread, a noexcept function or C code that ctypes calls."
    )


def _tensors(view: ProcessView, number: int) -> list[str]:
    """Integer tensors of the line of which that number is the smallest or the largest value."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return []
    held = ((name, held_tensor(view, name)) for name in names_of_line(tree, frame.line))
    return [
        f"`{name}` {shape_words(item)} has values from {item.minimum} to {item.maximum}"
        for name, item in held
        if item is not None and number in (item.minimum, item.maximum)
    ]
