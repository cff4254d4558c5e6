"""Loops over a set around a collective: it has an order of its own in each process."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import capital, shortened
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_LONGEST = 60
_SET_METHODS = ("union", "difference", "intersection", "symmetric_difference")


class SetLoop(msgspec.Struct, frozen=True):
    """A loop over a set: its head, where the set is made, and what it goes through."""

    head: str
    made: str
    shown: str

    @property
    def subject(self) -> str:
        """For the headline."""
        return f"{self.head} goes through a set{self.made}, probably in another order on each rank"

    @property
    def advice(self) -> str:
        """To sort it."""
        return (
            f"{capital(self.head)} goes through a set{self.made}, whose order differs between processes (hashes of "
            f"text are random in each): go through sorted({self.shown})."
        )


def set_loop(snapshot: Snapshot, frame: PythonFrame) -> SetLoop | None:
    """A loop over a set around the line: in each process it has an order of its own."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    scope = scope_of(tree, frame.line)
    for loop in reversed(loops_around(tree, frame.line)):
        if isinstance(loop, ast.While):
            continue
        name, made = variable(loop.iter), loop.iter
        bound = bound_value(scope, name, loop.lineno) if name is not None else None
        at = ""
        if bound is not None and isinstance(bound[1], ast.expr):
            made, at = bound[1], f" of line {bound[0]} ({quoted(snapshot, frame, bound[0])})"
        text = quoted(snapshot, frame, loop.lineno)
        if _is_set(made) and text is not None:
            shown = shortened(ast.unparse(loop.iter), _LONGEST)
            return SetLoop(f"line {loop.lineno} ({text})", at, shown)
    return None


def _is_set(value: ast.expr) -> bool:
    if isinstance(value, ast.Set):
        return not all(map(_is_number, value.elts))
    if isinstance(value, ast.SetComp):
        return True
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)):
        return any(_is_set(side) for side in (value.left, value.right))
    called = value.func if isinstance(value, ast.Call) else None
    if isinstance(called, ast.Name):
        return called.id in ("set", "frozenset") and not _are_numbers(value.args)  # type: ignore[attr-defined]
    return isinstance(called, ast.Attribute) and called.attr in _SET_METHODS and _is_set(called.value)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _are_numbers(given: list[ast.expr]) -> bool:
    """`set(range(8))`, `set([3, 5])`: numbers have the same hash in each process."""
    node = given[0] if len(given) == 1 else None
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return all(map(_is_number, node.elts))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
