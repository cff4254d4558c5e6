"""The address of a Python object that NumPy read from a file or from shared memory: an array with an object field.

`np.memmap(path, dtype=[("caption", "O")])` stores what an object array has in memory: addresses of objects. They are
valid in the process that wrote them alone, while its objects live. np.fromfile(), np.frombuffer(), tofile(), and
np.load(mmap_mode=...) refuse such types; np.memmap() and np.ndarray(buffer=...) do not (NumPy 2.4).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import hex_addr, shortened
from pytracer.analyze.address_space.mapped_file import DELETED, SHARED_MEMORY
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.evidence.lifetime.file_mappers import file_mapper
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import image_name, memory_word, own_frames
from pytracer.analyze.evidence.phrases import access_verb
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_QUOTED = 60
_NUMPY = Pattern(r"_multiarray_umath\b|/numpy/")
# NumPy's functions that read, copy or count references (2.4: arraytypes.c.src, dtype_transfer.c, refcount.c).
_OF_OBJECTS = Pattern(r"^(OBJECT_\w+|\w+_references|PyArray_Item_X?(INC|DEC)REF|PyArray_X?(INC|DEC)REF)(\.|$)")
_OBJECT_CODES = ("O", "|O", "O8", "|O8", "object", "object_")
_NEAR_BYTES, _WORD_BYTES = 64, 8


class _Stored(msgspec.Struct, frozen=True):
    """The word at `offset` of the file `path` is the address."""

    path: str
    offset: int
    addr: int

    @property
    def name(self) -> str:
        """`captions.rec`."""
        return image_name(self.path)

    @property
    def is_shared_memory(self) -> bool:
        """Whether it is no file on a disk."""
        return self.path.startswith(SHARED_MEMORY)

    @property
    def words(self) -> str:
        """`the file captions.rec (byte 44708)`."""
        return f"{'shared memory' if self.is_shared_memory else 'the file'} {self.name} (byte {self.offset})"


class _Mapped(msgspec.Struct, frozen=True):
    """`text` at `line` makes the array; `field` (`('caption', 'O')`) at `declared` has it hold objects."""

    text: str
    line: LineWords
    field: str
    declared: LineWords


@dataclass(frozen=True)
class StoredObjects(Explanation):
    """See above. `stored`: None where only the source shows it; `mapped`: None where only memory does."""

    stored: _Stored | None
    mapped: _Mapped | None
    names_source = True

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "certain" if self.stored is not None else "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        at = f"{access_verb(view)} memory at {hex_addr(view.place.addr)}" if view.place is not None else None
        if at is None or self.stored is None:
            return None
        return f"{at}, which it had read from {self.stored.words} as the address of a Python object,"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        holds = "holds addresses of the process that wrote it, not the objects"
        if self.mapped is None:
            return f": an array of objects that lies there {holds}"
        one = self.mapped
        return (
            f": the array of {one.line} (`{one.text}`) has objects in it (`{one.field}`, {one.declared}), so that its "
            f"memory {holds}"
        )

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        if self.stored is None:
            return (address,)
        one = self.stored
        words = f"the 8 bytes at byte {one.offset} of {one.path}, which was mapped, are this address"
        return (Evidence("mapping", words, addr=hex_addr(one.addr), path=one.path), address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        field = f"`{self.mapped.field}` ({self.mapped.declared})" if self.mapped is not None else "the object type"
        shared = self.stored is not None and self.stored.is_shared_memory
        again = "" if self.stored is None or shared else f", then delete {self.stored.name} and write it again"
        other = (
            "Or pass objects by a queue or a pipe, which pickle them."
            if shared
            else "Or keep objects in a file of their own: pickle, np.save() with allow_pickle, or text with offsets."
        )
        return (
            f"Replace {field} by a type of fixed size, such as 'U40' or 'S40' for text{again}: what an array of "
            "objects has in memory are their addresses, which are valid only in the process that made them. It reads "
            f"back well there, as long as they live; fields of numbers are right anywhere. {other}"
        )


def stored_objects(view: ProcessView) -> StoredObjects | None:
    """None unless NumPy was reading references to objects, and such an array is of a file or a buffer."""
    frame = next(iter(own_frames(view)), None)
    of_objects = frame is not None and _OF_OBJECTS.match(frame.function or "") and _NUMPY.search(frame.image or "")
    if not of_objects:
        return None
    stored = _stored(view)
    mapped = _mapped(view, stored)
    return StoredObjects(stored, mapped) if stored is not None or mapped is not None else None


def _stored(view: ProcessView) -> _Stored | None:
    """Where a mapped file, which a register points into, has the address."""
    crash, place = view.crash, view.place
    if crash is None or place is None:
        return None
    images = {item.path for item in crash.images}
    for value in data_registers(crash).values():
        mapping = mapping_at(crash.mappings, value)
        if mapping is None or not mapping.path.startswith("/") or mapping.path in images or "x" in mapping.permissions:
            continue
        near = sorted(range(value - _NEAR_BYTES, value + _NEAR_BYTES), key=lambda at: abs(at - value))
        at = next((at for at in near if memory_word(crash, at, _WORD_BYTES) == place.addr), None)
        if at is not None:
            offset = mapping.offset + at - mapping.start
            return _Stored(mapping.path.removesuffix(DELETED), offset, place.addr)
    return None


def _mapped(view: ProcessView, stored: _Stored | None) -> _Mapped | None:
    """The only line that makes an array of objects of a file or a buffer; of several, the one that maps the file."""
    files = program_files(view.process.snapshot, program_frames(view))
    found = [item for file, tree in files.items() for item in _makers(view, file, tree)]
    if len(found) > 1 and stored is not None:
        mapper = file_mapper(view, stored.path)
        found = [item for item in found if mapper is not None and str(item.line) == str(mapper.place)] or found
    if len(found) > 1:  # the one of the failing line's class or function
        near = {id(item) for item in _around(view)}
        found = [item for item in found if near & {id(part) for part in _places(files, item)}] or found
    return found[0] if len({(item.line.file, item.line.line) for item in found}) == 1 else None


def _around(view: ProcessView) -> Iterator[ast.AST]:
    """The innermost function of the program, and its class."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if frame is not None and tree is not None and frame.line:
        yield from _enclosing(tree, frame.line)


