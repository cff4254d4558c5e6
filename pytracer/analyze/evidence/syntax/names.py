"""Names of variables in an expression."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.nodes import nodes_of


def names_of(node: ast.AST) -> list[str]:
    """Variables of an expression, in order, each once.

    What is only called (`model(x)`, `torch.cat(x)`) is no value that does not fit.
    """
    called = {id(item.func) for item in nodes_of(node) if isinstance(item, ast.Call)}
    bound = {
        name.id
        for item in nodes_of(node)
        if isinstance(item, ast.comprehension)
        for name in nodes_of(item.target)
        if isinstance(name, ast.Name)
    }
    found: dict[str, tuple[int, int]] = {}
    for item in nodes_of(node):
        if id(item) in called:
            continue
        name = variable(item)
        if name is None or name in bound or not isinstance(item, (ast.Name, ast.Attribute)):
            continue
        if isinstance(item.ctx, ast.Load) or item is node:  # of `x += y` also the target
            at = (item.lineno, item.col_offset)
            found[name] = min(found.get(name, at), at)
    found.pop("self", None)
    return sorted(found, key=lambda name: found[name])


def bare_names(node: ast.AST) -> set[str]:
    """Every name in it, whatever it is used for: also a function that is called, and `self` of `self.x`."""
    return {item.id for item in nodes_of(node) if isinstance(item, ast.Name)}


def variable(node: ast.AST) -> str | None:
    """`x`, or `self.x`; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None


def holds(target: ast.AST, name: str) -> bool:
    """Whether a target binds a variable: `a, (b, *c)` binds three, `a[0]` and `a.b` none."""
    return name in held_names(target)


def held_names(target: ast.AST) -> dict[str, None]:
    """All variables that a target binds, in order, each once."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return {name: None for item in target.elts for name in held_names(item)}
    if isinstance(target, ast.Starred):
        return held_names(target.value)
    name = variable(target)
    return {name: None} if name is not None else {}


def last_name(node: ast.AST) -> str | None:
    """`ready` of `self.ready`, of `ready`, and of `self.ready[0]`."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def indexed(node: ast.expr) -> ast.expr:
    """`rows` of `rows[0][1]`, and of `rows`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def elements(node: ast.expr) -> list[ast.expr]:
    """Of a tuple or a list as it is written, such as the targets of `a, b = ...`; else the expression itself."""
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]


def is_name(node: ast.AST | None, name: str | None) -> bool:
    """Whether it is that variable: no attribute of one, and no element."""
    return isinstance(node, ast.Name) and node.id == name


def is_attribute(node: ast.AST, name: str) -> bool:
    """Whether it is `x.name`, of any `x`."""
    return isinstance(node, ast.Attribute) and node.attr == name
