"""Whether what a line sets may be 0, by syntax alone."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import clauses_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of
from pytracer.analyze.evidence.syntax.set_attributes import SetAttribute

_HOPS = 4
_SAME = frozenset({"int", "round", "abs"})
_TESTS = (ast.If, ast.While, ast.Assert)
_LESSENS = (ast.Sub, ast.FloorDiv, ast.Mod, ast.RShift)


def may_be_zero(tree: ast.Module, setting: SetAttribute) -> bool:
    """False for a number, for `max(1, n)`, and for a variable that a test above compares.

    Other than that, whether it is: a line that keeps it from being 0 in another way is not known.
    """
    if setting.changes is not None:
        return isinstance(setting.changes, _LESSENS)
    if setting.value is None:
        return True
    return _may_be(setting.value, scope_of(tree, setting.line), setting.line, _HOPS)


def _may_be(node: ast.AST, scope: Scope, line: int, hops: int) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == 0
    if isinstance(node, ast.Call) and called_name(node) in _SAME and len(node.args) == 1:
        return _may_be(node.args[0], scope, line, hops)
    if isinstance(node, ast.Call) and called_name(node) == "max" and len(node.args) > 1:
        return all(_may_be(item, scope, line, hops) for item in node.args)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return _may_be(node.values[-1], scope, line, hops)
    if isinstance(node, ast.IfExp):
        return any(_may_be(item, scope, line, hops) for item in (node.body, node.orelse))
    if not isinstance(node, ast.Name):
        return not _is_tested(ast.unparse(node), scope, line)
    if hops == 0 or _is_tested(node.id, scope, line):
        return False
    bound = [(at, value) for at, value in lines_that_bind(scope, node.id) if at <= line]
    return not bound or any(_bound_to_zero(value, scope, at, node.id, hops - 1) for at, value in bound)


def _bound_to_zero(value: ast.AST | None, scope: Scope, line: int, name: str, hops: int) -> bool:
    """`value`: None for what a loop gives."""
    if value is not None:
        return _may_be(value, scope, line, hops)
    loops = (item for item in own_nodes(scope) if isinstance(item, ast.For) and item.lineno == line)
    loop = next(loops, None)
    if loop is None or not isinstance(loop.target, ast.Name) or loop.target.id != name:
        return True
    if isinstance(loop.iter, (ast.Tuple, ast.List)):
        return any(_may_be(item, scope, line, hops) for item in loop.iter.elts)
    return True


def _is_tested(name: str, scope: Scope, line: int) -> bool:
    """Whether an `if`, a `while` or an assert above compares it, or asks whether it is 0."""
    tests = (item.test for item in own_nodes(scope) if isinstance(item, _TESTS) and item.lineno <= line)
    return any(_asks(part, name) for test in tests for part in clauses_of(test))


def _asks(test: ast.expr, name: str) -> bool:
    """`kept`, `kept < 1`; not `dim % max(kept, 1)`."""
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    return any(ast.unparse(item) == name for item in sides)
