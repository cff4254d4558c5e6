"""A result of C that is a pointer to pointers, where its `restype` is a pointer to the structure, or the reverse.

ctypes believes the restype: it then reads addresses for fields, or fields for addresses. Of a function that the running
ones call, and no other of theirs that returns that structure: what is read may be of that one. A type that may be a
pointer itself (`typedef struct box *box_t`) has no depth that is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.ctypes_access import CtypesRead
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.own_code.struct_fields import ctypes_structures
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


class PointerDepth(msgspec.Struct, frozen=True):
    """`function`, at `place`, returns `type` with `depth` stars; `restype` at `line` of `file` has `levels` of them."""

    function: str
    place: str
    type: str
    depth: int
    structure: str
    restype: str
    levels: int
    file: str
    line: int

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the restype is set."""
        return ((self.file, self.line),)

    def summary(self, view: ProcessView) -> str:
        """`` head_detect() (head.c:6) returns `detection **`, and its restype (line 43) is `POINTER(DETECTION)` ``."""
        at = place_of(view, self.file, self.line)
        return (
            f"{self.function}() ({self.place}) returns `{self.type} {'*' * self.depth}`, where its restype is "
            f"`{self.restype}` ({at})"
        )

    def advice(self, view: ProcessView) -> str:
        """What to declare."""
        kind = self.structure
        for _ in range(self.depth):
            kind = f"{self.restype.partition('(')[0]}({kind})"
        at = place_of(view, self.file, self.line)
        first = f"Set the restype of {self.function}() to `{kind}` at {at}"
        if self.depth <= self.levels:
            return f"{first}: C returns the structures themselves, and no pointers to them."
        return f"{first}: an element of its result is a pointer, whose structure is `.contents` or `[0]` of it."


def pointer_depth(view: ProcessView) -> PointerDepth | None:
    """Of a line that reads a field by ctypes; None where no restype, or more than one, is known to differ."""
    read = CtypesRead.of(view)
    if read is None:
        return None
    found, frames = [], program_frames(view)
    files = program_files(view.process.snapshot, frames)
    called = _called(files, frames)
    for file, tree in files.items():
        if any(isinstance(node, ast.Call) and called_name(node) == "cast" for node in nodes_of(tree)):
            continue  # which may make the right type of it
        structures = {
            item.name for _, item in ctypes_structures(tree) if read.names & {one.name for one in item.fields}
        }
        declared = [item for item in _declared(tree) if item.structure in structures and item.function in called]
        if len({item.function for item in declared}) > 1:
            return None
        found += [depth for item in declared if (depth := _differing(view, file, item)) is not None]
    return found[0] if len(found) == 1 else None


def _called(files: Mapping[str, ast.Module], frames: Sequence[PythonFrame]) -> set[str]:
    """The functions that the running ones call."""
    places = [(files.get(frame.file or ""), frame.line) for frame in frames]
    scopes = [scope_of(tree, line) for tree, line in places if tree is not None and line is not None]
    return {called_name(node) or "" for scope in scopes for node in nodes_of(scope) if isinstance(node, ast.Call)}


class _Declared(msgspec.Struct, frozen=True):
    """A line that sets a restype to pointers to a structure."""

    function: str
    structure: str
    levels: int
    restype: str
    line: int


def _declared(tree: ast.Module) -> Iterator[_Declared]:
    for node in nodes_of(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Attribute) or target.attr != "restype":
            continue
        levels, inner = 0, node.value
        while isinstance(inner, ast.Call) and called_name(inner) == "POINTER" and len(inner.args) == 1:
            levels, inner = levels + 1, inner.args[0]
        if isinstance(target.value, ast.Attribute) and isinstance(inner, ast.Name) and levels:
            yield _Declared(target.value.attr, inner.id, levels, ast.unparse(node.value), node.lineno)


def _differing(view: ProcessView, file: str, item: _Declared) -> PointerDepth | None:
    made = own_definition(view, item.function)
    head = made and re.match(
        rf"\s*(?:extern\s+(?:\"C\"\s*)?|const\s+|struct\s+)*(?P<type>\w+)\s*(?P<stars>\*[\s*]*){item.function}\s*\(",
        made.text.split("\n")[made.line - 1],
    )
    if not made or not head or not _is_structure(made.text, head["type"], item.structure):
        return None
    depth = head["stars"].count("*")
    if depth == item.levels:
        return None
    return PointerDepth(
        item.function, made.place, head["type"], depth, item.structure, item.restype, item.levels, file, item.line
    )


def _is_structure(text: str, name: str, structure: str) -> bool:
    """By its own definition, else by its name: a header, which is not read, has it."""
    if re.search(rf"\btypedef\b[^;]*\*\s*{name}\s*;|\btypedef\b[^;{{}}]*\{{[^{{}}]*\}}[^;]*\*\s*{name}\s*[;,]", text):
        return False
    if re.search(rf"\bstruct\s+{name}\s*\{{|\}}\s*{name}\s*[;,]", text):
        return True
    return name.replace("_", "").lower() == structure.replace("_", "").lower()
