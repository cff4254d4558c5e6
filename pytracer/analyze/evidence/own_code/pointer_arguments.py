"""What a call gives a native function at each place: with `*columns` unpacked, and variables that hold a pointer.

`columns = [rows[key].ctypes.data for key in ("x", "y")]` before `lib.f(*columns, n)` gives `rows['x'].ctypes.data`, and
so on.
"""

from __future__ import annotations

import ast
import copy

from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import is_among, touched
from pytracer.analyze.evidence.syntax.imports import imported_names
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of

_POINTERS = ("ctypes", "data_ptr")
_CONVERTS = frozenset({
    "astype", "to", "type", "view", "double", "float", "half", "bfloat16", "long", "int", "short", "byte", "tolist",
})  # fmt: skip
_MAKES = frozenset({"array", "asarray", "ascontiguousarray", "asfortranarray", "require", "as_tensor", "tensor"})
_MOST = 32


def pointer_arguments(tree: ast.Module, call: ast.Call) -> list[ast.expr]:
    """In order, up to the first one that cannot be unpacked."""
    found: list[ast.expr] = []
    for item in call.args:
        if not isinstance(item, ast.Starred):
            found.append(_pointer(tree, call, item))
            continue
        parts = _unpacked(tree, call, item.value)
        if parts is None:
            break
        found += parts
    return found


def pointed_at(argument: ast.expr) -> str | None:
    """`rows['x']` of `rows['x'].ctypes.data`, `batch.x` of `batch.x.data_ptr()`: what is no plain variable."""
    held = [
        node.value
        for node in nodes_of(argument)
        if isinstance(node, ast.Attribute)
        and node.attr in _POINTERS
        and isinstance(node.value, (ast.Subscript, ast.Attribute))
    ]
    return ast.unparse(held[0]) if len(held) == 1 else None


def is_converted(argument: ast.expr) -> bool:
    """Whether what it points at is another array than the variable: `x.astype(np.float64)`, `np.asarray(x, float)`."""
    return any(_converts(node) for node in nodes_of(argument) if isinstance(node, ast.Call))


def _converts(call: ast.Call) -> bool:
    name = called_name(call)
    if name in _MAKES:
        return len(call.args) > 1 or any(item.arg == "dtype" for item in call.keywords)
    return name in _CONVERTS and isinstance(call.func, ast.Attribute)


def _pointer(tree: ast.Module, call: ast.Call, argument: ast.expr) -> ast.expr:
    """What a variable with a pointer was bound to, where its array is still the same."""
    if not isinstance(argument, ast.Name):
        return argument
    scope = scope_of(tree, call.lineno)
    bound = last_binding(scope, argument.id, call.lineno)
    value = bound[1] if bound is not None and bound[2] is None else None
    if bound is None or not isinstance(value, ast.expr) or not _makes_pointer(value):
        return argument
    names = {item.id for item in nodes_of(value) if isinstance(item, ast.Name)}
    same = all(_line(scope, name, bound[0]) == _line(scope, name, call.lineno) for name in names)
    return value if same else argument


def _line(scope: Scope, name: str, line: int) -> int | None:
    bound = last_binding(scope, name, line)
    return bound[0] if bound is not None else None


def _makes_pointer(value: ast.expr) -> bool:
    return any(isinstance(item, ast.Attribute) and item.attr in _POINTERS for item in nodes_of(value))


def _unpacked(tree: ast.Module, call: ast.Call, value: ast.expr) -> list[ast.expr] | None:
    if isinstance(value, ast.Name):
        bound = last_binding(scope_of(tree, call.lineno), value.id, call.lineno)
        made = bound[1] if bound is not None and bound[2] is None else None
        if bound is None or not isinstance(made, ast.expr) or _is_changed(tree, call, value.id, bound[0], made):
            return None
        value = made
    if isinstance(value, ast.Call) and called_name(value) in ("list", "tuple") and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, (ast.List, ast.Tuple, ast.Subscript)):
        return _items(value)
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return _of_comprehension(value)
    if isinstance(value, ast.Call) and called_name(value) == "map" and len(value.args) == 2:  # a function of each
        items = _literal(value.args[1])
        return [ast.Call(value.args[0], [item], []) for item in items] if items is not None else None
    return None


