"""Lines that give a kept tensor new values in place, by which it keeps its graph: `buffer.zero_()`, `self.h[:] = 0`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.kept_results import Stored, attribute_of
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans

_METHODS = ("zero_", "fill_", "mul_", "uniform_", "normal_")
_DRAWS = Pattern(r"uniform_|normal_")
_OF_BUFFERS = ("buffers", "named_buffers")


class Overwritten(msgspec.Struct, frozen=True):
    """Such a line; `detached`: the same that cuts the graph, too."""

    file: str
    line: int
    text: str
    detached: str


def overwritten(at: FailingLine, stored: Stored) -> Overwritten | None:
    """The one line of the program that does so with what is stored: of several in a function the one that resets it."""
    found = [*_all(at, stored)]
    plain = [item for item in found if not _DRAWS.search(item.text)]
    chosen = plain or found
    return chosen[0] if len(chosen) == 1 else None


def _all(at: FailingLine, stored: Stored) -> Iterator[Overwritten]:
    attribute = attribute_of(stored.node) or ""
    buffer = _is_buffer(stored.owner, attribute)
    called = {called_name(item) for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)}
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            held = _overwritten_by(item) if isinstance(item, (ast.Expr, ast.Assign)) else None
            if held is None or not isinstance(item, (ast.Expr, ast.Assign)):
                continue
            scope = scope_of(tree, item.lineno)
            if not isinstance(scope, ast.Module) and getattr(scope, "name", "") not in (*called, *MADE_ON_CALL):
                continue
            own = file == stored.file and spans(stored.owner, item.lineno)
            mine = variable(held) == f"self.{attribute}"
            named = isinstance(held, ast.Attribute) and held.attr == attribute and variable(held.value) != "self"
            of_buffers = buffer and isinstance(held, ast.Name) and _goes_through_buffers(scope, held.id, own=own)
            if (own and mine) or named or of_buffers:
                text, what = ast.unparse(item), ast.unparse(held)
                in_place = text.replace(what, f"{what}.detach_()", 1) if isinstance(item, ast.Expr) else None
                yield Overwritten(file, item.lineno, short(text), short(in_place or f"{what}.detach_().zero_()"))


def overwrites(item: ast.Assign, attribute: str) -> bool:
    """Whether it makes the new value of the old one, or gives the old one new values."""
    if _overwritten_by(item) is not None:
        return True
    return any(variable(part) == f"self.{attribute}" for part in nodes_of(item.value)) and not any(
        isinstance(part, ast.Call) and called_name(part) not in ("mul", *_METHODS) for part in nodes_of(item.value)
    )


def _overwritten_by(item: ast.Expr | ast.Assign) -> ast.expr | None:
    """`h` of `h.zero_()`, `h[:] = 0` and `nn.init.zeros_(h)`."""
    if isinstance(item, ast.Assign):
        target = item.targets[0]
        if len(item.targets) != 1 or not isinstance(target, ast.Subscript) or not isinstance(item.value, ast.Constant):
            return None
        whole = isinstance(target.slice, ast.Slice) and target.slice.lower is None and target.slice.upper is None
        every = isinstance(target.slice, ast.Constant) and target.slice.value is ...
        return target.value if whole or every else None
    call = item.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if ast.unparse(call.func.value).endswith("init") and call.func.attr.endswith("_"):
        return call.args[0] if call.args else None
    return call.func.value if call.func.attr in _METHODS else None


def _is_buffer(owner: ast.ClassDef, attribute: str) -> bool:
    return any(
        isinstance(item, ast.Call) and called_name(item) == "register_buffer"
        and item.args and isinstance(item.args[0], ast.Constant) and item.args[0].value == attribute
        for item in nodes_of(owner)
    )  # fmt: skip


def _goes_through_buffers(scope: ast.AST, name: str, *, own: bool) -> bool:
    """`for buffer in self.buffers()`; in a method of another object these may be others, of a model not."""
    for loop in own_nodes(scope):
        if isinstance(loop, (ast.For, ast.AsyncFor)) and isinstance(loop.iter, ast.Call):
            bound = {part.id for part in nodes_of(loop.target) if isinstance(part, ast.Name)}
            if name in bound and called_name(loop.iter) in _OF_BUFFERS:
                return own or not (variable(loop.iter.func) or "").startswith("self.")
    return False
