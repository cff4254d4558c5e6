"""A field of a ctypes.Structure that lies where the C struct has a pointer: C then uses a number as an address.

ctypes lays the fields out in the order that the program lists them, and checks them against nothing.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, takewhile

import msgspec
from msgspec import structs

from pytracer._text import list_words
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.source_files import source_levels
from pytracer.analyze.evidence.own_code.struct_fields import (
    POINTER_BYTES,
    Field,
    Structure,
    c_structures,
    ctypes_structures,
    differences,
    packing_advice,
    same_structure,
)
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, PythonFrame

_MOST_VALUES = 8  # of a field
_LEAST_TELLING = 4096  # less may be null plus the offset of a member


class MisplacedField(msgspec.Struct, frozen=True):
    """`fields` of `python`, a structure in `file`, have the value that C used as a pointer; two have half of it each.

    `pointer` of `declared`: what C has there; None where its declaration is not known.
    """

    python: Structure
    file: str | None
    fields: tuple[Field, ...]
    declared: Structure | None
    pointer: Field | None

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the structure is declared."""
        return ((self.file, self.python.line),)

    def summary(self, view: ProcessView) -> str:
        """For the headline."""
        own = f"{self._names} of {self.python.name} ({place_of(view, self.file, self.python.line)})"
        if self.declared is None or self.pointer is None:
            return f"that is the value of {own}"
        what = "function pointer" if self.pointer.function else "pointer"
        there = f"the C struct {self.declared.name} ({self.declared.place})"
        verb = "is" if len(self.fields) == 1 else "are"
        return f"{own} {verb} where {there} has the {what} `{self.pointer.name}`"

    @property
    def _names(self) -> str:
        return list_words([f"`{item.name}`" for item in self.fields])

    def advice(self, view: ProcessView) -> str:
        """What to declare."""
        at = place_of(view, self.file, self.python.line)
        if self.declared is None:
            return (
                f"Compare `_fields_` of {self.python.name} ({at}) with the C struct in the header of the library's "
                "version: the order, number and types must agree. C reads a pointer where the class has "
                f"{self._names} (byte {self.fields[0].offset})."
            )
        packing = packing_advice(self.python, self.declared, at)
        if packing is not None:
            return packing
        order = ", ".join(item.name for item in self.declared.fields)
        other = "".join(f" {item}" for item in differences(self.python, self.declared))
        return (
            f"Declare `_fields_` of {self.python.name} ({at}) in the order of the C struct {self.declared.name} "
            f"({self.declared.place}): `{order}`.{other} ctypes does not compare them with C."
        )


class _Given(msgspec.Struct, frozen=True):
    """A line of the program gives `field` of `owner` a value; None where that is not known."""

    owner: Structure
    field: Field
    value: int | None


def misplaced_field(view: ProcessView, value: int, *, called: bool) -> MisplacedField | None:
    """Of a value that C used as an address. `called`: as that of a function."""
    trees = program_files(view.process.snapshot, program_frames(view))
    structures = [(file, node, item) for file, tree in trees.items() for node, item in ctypes_structures(tree)]
    if not structures:
        return None
    given = [one for _, node, item in structures for one in _values(view, trees, node, item)]
    declared = list(declared_structures(view, trees))
    found = []
    for file, _, item in structures:
        other = same_structure(item, declared)
        for field, pointer in _pairs(view, item, other, called=called) if other is not None else ():
            fields = _with_value(item, field, pointer.offset, [one for one in given if one.owner is item], value)
            if fields:
                found.append(MisplacedField(item, file, fields, other, pointer))
    if found or not (called or value % POINTER_BYTES or value >= _LEAST_TELLING):
        return found[0] if len(found) == 1 else None
    valued = {(one.owner.name, one.field.name): one for one in given if one.value == value}
    one = next(iter(valued.values())) if len(valued) == 1 else None
    if one is None or same_structure(one.owner, declared) is not None:
        return None  # both declarations agree there
    file = next(file for file, _, item in structures if item is one.owner)
    return MisplacedField(one.owner, file, (one.field,), None, None)


def _with_value(python: Structure, first: Field, offset: int, given: Sequence[_Given], value: int) -> tuple[Field, ...]:
    """The fields whose bytes, from `offset` on, are those of the value; nothing where they are known to be others.

    What no line sets is 0. `first`: the field that is there; of one that is not known, it alone may be a small number.
    """
    end = offset + POINTER_BYTES
    there = [item for item in python.fields if item.offset < end and offset < item.offset + item.nbytes]
    known = [{one.value for one in given if one.field is field} for field in there]
    choices = [sorted(number for number in numbers if number is not None)[:_MOST_VALUES] or [0] for numbers in known]
    for numbers in product(*choices):
        words = [_word(field, number, offset) for field, number in zip(there, numbers, strict=True)]
        if sum(words) == value:
            return tuple(field for field, word in zip(there, words, strict=True) if word)
    is_known = any(one.field is first for one in given) or all(numbers and None not in numbers for numbers in known)
    return () if is_known or value >= 1 << 32 else (first,)