def _is_changed(tree: ast.Module, call: ast.Call, name: str, line: int, made: ast.expr) -> bool:
    """Whether anything between has the list that was made at a line, or may change what it was made of."""
    scope = scope_of(tree, call.lineno)
    # What is behind the call in a loop runs before it, too.
    loops = [item.end_lineno or 0 for item in own_nodes(scope) if isinstance(item, LOOPS) and _has(item, call, line)]
    own = {id(item) for item in nodes_of(call)} | {id(item) for item in nodes_of(made)}
    between = [
        item
        for item in nodes_of(scope)
        if id(item) not in own and line <= getattr(item, "lineno", 0) <= max([call.lineno, *loops])
    ]
    if any(isinstance(item, ast.Name) and item.id == name and isinstance(item.ctx, ast.Load) for item in between):
        return True
    modules = imported_names(tree)
    names = {item.id for item in nodes_of(made) if isinstance(item, ast.Name)} - {*modules}
    changed = touched(between)
    held = {part.id for item in between for part in _stored_into(item)}
    return any(is_among(item, changed) or item in held for item in names)


def _has(loop: ast.AST, call: ast.Call, line: int) -> bool:
    """Whether a loop has the call, but not the line above."""
    first, last = getattr(loop, "lineno", 0), getattr(loop, "end_lineno", 0)
    return line < first <= call.lineno <= last


def _stored_into(node: ast.AST) -> list[ast.Name]:
    """`rows` of `rows["x"] = y` and `rows["x"].shape = y`."""
    if not isinstance(node, (ast.Subscript, ast.Attribute)) or isinstance(node.ctx, ast.Load):
        return []
    return [item for item in nodes_of(node) if isinstance(item, ast.Name)]


def _of_comprehension(made: ast.ListComp | ast.GeneratorExp) -> list[ast.expr] | None:
    """Over the items of a literal, without a condition."""
    first = made.generators[0]
    items = _literal(first.iter)
    if len(made.generators) != 1 or first.ifs or not isinstance(first.target, ast.Name) or items is None:
        return None
    return [_Replaced(first.target.id, item).visit(copy.deepcopy(made.elt)) for item in items]


def _literal(node: ast.expr) -> list[ast.expr] | None:
    items = _items(node)
    return items if items and len(items) <= _MOST else None


def _items(node: ast.expr) -> list[ast.expr] | None:
    """Of a literal, with `*a[:3]` in it unpacked; of `a[:3]` itself `a[0]`, `a[1]` and `a[2]`."""
    if isinstance(node, ast.Subscript):
        return _of_slice(node)
    if not isinstance(node, (ast.List, ast.Tuple)):
        return None
    found: list[ast.expr] = []
    for item in node.elts:
        parts = _items(item.value) if isinstance(item, ast.Starred) else [item]
        if parts is None:
            return None
        found += parts
    return found


def _of_slice(node: ast.Subscript) -> list[ast.expr] | None:
    """Where both ends are written, and an end that is not counted from the last item."""
    part = node.slice
    if not isinstance(part, ast.Slice) or part.step is not None or not isinstance(part.upper, ast.Constant):
        return None
    first = part.lower.value if isinstance(part.lower, ast.Constant) else 0 if part.lower is None else None
    last = part.upper.value
    if not isinstance(first, int) or not isinstance(last, int) or not 0 <= first < last <= _MOST:
        return None
    load = ast.Load()
    return [ast.copy_location(ast.Subscript(node.value, ast.Constant(n), load), node) for n in range(first, last)]


class _Replaced(ast.NodeTransformer):
    """An expression with another one in place of a name."""

    def __init__(self, name: str, by: ast.expr) -> None:
        self._name = name
        self._by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._by) if node.id == self._name else node
