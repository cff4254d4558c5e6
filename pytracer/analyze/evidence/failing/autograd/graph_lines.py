"""The lines that a value of a graph is computed by, and what on them may cut the graph."""

from __future__ import annotations

import ast
from typing import TypeGuard

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.cut_values import names_switch
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

CUTS = Pattern(
    r"requires_grad_?\s*(?:=|\()\s*\(?False|no_grad\b|inference_mode|\.detach\(|\.item\(|\.numpy\(|torch\.tensor\(|\.data\b|argmax\("
)
FREEZES = Pattern(r"requires_grad_?\s*(?:=|\()\s*\(?False")
_HOPS = 6


def plain_statements(tree: ast.Module) -> list[ast.stmt]:
    """Those without a body of their own, and `with`."""
    return [item for item in nodes_of(tree) if isinstance(item, ast.stmt) and not hasattr(item, "body")] + [
        item for item in nodes_of(tree) if isinstance(item, (ast.With, ast.AsyncWith))
    ]


def head_of(item: ast.stmt) -> str:
    """Its text; of a `with` what it enters."""
    return ", ".join(map(ast.unparse, item.items)) if isinstance(item, (ast.With, ast.AsyncWith)) else ast.unparse(item)


def enters_mode(item: ast.AST) -> TypeGuard[ast.With]:
    """`with torch.no_grad():`, or set_grad_enabled(), whatever that is given."""
    return isinstance(item, ast.With) and any(map(names_switch, item.items))


def is_below_switch(at: FailingLine, depth: int) -> bool:
    """Whether a frame's line is below a `with torch.no_grad()`, or in a function decorated so."""
    spot = at.slice.spot(depth)
    scope = spot.scope if spot is not None else None
    if spot is None or scope is None:
        return False
    by = scope.decorator_list if isinstance(scope, ast.FunctionDef) else []
    return any(map(names_switch, by)) or any(enters_mode(item) and spans(item, spot.line) for item in own_nodes(scope))


def is_below_cut(around: ast.AST, line: int) -> bool:
    """Whether a line of a loop or function is below a `with torch.no_grad()` in it."""
    return any(
        isinstance(item, ast.With) and item.lineno < line <= (item.end_lineno or 0) and CUTS.search(head_of(item))
        for item in nodes_of(around)
    )


def lines_on_the_way(at: FailingLine, loss: str) -> set[int]:
    """Lines of the statements that a value is computed by: of its function, and of those that these call."""
    reached, lines = {loss}, set[int]()
    own = [item for item in own_nodes(at.scope) if isinstance(item, ast.stmt)]
    read: list[ast.AST] = [at.node] if at.node is not None else []
    for _ in range(_HOPS):
        for item in own:
            bound = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            named = {name for target in bound if target is not None for name in bound_names(target)}
            if named & reached and item.lineno not in lines and not isinstance(item, (ast.For, ast.AsyncFor)):
                reached |= set(names_in(item))
                lines.add(item.lineno)
                read.append(item)
    for item in own:
        if isinstance(item, (ast.With, ast.AsyncWith)) and any(
            item.lineno < line <= (item.end_lineno or 0) for line in lines
        ):
            lines.add(item.lineno)
    return lines | lines_of_functions(at.tree, read)


def lines_of_functions(tree: ast.Module, read: list[ast.AST]) -> set[int]:
    """Of a file's functions that some code calls, and of every forward()."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [item for item in nodes_of(tree) if isinstance(item, kinds)]
    waiting, seen = [*read, *(item for item in functions if item.name in ("forward", "__call__"))], set[int]()
    lines = set[int]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, kinds):
            lines |= {*range(item.lineno, (item.end_lineno or item.lineno) + 1)}
        called = {called_name(part) for part in nodes_of(item) if isinstance(part, ast.Call)}
        for function in functions:
            if function.name in called and id(function) not in seen:
                seen.add(id(function))
                waiting.append(function)
    return lines


def bound_names(target: ast.AST) -> list[str]:
    """Variables that a target of an assignment binds, `self.x` included; of `a, b` both."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for item in target.elts for name in bound_names(item)]
    name = variable(target)
    return [name] if name is not None else []
