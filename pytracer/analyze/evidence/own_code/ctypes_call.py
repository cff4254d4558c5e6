"""A C function, called by ctypes, that used a small number as a pointer: ctypes and C do not agree on its arguments.

ctypes checks neither the order nor the number of a structure's fields, nor of the arguments where `argtypes` is not
set. A field that is missing moves all that follow: C then reads a length or a flag where it has a pointer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import NativeFunction, is_own_frame, own_function
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.misplaced_field import MisplacedField, agreeing_structures, misplaced_field
from pytracer.analyze.evidence.own_code.passed import passed
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_STRUCTURES = ("Structure", "Union", "BigEndianStructure", "LittleEndianStructure")
_BETWEEN = 6  # frames of libffi and _ctypes
_MOST_STRUCTURES = 2
_MOST = 1 << 32  # larger ones are two numbers, as a rule


class NumberAsPointer(msgspec.Struct, frozen=True):
    """`function` took `value` for a pointer; `names`: of the numbers that the line passes, those with that value.

    `field`: of a structure that has it. `called`: it was taken for the address of a function.
    """

    function: NativeFunction
    value: int
    names: tuple[str, ...]
    field: MisplacedField | None = None
    called: bool = False

    def summary(self, view: ProcessView) -> str:
        """For the headline."""
        used = f"the number {self.value} was used as a {'function ' if self.called else ''}pointer"
        if self.field is not None:
            return (
                self.field.summary(view)
                if self.called or self.value >= _MOST
                else f"{used}: {self.field.summary(view)}"
            )
        if self.called:
            return f"{list_words(self.names)}, which the line passes, is no function" if self.names else ""
        return used


def number_as_pointer(view: ProcessView) -> NumberAsPointer | None:
    """None where ctypes did not call the function itself, or the pointer is no small number."""
    function, value, called = own_function(view), *_used(view)
    if function is None or value is None or not _is_called_by_ctypes(view, called=called):
        return None
    found = passed(view)
    names = tuple(item for item in (found.numbers if found is not None else ()) if item.endswith(f" = {value}"))
    field = misplaced_field(view, value, called=called) if not names else None
    if value >= NEAR_NULL_BYTES and not names and field is None:
        return None
    return NumberAsPointer(function, value, names, field, called)


def is_known_number(view: ProcessView) -> bool:
    """Whether what was used as a pointer is a field of the program's that lies where C has one."""
    found = number_as_pointer(view)
    return found is not None and found.field is not None


def _used(view: ProcessView) -> tuple[int | None, bool]:
    """The number, and whether it was called; None of an address that may be one."""
    place, instruction, jump = view.place, view.instruction, wild_jump(view)
    if place is None or place.kind not in ("near-null", "unmapped", "non-canonical"):
        return None, False
    if jump is not None:
        return (jump.target if jump.target and jump.how != "return" else None), True
    return (instruction.base_value or None if instruction is not None else None), False


def _is_called_by_ctypes(view: ProcessView, *, called: bool) -> bool:
    """Whether all frames up to libffi are of the program's library; `called`: but the innermost, which is no code."""
    frames = own_frames(view)[called:]
    place = next((at for at, frame in enumerate(frames) if image_name(frame.image).startswith("libffi.")), 0)
    own = frames[:place]
    ctypes = any(image_name(frame.image).startswith("_ctypes.") for frame in frames[place : place + _BETWEEN])
    return ctypes and bool(own) and all(is_own_frame(frame) for frame in own)


def declaration_advice(view: ProcessView, found: NumberAsPointer) -> str:
    """What to compare."""
    name, line = found.function.name.rpartition("::")[2], line_words(view)
    if found.field is not None:
        return found.field.advice(view)
    if found.names:
        return (
            f"Compare the arguments of {name}() at {line}, and its argtypes, with its C declaration: "
            f"{list_words(found.names)} was used as a pointer. The order, number and types of both must agree."
        )
    structures = [*unlike_structures(view)]
    if 0 < len(structures) <= _MOST_STRUCTURES:
        listed = list_words([f"`{text}` (line {number})" for text, number in structures])
        return (
            f"Compare the fields of {listed} with the C struct, and the argtypes of {name}() with its C declaration: "
            f"their order, number and types must agree. {found.value} was read where C has a pointer, as it is where a "
            "field or an argument is missing."
        )
    return (
        f"Compare the arguments of {name}() at {line}, its argtypes and the fields of each ctypes.Structure with the C "
        f"declarations: their order, number and types must agree. {found.value} was read where C has a pointer. Where "
        "these agree, and earlier calls worked, it lay beside an array, to which a wrong index led, or in memory that "
        "had been freed or overwritten."
    )


def unlike_structures(view: ProcessView) -> Iterator[tuple[str, int]]:
    """Classes of the crashed line's file that are structures of ctypes, each with its line.

    Not those whose fields are known to lie where the C struct has them.
    """
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    alike = agreeing_structures(view)
    for node in nodes_of(tree) if tree is not None else ():
        known = isinstance(node, ast.ClassDef) and any(_last_name(base) in _STRUCTURES for base in node.bases)
        if isinstance(node, ast.ClassDef) and known and node.name not in alike:
            yield node.name, node.lineno


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
