"""The address of a tensor that a Python line made, took the address of, and let go of: `x.contiguous().data_ptr()`.

By the line that made and freed the memory, which is one and the same.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_QUOTED = 60
_MAY_COPY = {"contiguous", "to", "float", "double", "half", "long", "int", "cpu", "reshape", "flatten"}


class TemporaryAddress(msgspec.Struct, frozen=True):
    """`made` is the temporary, `place` its line; `name` keeps the address, None where the line passes it on."""

    made: str
    place: str
    name: str | None
    may_copy: bool

    @property
    def summary(self) -> str:
        """Behind the headline."""
        if self.name is None:
            return f"the address that {self.place} passes is of `{self.made}`, a temporary that ends before the call"
        return f"`{self.name}` has kept the address of `{self.made}`, a temporary of {self.place}"

    @property
    def advice(self) -> str:
        """The change to make."""
        until = "native code has returned" if self.name is None else f"nothing uses `{self.name}` any more"
        also = " Where nothing is to be changed, that call returns the tensor itself, so that the same line works."
        return (
            f"Hold the tensor at {self.place}: `held = {self.made}` (an attribute, if the address is one), then "
            f"held.data_ptr(), until {until}. An address keeps no tensor alive.{also if self.may_copy else ''}"
        )


def address_of_temporary(view: ProcessView) -> TemporaryAddress | None:
    """None where the line takes no address of a temporary, or of several."""
    storage = view.storage
    made = storage.allocated.place if storage is not None and storage.allocated is not None else None
    freed = storage.freed.place if storage is not None and storage.freed is not None else None
    if made is None or freed is None or made.line is None or (made.file, made.line) != (freed.file, freed.line):
        return None
    tree = syntax_tree(view.process.snapshot, freed)
    if tree is None or freed.file is None or freed.line is None:
        return None
    statement = statement_at(tree, freed.line)
    taken = [item for item in nodes_of(statement) if _is_taken(item)] if statement is not None else []
    if len(taken) != 1 or not isinstance(taken[0], ast.Call) or not isinstance(taken[0].func, ast.Attribute):
        return None
    temporary = taken[0].func.value
    kept = statement.targets if isinstance(statement, ast.Assign) and statement.value is taken[0] else []
    return TemporaryAddress(
        shortened(ast.unparse(temporary), _QUOTED),
        place_of(view, freed.file, freed.line),
        ast.unparse(kept[0]) if len(kept) == 1 else None,
        isinstance(temporary, ast.Call) and called_name(temporary) in _MAY_COPY,
    )


def _is_taken(node: ast.AST) -> bool:
    """`(...).data_ptr()` of what a call or an operator made."""
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or function.attr != "data_ptr":
        return False
    return isinstance(function.value, (ast.Call, ast.BinOp, ast.UnaryOp))
