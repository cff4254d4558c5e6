"""Statements of the program that store a value into a container, an attribute or a sum."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.ends.growing_containers import EMPTIES
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of
from pytracer.analyze.naming import short_file

ON_HOST = Pattern(r"\.item\(|\.tolist\(|\.numpy\(|\.cpu\(|\bfloat\(|\bint\(|\blen\(")
_FILLS = ("append", "extend", "insert", "appendleft", "add", "update")
_GROWS = ("append", "extend", "appendleft")


class Stored(msgspec.Struct, frozen=True):
    """A statement that stores a value into a container."""

    file: str
    node: ast.stmt
    value: ast.expr
    scope: Scope

    @property
    def words(self) -> str:
        """``train.py:24: `losses.append(loss)` ``."""
        return f"{short_file(self.file)}:{self.node.lineno}: `{short(ast.unparse(self.node))}`"


def put_into(node: ast.stmt, name: str) -> ast.expr | None:
    """What `losses.append(x)`, `maps[k].append(x)`, `maps[k] = x` and `losses += [x]` store."""
    call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    if call is not None and isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS and call.args:
        return call.args[-1] if _is_named(call.func.value, name) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        return node.value if _is_named(node.targets[0], name) else None
    return node.value if isinstance(node, ast.AugAssign) and _is_named(node.target, name) else None


def added_to(node: ast.stmt, name: str) -> ast.expr | None:
    """`total += loss`, `total = total + loss`."""
    if isinstance(node, ast.AugAssign) and _is_named(node.target, name):
        return node.value
    one = isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_named(node.targets[0], name)
    if not one or not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp):
        return None
    left, right = node.value.left, node.value.right
    return right if _is_named(left, name) else left if _is_named(right, name) else None


def _is_named(node: ast.expr, name: str) -> bool:
    base = _inner(node)
    if isinstance(base, ast.Attribute):
        return "." in name and base.attr == name.rpartition(".")[2]
    return isinstance(base, ast.Name) and base.id == name


def _inner(node: ast.expr) -> ast.expr:
    """`self.maps` of `self.maps[layer]` and of `self.maps.setdefault(layer, [])`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and called_name(node) in ("setdefault", "get"):
            node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        else:
            return node


def sums_up(tree: ast.Module, stored: Stored, name: str) -> bool:
    """Whether a loop adds to it in each round, without beginning anew and without a backward pass."""
    loops = loops_around(tree, stored.node.lineno)
    if not loops:
        return False
    for node in nodes_of(loops[-1]):
        if isinstance(node, ast.Call) and called_name(node) == "backward":
            return False
        targets = node.targets if isinstance(node, ast.Assign) and node is not stored.node else []
        if any(_is_named(item, name) for target in targets for item in _targets(target)):
            return False
    return True


def _targets(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else [node]


def only_growing(at: FailingLine) -> Stored | None:
    """The only statement that appends to an attribute of an object, if nothing empties it."""
    found = [item for file, tree in at.files.items() for item in _appends(file, tree)]
    if len(found) != 1 or ON_HOST.search(ast.unparse(found[0][0].value)):
        return None
    stored, name = found[0]
    emptied = any(_empties(node, name) for tree in at.files.values() for node in nodes_of(tree))
    return None if emptied or isinstance(stored.value, (ast.Constant, ast.JoinedStr)) else stored


def _appends(file: str, tree: ast.Module) -> Iterator[tuple[Stored, str]]:
    for node in nodes_of(tree):
        call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr not in _GROWS or not call.args:
            continue
        base, scope = _inner(call.func.value), scope_of(tree, call.lineno)
        if isinstance(base, ast.Attribute) and getattr(scope, "name", "__init__") != "__init__":
            yield Stored(file, node, call.args[-1], scope), base.attr  # type: ignore[arg-type]


def _empties(node: ast.AST, name: str) -> bool:
    """`x.maps = []` beside __init__, `x.maps.clear()`, `x.maps[0].pop()`, `del x.maps[0]`, a deque of a length."""
    if isinstance(node, ast.FunctionDef) and node.name != "__init__":
        return any(
            isinstance(item, ast.Attribute) and item.attr == name and isinstance(item.ctx, (ast.Store, ast.Del))
            for item in nodes_of(node)
        )
    if isinstance(node, ast.Delete):
        return any(_is_attribute(item, name) for item in node.targets)
    if isinstance(node, ast.Call) and called_name(node) in EMPTIES and isinstance(node.func, ast.Attribute):
        return _is_attribute(node.func.value, name)
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(_is_attribute(item, name) for item in targets) and "maxlen" in ast.unparse(node.value)
    return False


def _is_attribute(node: ast.expr, name: str) -> bool:
    base = _inner(node)
    return isinstance(base, ast.Attribute) and base.attr == name
