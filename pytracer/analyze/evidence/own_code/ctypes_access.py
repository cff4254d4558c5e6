"""Accesses that ctypes makes itself, for a line of Python that reads a field or an element: no function of C runs."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import EVALUATES
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.struct_fields import Structure
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

# What its getters use: strlen() of the C library, and the interpreter, which makes the object.
_HELPERS = Pattern(r"^(libc[.-]|libpython3|python\d?(\.\d+)?)")
_MOST_HELPERS = 4


class CtypesRead(msgspec.Struct, frozen=True):
    """What a line of Python reads by ctypes itself. `names`: of attributes; `indexed`: those of an element.

    `elements`: attributes of which the line reads an element: `xdi.labels[i]`, `box.contents`.
    """

    names: frozenset[str]
    indexed: frozenset[str]
    elements: frozenset[str]

    @classmethod
    def of(cls, view: ProcessView) -> CtypesRead | None:
        """None unless ctypes made the access, or the C library or the interpreter for it, as of a `c_char_p`."""
        frame = next(iter(program_frames(view)), None)
        if frame is None or frame.line is None or not read_by_ctypes(view):
            return None
        tree = syntax_tree(view.process.snapshot, frame)
        statement = statement_at(tree, frame.line) if tree is not None else None
        read = (
            [item for item in nodes_of(statement) if isinstance(item, ast.Attribute)] if statement is not None else []
        )
        called = (
            {id(item.func) for item in nodes_of(statement) if isinstance(item, ast.Call)} if statement else set[int]()
        )
        near = [item for item in read if item.lineno <= frame.line <= (item.end_lineno or item.lineno)]
        near = [item for item in near if id(item) not in called]
        indexed = frozenset(item.attr for item in near if isinstance(item.value, ast.Subscript))
        elements = frozenset(
            item.value.attr
            for item in (nodes_of(statement) if statement is not None else ())
            if isinstance(item, ast.Subscript) or (isinstance(item, ast.Attribute) and item.attr == "contents")
            if isinstance(item.value, ast.Attribute)
        )
        return cls(frozenset(item.attr for item in near), indexed, elements)

    def steps_over(self, python: Structure) -> bool:
        """Whether it reads a field of an element: `boxes[i].score`."""
        return any(item.name in self.indexed for item in python.fields)


def read_by_ctypes(view: ProcessView) -> bool:
    """Whether the innermost frame that is neither of the C library nor of the interpreter is of ctypes."""
    for frame in own_frames(view)[: _MOST_HELPERS + 1]:
        image = image_name(frame.image)
        if image.startswith("_ctypes"):
            return True
        if not _HELPERS.match(image) or EVALUATES.match(frame.function or ""):
            return False
    return False
