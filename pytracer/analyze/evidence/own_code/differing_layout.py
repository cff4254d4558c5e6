"""A structure that Python and C lay out differently: one of them reads its fields from other bytes.

A ctypes.Structure, or a structured NumPy dtype, against the C struct with the same names, by their sources. Only what
the failing function reads counts, or the failing line of Python where ctypes reads for it: a field at another byte or
of another size, and elements of an array of another size.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import msgspec

from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.ctypes_access import CtypesRead
from pytracer.analyze.evidence.own_code.misplaced_field import declared_structures
from pytracer.analyze.evidence.own_code.native_source import lines_from, own_source
from pytracer.analyze.evidence.own_code.numpy_layouts import numpy_layouts
from pytracer.analyze.evidence.own_code.struct_fields import (
    Field,
    Structure,
    ctypes_structures,
    differences,
    has_same_layout,
    missing_field,
    packing_advice,
    same_structure,
)
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.view import ProcessView

_MOST_LINES = 400


class DifferingLayout(msgspec.Struct, frozen=True):
    """`python`, declared in `file`, is not laid out as `declared`. `field`: of both; None: their sizes differ.

    `aligned`: what a NumPy dtype would be with align=True; None of a ctypes.Structure.
    """

    python: Structure
    file: str
    declared: Structure
    field: tuple[Field, Field] | None
    aligned: Structure | None

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the structure is declared."""
        return ((self.file, self.python.line),)

    def summary(self, view: ProcessView) -> str:
        """`` `token` of Route (line 21) is at byte 4, and at byte 8 of the C struct Route (route.c:3) ``."""
        own = f"{self.python.name} ({place_of(view, self.file, self.python.line)})"
        struct = f"the C struct {self.declared.name} ({self.declared.place})"
        if self.field is None:
            return f"an element of {own} has {self.python.nbytes} bytes, and {struct} has {self.declared.nbytes}"
        here, there = self.field
        names = {item.name for item in self.python.fields}
        instead = self.declared.at(here.offset) if self.aligned is None else None
        if instead is not None and instead.offset == here.offset and instead.name not in names:
            return (
                f"`{here.name}` of {own} is at byte {here.offset}, where {struct} has `{instead.name}`, which the "
                "class lacks"
            )
        if here.offset != there.offset:
            return f"`{here.name}` of {own} is at byte {here.offset}, and at byte {there.offset} of {struct}"
        return f"`{here.name}` of {own} has {here.nbytes} bytes, and {there.nbytes} in {struct}"

    def advice(self, view: ProcessView) -> str:
        """What to declare."""
        at = place_of(view, self.file, self.python.line)
        struct = f"the C struct {self.declared.name} ({self.declared.place})"
        if self.aligned is not None and has_same_layout(self.aligned, self.declared):
            return (
                f"Add `align=True` to the dtype at {at} (`np.dtype([...], align=True)`): C aligns each field of "
                f"{self.declared.name} and the whole struct, and NumPy leaves no room between fields without it."
            )
        packing = packing_advice(self.python, self.declared, at) if self.aligned is None else None
        if packing is not None:
            return packing
        what = f"`_fields_` of {self.python.name}" if self.aligned is None else f"the fields of {self.python.name}"
        order = ", ".join(item.name for item in self.declared.fields)
        other = "".join(f" {item}" for item in differences(self.python, self.declared))
        first = missing_field(self.python, self.declared) if what.startswith("`_fields_`") else None
        if first is not None:
            other = f"{other} {first}"
        return f"Declare {what} ({at}) in the order and with the types of {struct}: `{order}`.{other}"


def differing_layout(view: ProcessView) -> DifferingLayout | None:
    """None where the failing function or line reads no such field, or several structures differ."""
    text = _function(view)
    line = CtypesRead.of(view) if text is None else None
    if text is None and line is None:
        return None
    trees = program_files(view.process.snapshot, program_frames(view))
    pairs: list[tuple[str, Structure, Structure | None]] = []
    for file, tree in trees.items():
        pairs += [(file, item, None) for _, item in ctypes_structures(tree)]
        pairs += [(file, item, aligned) for item, aligned in numpy_layouts(tree)]
    declared = [*declared_structures(view, trees)] if pairs else []
    found = []
    for file, python, aligned in pairs:
        other = same_structure(python, declared)
        if other is None or has_same_layout(python, other):
            continue
        if line is not None:
            field, steps = next(_moved(python, other, line.names), None), line.steps_over(python)
        elif text is not None and re.search(rf"\b{re.escape(other.name)}\b", text) is not None:
            field, steps = next(_moved(python, other, _names_in(other, text)), None), _is_array(other, text)
        else:
            continue
        if field is not None or (python.nbytes != other.nbytes and steps):
            found.append(DifferingLayout(python, file, other, field, aligned))
    return found[0] if len(found) == 1 else None


def _moved(python: Structure, declared: Structure, names: Collection[str]) -> Iterator[tuple[Field, Field]]:
    """Of the fields that are read, those which the two have at other bytes."""
    own = {item.name: item for item in python.fields}
    for item in declared.fields:
        here = own.get(item.name)
        if here is not None and (here.offset, here.nbytes) != (item.offset, item.nbytes) and item.name in names:
            yield here, item


def _names_in(declared: Structure, text: str) -> set[str]:
    """The fields that a function of C reads."""
    names = (item.name for item in declared.fields)
    return {name for name in names if re.search(rf"(?:->|\.)\s*{re.escape(name)}\b", text)}


def _is_array(declared: Structure, text: str) -> bool:
    """Whether the function goes through several of them: `edges[i]`, of `const struct edge *edges`."""
    names = re.findall(rf"\b{re.escape(declared.name)}\s*(?:const\s*)?\*\s*(?:const\s+)?(\w+)", text)
    return any(re.search(rf"\b{re.escape(name)}\s*(?:\[|\+)", text) for name in names)


def _function(view: ProcessView) -> str | None:
    """The text of the program's innermost native function."""
    frame = next((item for item in own_frames(view) if is_own_frame(item) and item.function), None)
    source = own_source(frame) if frame is not None else None
    if frame is None or source is None:
        return None
    return "\n".join(text for _, text in lines_from(frame, source[0], _MOST_LINES)) or None