def _word(field: Field, number: int, offset: int) -> int:
    """What a field adds to the word of 8 bytes at `offset`."""
    whole = number % (1 << 8 * field.nbytes)
    place = 8 * (field.offset - offset)
    return (whole << place if place >= 0 else whole >> -place) % (1 << 8 * POINTER_BYTES)


def agreeing_structures(view: ProcessView) -> set[str]:
    """Classes whose fields all lie where the C struct has those of the same names."""
    trees = program_files(view.process.snapshot, program_frames(view))
    structures = [item for tree in trees.values() for _, item in ctypes_structures(tree)]
    declared = list(declared_structures(view, trees)) if structures else []
    found = set()
    for item in structures:
        other = same_structure(item, declared)
        places = {(field.name, field.offset, field.nbytes) for field in other.fields} if other is not None else set()
        if other is not None and places == {(field.name, field.offset, field.nbytes) for field in item.fields}:
            found.add(item.name)
    return found


def _pairs(view: ProcessView, python: Structure, declared: Structure, *, called: bool) -> list[tuple[Field, Field]]:
    """The pointers of C that are no pointers in Python; of several, those that the running line reads."""
    found = [
        (field, pointer)
        for pointer in declared.fields
        if pointer.pointer and (pointer.function or not called)
        if (field := python.at(pointer.offset)) is not None and not field.pointer
    ]
    text = _running(view)
    read = [item for item in found if re.search(rf"(?:->|\.)\s*{re.escape(item[1].name)}\b", text)]
    return read or found


def _running(view: ProcessView) -> str:
    """The line of the program's innermost native function."""
    frame = next((item for item in own_frames(view) if is_own_frame(item) and item.function), None)
    source = own_source(frame) if frame is not None else None
    if source is None or source[0].line is None:
        return ""
    return source[1][source[0].line - 1]


def declared_structures(view: ProcessView, trees: Mapping[str, ast.Module]) -> Iterator[Structure]:
    """Of the sources beside the program's libraries and its files, and what these lack of C in the program's text."""
    crash = view.crash
    own = {item.path for item in (crash.images if crash is not None else ()) if item.path and is_own_path(item.path)}
    folders = sorted({os.path.dirname(frame.file) for frame in program_frames(view) if frame.file})
    libraries = [path for path in sorted(own) if is_own_frame(NativeFrame(image=path))]
    levels = source_levels(libraries, folders)
    beside = (
        [item for file, lines in level for item in c_structures("\n".join(lines), short_file(file))] for level in levels
    )
    found = next(filter(None, beside), [])
    yield from found
    known = {item.name for item in found}
    running = next((frame.file for frame in program_frames(view)), None)
    for path, tree in trees.items():
        file = "" if path == running or len(trees) == 1 else short_file(path)
        for node in nodes_of(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "struct" in node.value:
                yield from (item for item in c_structures(node.value, file, node.lineno) if item.name not in known)


def _values(view: ProcessView, trees: dict[str, ast.Module], owner: ast.ClassDef, item: Structure) -> Iterator[_Given]:
    """The numbers that calls of the class, and assignments, give its fields, where they are known."""
    frames = program_frames(view)
    back = Slice(view.process.snapshot, frames)
    numbers = RecordedArrays(view, back)
    fields = {field.name: field for field in item.fields if not field.pointer}
    for path, tree in trees.items():
        for node in [item for item in nodes_of(tree) if isinstance(item, (ast.Call, ast.Assign))]:
            spot = _spot(frames, path, tree, node.lineno)
            for name, given, holder in _given(node, owner.name, item):
                if name not in fields or (holder is not None and not _is_made_by(back, holder, spot, owner.name)):
                    continue
                yield _Given(item, fields[name], numbers.number(given, spot))


def _spot(frames: Sequence[PythonFrame], path: str, tree: ast.Module, line: int) -> Spot:
    """With its frame, where the function is running."""
    scope = scope_of(tree, line)
    spot = Spot(path, tree, scope, line)
    return structs.replace(spot, depth=next((n for n, frame in enumerate(frames) if spot.is_of(frame)), None))


def _is_made_by(back: Slice, node: ast.expr, spot: Spot, name: str) -> bool:
    made = back.made(node, spot, calls=True).node
    return isinstance(made, ast.Call) and called_name(made) == name


def _given(node: ast.AST, owner: str, item: Structure) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """What a call of the class gives each field; what is set later with the object that it is set of."""
    if isinstance(node, ast.Call) and called_name(node) == owner:
        plain = takewhile(lambda value: not isinstance(value, ast.Starred), node.args)
        for field, value in zip(item.fields, plain, strict=False):
            yield field.name, value, None
        yield from ((word.arg, word.value, None) for word in node.keywords if word.arg is not None)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                yield target.attr, node.value, target.value
