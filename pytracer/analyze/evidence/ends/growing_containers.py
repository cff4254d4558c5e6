"""Containers that only grow: what a statement puts into a list or dict, which nothing empties or begins anew."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, loops_around
from pytracer.analyze.evidence.syntax.names import bare_names, elements, indexed, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans

_FILLS = ("append", "appendleft", "add", "extend")
EMPTIES = ("clear", "pop", "popleft", "popitem", "remove")
_INIT = "__init__"


def stored(node: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """Container and value of `history.append(x)`, `cache[key] = x`, `sum += x`; `h` of `h.setdefault(key, [])`."""
    call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    if call is not None and isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS and len(call.args) == 1:
        owner = call.func.value
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "setdefault":
            owner = owner.func.value
        return owner, call.args[0]
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        return (target.value, node.value) if not isinstance(target.slice, (ast.Constant, ast.Slice)) else None
    return (node.target, node.value) if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) else None


def only_grows(tree: ast.Module, scope: Scope, container: ast.expr, node: ast.stmt) -> bool:
    """Nothing empties it, or makes it anew in the loop that fills it; it is older than the round."""
    name = variable(indexed(container))
    if name is None:
        return False
    loops = loops_around(tree, node.lineno)
    if isinstance(node, ast.Assign) and any(_is_key_of_few(node.targets[0], loop) for loop in loops):
        return False
    if not loops and not name.startswith("self.") and lines_that_bind(scope, name):
        return False  # of one call of the function
    is_local = bool(lines_that_bind(scope, name)) and not isinstance(scope, ast.Module)
    own = {id(item) for item in own_nodes(scope)} if is_local else set[int]()
    for item in nodes_of(_owner(tree, node) if name.startswith("self.") else tree):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in EMPTIES:
            if _is(item.func.value, name):
                return False
        elif isinstance(item, ast.Delete):
            if any(_is(target, name) for target in item.targets):
                return False
        elif is_local and id(item) not in own:
            continue  # another function's variable of that name
        elif isinstance(item, (ast.Assign, ast.AnnAssign)) and item is not node and item.value is not None:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            made_anew = any(variable(part) == name for target in targets for part in elements(target))
            if name.startswith("self.") and made_anew and getattr(scope_of(tree, item.lineno), "name", "") != _INIT:
                return False  # a method may begin anew in each round
            begins = _is_new(item.value, name) or (
                isinstance(node, ast.AugAssign) and isinstance(item.value, ast.Constant)
            )
            if made_anew and (not begins or _in(loops[-1:], item)):
                return False
    if isinstance(node, ast.AugAssign) and not loops:
        return False
    return not any(name in bare_names(loop.target) for loop in loops if isinstance(loop, (ast.For, ast.AsyncFor)))


def _is_key_of_few(target: ast.expr, loop: ast.stmt) -> bool:
    """`last[phase]` of `for phase in ("train", "val")`: what is put there replaces the one before."""
    key = variable(target.slice) if isinstance(target, ast.Subscript) else None
    return (
        key is not None
        and isinstance(loop, (ast.For, ast.AsyncFor))
        and isinstance(loop.iter, (ast.Tuple, ast.List))
        and key in map(variable, elements(loop.target))
    )


def _is(node: ast.expr, name: str) -> bool:
    return variable(indexed(node)) == name


def _owner(tree: ast.Module, node: ast.stmt) -> ast.AST:
    """The class that a statement is in: another one's attribute of that name is another."""
    classes = [item for item in nodes_of(tree) if isinstance(item, ast.ClassDef) and spans(item, node.lineno)]
    return max(classes, key=lambda item: item.lineno, default=tree)


def _is_new(value: ast.expr, name: str) -> bool:
    """`[]`, `{}`, `defaultdict(list)`, `{'loss': []}`; no deque of a length, nor a part of what it was."""
    if isinstance(value, (ast.List, ast.Dict, ast.Tuple, ast.Set)):
        return True
    if isinstance(value, COMPREHENSIONS):  # `{name: [] for name in names}`
        return not any(variable(item) == name for item in nodes_of(value))
    names = ("list", "dict", "set", "deque", "defaultdict", "OrderedDict")
    return isinstance(value, ast.Call) and called_name(value) in names and "maxlen" not in ast.unparse(value)


def _in(loops: Sequence[ast.stmt], node: ast.stmt) -> bool:
    return any(spans(loop, node.lineno) for loop in loops)
