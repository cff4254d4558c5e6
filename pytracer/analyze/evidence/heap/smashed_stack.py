"""Local arrays that native code may have written past: those of the function that found its stack overwritten."""

from __future__ import annotations

import ast

from pytracer._text import function_words, list_words
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.aborts import PLUMBING
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.own_code.native_source import LocalArray, local_arrays
from pytracer.analyze.evidence.own_code.passed import passed
from pytracer.analyze.evidence.own_code.passed_memory import held_tensor
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_MOST = 3


def smashed_advice(view: ProcessView) -> str | None:
    """With the arrays by name; None where the function's source is not here, or it declares none."""
    frame = next((item for item in own_frames(view) if _is_callers(item)), None)
    arrays = local_arrays(frame) if frame is not None else []
    if frame is None or not arrays:
        return None
    name = function_words(frame.function or "")
    listed = list_words([item.words for item in arrays], _MOST)
    return (
        f"{name}(), or what it called, wrote past a local variable of it, such as {listed}{_given(view, arrays)}. "
        "Check the length before the write (snprintf, a bound on the count), or take the memory from the heap; "
        "-fsanitize=address names the write."
    )


def _is_callers(frame: NativeFrame) -> bool:
    return frame.function is not None and not any(part in frame.function for part in PLUMBING)


def _given(view: ProcessView, arrays: list[LocalArray]) -> str:
    """What the line passes that may be too much: texts for an array of characters, numbers and sizes for others."""
    line = line_words(view)
    if all("char" in item.type for item in arrays):
        texts = _texts(view)
        return f": the texts that {line} passes, {list_words(texts)}, may be too long" if texts else ""
    sizes = [item.size for item in arrays if item.size is not None]
    if not sizes:
        return ""
    found = passed(view)
    numbers = (
        [words for words, value in zip(found.numbers, found.values, strict=False) if value > min(sizes)]
        if found is not None and len(found.numbers) == len(found.values)
        else []
    )
    shapes = [
        f"`{name}` {shape_words(item)}"
        for name in _names(view)
        if (item := held_tensor(view, name)) is not None and max(item.sizes, default=0) > min(sizes)
    ]
    more = list_words([*numbers, *shapes], _MOST)
    return f": {line} passes {more}, of more than {min(sizes)}" if more else ""


def _names(view: ProcessView) -> list[str]:
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    return names_of_line(tree, frame.line) if tree is not None and frame is not None and frame.line is not None else []


def _texts(view: ProcessView) -> list[str]:
    """`` `patient` `` of `patient.encode()` and `c_char_p(patient)`."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    found: list[str] = []
    for node in calls_on(tree, frame.line) if tree is not None and frame is not None and frame.line is not None else ():
        if called_name(node) == "encode" and isinstance(node.func, ast.Attribute):
            value = node.func.value
            text = isinstance(value, ast.Call) and called_name(value) in ("str", "fspath") and value.args
            name = variable(value.args[0] if isinstance(value, ast.Call) and text else value)
        elif called_name(node) == "c_char_p" and node.args:
            name = variable(node.args[0])
        else:
            continue
        found += [f"`{name}`"] if name is not None else []
    return list(dict.fromkeys(found))
