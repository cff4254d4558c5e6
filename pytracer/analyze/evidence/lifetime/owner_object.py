"""The object of the program that owned a tensor's memory, and frees it when it ends: the tensor does not keep it."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 44
_FINALIZERS = ("__del__", "__exit__", "close", "free", "release")


class OwnerObject(msgspec.Struct, frozen=True):
    """An object of class `owner` made the tensor; `method` of it calls native code at `line`."""

    owner: str
    method: str
    line: str
    text: str

    @property
    def advice(self) -> str:
        """What to keep."""
        return (
            f"Keep the {self.owner} that made it for as long as the tensor, or clone() the tensor: the tensor does not "
            f"keep that object alive, and {self.owner}.{self.method}() ({self.line}: "
            f"`{shortened(self.text, _QUOTED)}`) may have freed the memory."
        )


def owner_object(view: ProcessView) -> OwnerObject | None:
    """None where no method of a class of the program made the tensor, or the class frees nothing when it ends."""
    storage = view.place.storage if view.place is not None else None
    if storage is None or not is_borrowed(storage):
        return None  # torch frees its own itself
    frame = storage.allocated_by.place
    made = python_frame(frame) if frame is not None else None
    tree = syntax_tree(view.process.snapshot, made)
    if tree is None or made is None or made.line is None:
        return None
    owner = class_around(tree, scope_of(tree, made.line))
    if owner is None:
        return None
    methods = {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}
    for name in _FINALIZERS:
        call = _first_call(methods[name]) if name in methods else None
        if call is not None:
            at = PythonFrame(function=None, file=made.file, line=call.lineno)
            text = line_text(view.process.snapshot, at) or ""
            place = line_in(made.file, call.lineno, view.python_frame.file if view.python_frame is not None else None)
            return OwnerObject(owner.name, name, place, text)
    return None


def _is_here(view: ProcessView, made: PythonFrame) -> bool:
    frame = view.python_frame
    return frame is not None and frame.file == made.file


def _first_call(method: ast.FunctionDef) -> ast.Call | None:
    """Of what takes an attribute of the object."""
    for node in own_nodes(method):
        if isinstance(node, ast.Call) and any("self." in ast.unparse(item) for item in (node.func, *node.args)):
            return node
    return None
