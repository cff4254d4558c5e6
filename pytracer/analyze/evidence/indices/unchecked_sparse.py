"""The only line of a program that makes a sparse tensor of unchecked indices: a suspect of overwritten memory."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.indices.sparse_source import CHECKS, CONSTRUCTORS
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.own_libraries import files_of_program
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, statement_at
from pytracer.analyze.view import ProcessView

_SHORT = 44


class UncheckedSparse(msgspec.Struct, frozen=True):
    """`summary`: behind `the first suspect is`. `advice`: sentences."""

    summary: str
    advice: str


def unchecked_sparse(view: ProcessView) -> UncheckedSparse | None:
    """None where the program has no such line or several, or asks for checks anywhere."""
    files = files_of_program(view)
    nodes = [(file, tree, item) for file, tree in files.items() for item in nodes_of(tree)]
    if any(_name(item) in CHECKS for _, _, item in nodes):
        return None
    calls = [(file, tree, call) for file, tree, call in nodes if _is_constructor(call)]
    if len(calls) != 1:
        return None
    file, tree, call = calls[0]
    assert isinstance(call, ast.Call)
    place = place_of(view, file, call.lineno)
    name = f"torch.{called_name(call)}()"
    return UncheckedSparse(
        f"{name} at {place}, which does not check its indices",
        f"The first suspect is {name} at {place}: nothing checks its indices, and operators write where they "
        f"say{_used(tree, call)}. {_compare(call)}check_invariants=True there raises an error for a wrong one.",
    )


def _is_constructor(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in CONSTRUCTORS


def _used(tree: ast.Module, call: ast.Call) -> str:
    """`` (line 43: `return x + agg`) ``, of a variable that one line alone uses."""
    made = statement_at(tree, call.lineno)
    target = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    if not isinstance(target, ast.Name) or made is None:
        return ""
    nodes = [
        item
        for item in own_nodes(scope_of(tree, call.lineno))
        if isinstance(item, ast.Name) and item.id == target.id and item is not target
    ]
    if len({item.lineno for item in nodes}) != 1 or nodes[0].lineno <= made.lineno:
        return ""
    statement = statement_at(tree, nodes[0].lineno)
    if statement is None or statement.lineno != nodes[0].lineno or hasattr(statement, "body"):
        return ""
    return f" (line {nodes[0].lineno}: `{shortened(ast.unparse(statement), _SHORT)}`)"


def _compare(call: ast.Call) -> str:
    """What the indices must be, of one whose size is given."""
    size = keyword_value(call, "size")
    count = CONSTRUCTORS[called_name(call) or ""]
    if size is None and len(call.args) > count + 1:
        size = call.args[count + 1]
    if count != 1 or size is None or not call.args:
        return ""
    return (
        f"Each index in `{shortened(ast.unparse(call.args[0]), _SHORT)}` must be less than its dimension of "
        f"`{shortened(ast.unparse(size), _SHORT)}`. "
    )


def _name(node: ast.AST) -> str | None:
    return getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "arg", None)
