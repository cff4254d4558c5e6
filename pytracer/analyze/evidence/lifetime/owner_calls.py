"""Calls of the object that lent a tensor its memory, behind the line that made the tensor: one may have moved it.

A container of native code that grows, is cleared or reads the next item gives its old memory back; tensors that it made
of that memory do not know.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_parameter, own_nodes, scope_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 60
_BORROWS = ("from_numpy", "frombuffer", "as_tensor", "asarray", "from_dlpack")
# Methods of arrays and buffers that move or release their memory.
_MOVES = ("resize", "close", "release", "clear", "append", "extend", "insert", "pop")
_MODULES = ("torch", "np", "numpy", "ctypes")


class OwnerCalls(msgspec.Struct, frozen=True):
    """`made`: the line that made the tensor, with its text; `later`: the only other method of `owner` behind it."""

    owner: str
    made: str
    later: str | None

    @property
    def advice(self) -> str:
        """What to copy, and what may have taken the memory."""
        moved = f"{self.later} may have moved or released that memory since" if self.later else None
        since = f": {moved}" if moved is not None else f", or keep `{self.owner}` as it was then"
        return (
            f"Call clone() where the tensor is made, at {self.made}{since}. It has the memory of `{self.owner}`: where "
            "both must share it, make the tensor again after each such call."
        )


def owner_calls(view: ProcessView) -> OwnerCalls | None:
    """None unless a method of a variable made the tensor, `replay.view()`, or it was made of one that moves later."""
    storage = view.place.storage if view.place is not None else None
    if storage is None or not is_borrowed(storage):
        return None
    site = storage.allocated_by.place
    frame = python_frame(site) if site is not None else None
    tree = syntax_tree(view.process.snapshot, frame)
    if frame is None or frame.line is None or tree is None:
        return None
    scope = scope_of(tree, frame.line)
    nodes = [item for item in own_nodes(scope) if isinstance(item, ast.Call)]
    here = [item for item in nodes if item.lineno <= frame.line <= (item.end_lineno or 0)]
    makers = [(owner, item) for item in here if (owner := _owner(item) or _lender(item)) is not None]
    if len(makers) != 1:
        return None
    owner, maker = makers[0]
    if not owner.startswith("self.") and not is_parameter(scope, owner) and not lines_that_bind(scope, owner):
        return None  # a module, or a library
    around = class_around(tree, scope) if owner.startswith("self.") else None
    if around is not None:  # another method may come later
        nodes = [item for item in nodes_of(around) if isinstance(item, ast.Call)]
    lends = _owner(maker) is None
    later = {
        ast.unparse(item.func): item.lineno
        for item in nodes
        if isinstance(item.func, ast.Attribute)
        and _owner(item) == owner
        and (around is not None or item.lineno > frame.line)
        and (item.func.attr in _MOVES if lends else ast.unparse(item.func) != ast.unparse(maker.func))
    }
    text = line_text(view.process.snapshot, PythonFrame(function=None, file=frame.file, line=frame.line)) or ""
    made = place_of(view, frame.file, frame.line).quoted(shortened(text, _QUOTED))
    only = next(iter(later.items())) if len(later) == 1 else None
    if lends and only is None:
        return None
    words = place_of(view, frame.file, only[1]).after(f"`{only[0]}()` at ") if only is not None else None
    return OwnerCalls(owner, made, words)


def _lender(call: ast.Call) -> str | None:
    """`self.rows` of `torch.from_numpy(self.rows)`."""
    return variable(call.args[0]) if called_name(call) in _BORROWS and call.args else None


def _owner(call: ast.Call) -> str | None:
    name = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    return name if name is not None and name not in _MODULES else None
