"""A .grad that is None: of a result of an operation, of what the loss does not use, or before backward()."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import names_in, short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.syntax.bindings import is_loop_variable
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, spans

_MAKES_LEAVES = ("requires_grad", "Parameter", "retain_grad")


def no_gradient(at: FailingLine, node: ast.Attribute) -> str:
    """What to do about it, by what the variable is."""
    text, name = source(node), variable(node.value)
    made = _made_in_loop(at, name) if name is not None else None
    if made is not None:
        return (
            f"`{text}` is None, as {at.here(made[0])} (`{name} = {short(ast.unparse(made[1]))}`) makes `{name}` anew "
            "in each round, as the result of an operation, and only leaves get a .grad. Make it a leaf again there: "
            f"`{name} = {name}.detach().requires_grad_()`."
        )
    why = f"`{text}` is None: no backward() has given it a gradient, because the loss does not use it, it is frozen"
    if name is not None and is_loop_variable(at.scope, name, at.line):
        return f"{why}, or zero_grad() came between. Skip those (`if {text} is not None`), or let the loss use it."
    return (
        f"{why}, zero_grad() came between, or it is no parameter but a result (retain_grad() keeps that of one). Look "
        f"at how `{source(node.value)}`{at.came(name)} is made, and let the loss use it."
    )


def _was_leaf(at: FailingLine, name: str, line: int) -> bool:
    """Whether the first round had a leaf: a line before the loop makes it one, or any does of what the function got."""
    before = [item for item in own_nodes(at.scope) if isinstance(item, ast.stmt) and item.lineno < line]
    texts = [ast.unparse(item) for item in before if not hasattr(item, "body")]
    if name in parameters(at.scope):
        texts += [ast.unparse(tree) for tree in at.files.values()]
    return any(part in text for text in texts for part in _MAKES_LEAVES if name in text)


def _made_in_loop(at: FailingLine, name: str) -> tuple[int, ast.AST] | None:
    """The line behind the failing one, in the loop around both, that computes it of itself."""
    loops = loops_around(at.tree, at.line)
    loop = loops[-1] if loops else None
    if loop is None or any(part in ast.unparse(loop) for part in _MAKES_LEAVES):
        return None
    if is_loop_variable(at.scope, name, at.line) or not _was_leaf(at, name, loop.lineno):
        return None
    for line, value, _ in bindings_of(at.scope, name):
        computed = value is not None and any(isinstance(item, (ast.BinOp, ast.Call)) for item in nodes_of(value))
        if line >= at.line and spans(loop, line) and computed and value is not None and name in names_in(value):
            return line, value
    return None
