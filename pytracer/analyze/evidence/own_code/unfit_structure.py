"""A field of a ctypes.Structure that ctypes followed as a pointer, and that led to text, where no C struct is known.

A pointer that is text is read where C has characters, or a pointer to characters: from a field on that is missing in
Python, or of another size, all that follow are read at another place.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.ctypes_access import CtypesRead
from pytracer.analyze.evidence.own_code.misplaced_field import declared_structures
from pytracer.analyze.evidence.own_code.pointer_content import text_in_pointer
from pytracer.analyze.evidence.own_code.struct_fields import Field, Structure, ctypes_structures, same_structure
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.view import ProcessView


class UnfitStructure(msgspec.Struct, frozen=True):
    """`field` of `python`, declared in `file`, is the pointer; `element`: it leads to the pointer that is `text`."""

    python: Structure
    file: str
    field: Field
    element: bool
    text: str

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the structure is declared."""
        return ((self.file, self.python.line),)

    def summary(self, view: ProcessView) -> str:
        """For the headline."""
        own = f"`{self.field.name}` of {self.python.name} ({place_of(view, self.file, self.python.line)})"
        if self.element:
            return f"an element of {own} is no address; the class may not fit the library's struct"
        return f"{own} is no address; the class most likely does not fit the library's struct"

    def advice(self, view: ProcessView) -> str:
        """What to compare."""
        at = place_of(view, self.file, self.python.line)
        names = [item.name for item in self.python.fields]
        number = names.index(self.field.name)
        before = f", above all what is before `{self.field.name}`" if number else ""
        compare = (
            f"Compare `_fields_` of {self.python.name} ({at}) with the struct in the header of the library's version, "
            f"member by member{before}: the order, number and types must agree."
        )
        if not self.element:
            return (
                f"{compare} C may have characters there: an array (`ctypes.c_char * n`, no pointer), or another "
                "member. If they agree, the struct was freed or written over before."
            )
        return (
            f"{compare} One that is missing moves all behind it: `{self.field.name}` then leads to the text of another "
            "one. If they agree, what it points at was freed or written over before."
        )


def unfit_structure(view: ProcessView) -> UnfitStructure | None:
    """None where the pointer is no text, where the C struct is known, or where several structures have the field."""
    text, read = text_in_pointer(view), CtypesRead.of(view)
    if text is None or read is None:
        return None
    trees = program_files(view.process.snapshot, program_frames(view))
    found = [
        (file, item, field)
        for file, tree in trees.items()
        for _, item in ctypes_structures(tree)
        for field in item.fields
        if field.name in read.names and (_is_text(field) or (field.pointer and field.name in read.elements))
    ]
    if len(found) != 1:
        return None
    file, python, field = found[0]
    if same_structure(python, [*declared_structures(view, trees)]) is not None:
        return None
    return UnfitStructure(python, file, field, not _is_text(field), text)


def _is_text(field: Field) -> bool:
    """Whether ctypes follows it where the field itself is read."""
    return field.type.endswith(("c_char_p", "c_wchar_p"))
