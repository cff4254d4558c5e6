"""A C function, called by ctypes, that used a small number as a pointer: ctypes and C do not agree on its arguments.

ctypes checks neither the order nor the number of a structure's fields, nor of the arguments where `argtypes` is not
set. A field that is missing moves all that follow: C then reads a length or a flag where it has a pointer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pytracer._text import list_words
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import NativeFunction, is_own_frame, own_function
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.passed import passed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_STRUCTURES = ("Structure", "Union", "BigEndianStructure", "LittleEndianStructure")
_BETWEEN = 6  # frames of libffi and _ctypes
_MOST_STRUCTURES = 2


@dataclass(frozen=True)
class NumberAsPointer:
    """`function` took `value` for a pointer; `names`: of the numbers that the line passes, those with that value."""

    function: NativeFunction
    value: int
    names: tuple[str, ...]

    @property
    def summary(self) -> str:
        """For the headline."""
        return f"the number {self.value} was used as a pointer"


def number_as_pointer(view: ProcessView) -> NumberAsPointer | None:
    """None where ctypes did not call the function itself, or the pointer is no small number."""
    place, instruction, function = view.place, view.instruction, own_function(view)
    if place is None or place.kind != "near-null" or instruction is None or function is None:
        return None
    value = instruction.base_value
    if value is None or not 0 < value < NEAR_NULL_BYTES or not _is_called_by_ctypes(view):
        return None
    found = passed(view)
    names = tuple(item for item in (found.numbers if found is not None else ()) if item.endswith(f" = {value}"))
    return NumberAsPointer(function, value, names)


def _is_called_by_ctypes(view: ProcessView) -> bool:
    """Whether all frames up to libffi are of the program's library."""
    frames = own_frames(view)
    place = next((at for at, frame in enumerate(frames) if image_name(frame.image).startswith("libffi.")), 0)
    called = frames[:place]
    ctypes = any(image_name(frame.image).startswith("_ctypes.") for frame in frames[place : place + _BETWEEN])
    return ctypes and bool(called) and all(is_own_frame(frame) for frame in called)


def declaration_advice(view: ProcessView, found: NumberAsPointer) -> str:
    """What to compare."""
    name, line = found.function.name.rpartition("::")[2], line_words(view)
    if found.names:
        return (
            f"Compare the arguments of {name}() at {line}, and its argtypes, with its C declaration: "
            f"{list_words(found.names)} was used as a pointer. The order, number and types of both must agree."
        )
    structures = list(_structures(view))
    if 0 < len(structures) <= _MOST_STRUCTURES:
        listed = list_words([f"`{text}` (line {number})" for text, number in structures])
        return (
            f"Compare the fields of {listed} with the C struct, and the argtypes of {name}() with its C declaration: "
            f"their order, number and types must agree. {found.value} was read where C has a pointer, as it is where a "
            "field or an argument is missing."
        )
    return (
        f"Compare the arguments of {name}() at {line}, its argtypes and the fields of each ctypes.Structure with the C "
        f"declarations: their order, number and types must agree. {found.value} was read where C has a pointer."
    )


def _structures(view: ProcessView) -> Iterator[tuple[str, int]]:
    """Classes of the crashed line's file that are structures of ctypes, each with its line."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ClassDef) and any(_last_name(base) in _STRUCTURES for base in node.bases):
            yield node.name, node.lineno


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
