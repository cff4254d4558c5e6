"""A result of C that is a pointer to pointers, where its `restype` is a pointer to the structure, or the reverse.

ctypes believes the restype: it then reads addresses for fields, or fields for addresses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

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
from pytracer.analyze.view import ProcessView


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
    found = []
    for file, tree in program_files(view.process.snapshot, program_frames(view)).items():
        if any(isinstance(node, ast.Call) and called_name(node) == "cast" for node in nodes_of(tree)):
            continue  # which may make the right type of it
        structures = {
            item.name for _, item in ctypes_structures(tree) if read.names & {one.name for one in item.fields}
        }
        found += [item for item in _declared(view, file, tree) if item.structure in structures]
    return found[0] if len(found) == 1 else None


def _declared(view: ProcessView, file: str, tree: ast.Module) -> Iterator[PointerDepth]:
    for node in nodes_of(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Attribute) or target.attr != "restype":
            continue
        levels, inner = 0, node.value
        while isinstance(inner, ast.Call) and called_name(inner) == "POINTER" and len(inner.args) == 1:
            levels, inner = levels + 1, inner.args[0]
        function = target.value.attr if isinstance(target.value, ast.Attribute) else None
        made = (
            own_definition(view, function) if function is not None and levels and isinstance(inner, ast.Name) else None
        )
        if made is None or function is None or not isinstance(inner, ast.Name):
            continue
        head = re.match(
            rf"\s*(?:extern\s+(?:\"C\"\s*)?|const\s+|struct\s+)*(?P<type>\w+)\s*(?P<stars>\*[\s*]*){function}\s*\(",
            made.text.split("\n")[made.line - 1],
        )
        depth = head["stars"].count("*") if head is not None else levels
        if head is not None and depth != levels and head["type"] not in ("void", "char"):
            yield PointerDepth(
                function, made.place, head["type"], depth, inner.id, ast.unparse(node.value), levels, file, node.lineno
            )
