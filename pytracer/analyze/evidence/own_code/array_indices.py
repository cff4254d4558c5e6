"""What a line reads of NumPy's arrays by indices that are in range: the numbers that it passes are not at fault."""

from __future__ import annotations

import ast

from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import is_numpy
from pytracer.analyze.evidence.own_code.arrays import array_words, line_arrays
from pytracer.analyze.evidence.syntax.calls import calls_on, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray


def in_range_advice(view: ProcessView) -> str | None:
    """Where NumPy is given but parts of one array, and each index that the line has is recorded, and in range."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    calls = calls_on(tree, frame.line)
    passed = [item for call in calls for item in passed_values(call) if item not in calls]
    read = [item for item in passed if isinstance(item, ast.Subscript)]
    arrays = {item.expression: item for item in line_arrays(view)}
    held = {
        item.expression: item.value
        for item in (view.crash.numbers if view.crash is not None else ())
        if python_frame(item.frame) == frame
    }
    names = {variable(item.value) or "" for item in read}
    array = arrays.get(names.pop()) if len(names) == 1 and len(read) == len(passed) else None
    indices = [_indices(item, array, held) for item in read] if array is not None else []
    if array is None or any(item is None for item in indices) or not is_numpy(view):
        return None
    words = list(dict.fromkeys(word for item in indices for word in item or ()))
    be = "is" if len(words) == 1 else "are"
    return (
        f"Compare the shape and strides of {array_words(array)} with the memory that it is made of, and look for what "
        f"gives that back: {list_words(words)}, by which {line_words(view)} indexes it, {be} in range."
    )


def _indices(node: ast.Subscript, array: HeldArray, held: dict[str, int]) -> list[str] | None:
    """`` `row` = 0 `` of each; None where one is not known, or out of range."""
    found = []
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part, size in zip(parts, array.shape, strict=False):
        value = held.get(variable(part) or "")
        if value is None or not -size <= value < size:
            return None
        found.append(f"`{variable(part)}` = {value}")
    return found if len(parts) <= len(array.shape) else None