def _places(files: Mapping[str, ast.Module], item: _Mapped) -> Iterator[ast.AST]:
    tree = files.get(item.line.file or "")
    if tree is not None and item.line.line:
        yield from _enclosing(tree, item.line.line)


def _enclosing(tree: ast.Module, line: int) -> Iterator[ast.AST]:
    scope = scope_of(tree, line)
    around = class_around(tree, scope)
    yield from (item for item in (scope, around) if item is not None and not isinstance(item, ast.Module))


def _makers(view: ProcessView, file: str, tree: ast.Module) -> Iterator[_Mapped]:
    slice_ = Slice(view.process.snapshot, program_frames(view))
    for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
        if called_name(call) != "memmap" and not (
            called_name(call) == "ndarray" and keyword_value(call, "buffer") is not None
        ):
            continue
        given = argument_at(call, 1, "dtype")
        if given is None or _mode(call) == "w+":
            continue  # what the program has written itself
        spot = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
        made = slice_.made(given, spot, calls=True)
        field = _field(made.node)
        if field is not None:
            text = shortened(ast.unparse(call), _QUOTED)
            declared = place_of(view, made.spot.file, getattr(field, "lineno", made.line))
            yield _Mapped(text, place_of(view, file, call.lineno), shortened(ast.unparse(field), _QUOTED), declared)


def _mode(call: ast.Call) -> object:
    value = keyword_value(call, "mode")
    return value.value if isinstance(value, ast.Constant) else None


def _field(node: ast.AST) -> ast.AST | None:
    """`('caption', 'O')` of a structured type, else `object`; None of a type without objects."""
    for item in nodes_of(node):
        if isinstance(item, ast.Tuple) and len(item.elts) > 1 and _is_object(item.elts[1]):
            return item
    parts = node.args[:1] if isinstance(node, ast.Call) and called_name(node) == "dtype" else [node]
    return next((item for item in parts if _is_object(item)), None)


def _is_object(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in _OBJECT_CODES
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    return name in ("object", "object_")
