"""All expressions that may have made a value, also through lists, dicts and tuples that the program fills.

By syntax alone. Unlike `slice`, which ends where two lines may have given a value, this has both.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator

from msgspec import structs

from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.elements import ANY, Part, looped_over
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.slicing.kept_values import kept_in
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, scope_of

_MOST = 48
_ANY: Part = (ANY,)
_READS = frozenset({"get", "pop", "popleft", "popitem"})
_ORDERS = frozenset({"sorted", "reversed"})
_ITERATES = frozenset({"list", "tuple", "sorted", "reversed", "iter", "next"})

_Value = tuple[ast.AST, Spot, tuple[Part, ...]]


def makers(files: Files, back: Slice, node: ast.expr, spot: Spot, *, ordered: bool = False) -> list[Made]:
    """What is neither a variable nor a container of the program's; nothing where a way is too long to follow.

    `ordered`: what lists them in another order is no way, but makes them.
    """
    waiting: deque[_Value] = deque([(node, spot, ())])
    seen: set[tuple[int, tuple[Part, ...]]] = set()
    found: dict[int, Made] = {}
    while waiting:
        item = waiting.popleft()
        key = (id(item[0]), item[2])
        if key in seen:
            continue
        if len(seen) == _MOST:
            return []
        seen.add(key)
        orders = ordered and _is_reordering(item[0])
        steps = [step for step in _steps(files, back, *item) if not _is_nothing(step[0])] if not orders else []
        if ordered and isinstance(item[0], ITEM_COMPREHENSIONS) and not item[2]:
            steps = [(item[0].generators[0].iter, structs.replace(item[1], line=item[0].lineno), ())]
        waiting.extend(steps)
        if not steps:
            found.setdefault(id(item[0]), Made(item[0], item[1]))
    return [*found.values()]


def _is_reordering(node: ast.AST) -> bool:
    """`sorted(x)`, `x[::-1]`."""
    called = called_name(node) if isinstance(node, ast.Call) else None
    return called in _ORDERS or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice))


def _is_nothing(node: ast.AST) -> bool:
    return is_empty_container(node) or is_none(node)


def _steps(files: Files, back: Slice, node: ast.AST, spot: Spot, parts: tuple[Part, ...]) -> Iterator[_Value]:
    first, rest = (parts[0], parts[1:]) if parts else (None, ())
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        yield node.value, spot, (key if isinstance(key, (int, str)) else _ANY, *parts)
    elif isinstance(node, (ast.IfExp, ast.BoolOp)):
        values = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
        yield from ((value, spot, parts) for value in values)
    elif isinstance(node, ast.NamedExpr):
        yield node.value, spot, parts
    elif isinstance(node, (ast.Tuple, ast.List)) and first is not None:
        items = node.elts[first : first + 1] if isinstance(first, int) and first >= 0 else node.elts
        yield from ((value, spot, rest) for value in items)
    elif isinstance(node, ITEM_COMPREHENSIONS) and first is not None:
        yield node.elt, structs.replace(spot, line=node.elt.lineno), rest
    elif isinstance(node, ast.Dict) and first is not None:
        pairs = zip(node.keys, node.values, strict=True)
        yield from (
            (value, spot, rest) for key, value in pairs if first == _ANY or getattr(key, "value", first) == first
        )
    elif isinstance(node, ast.DictComp) and first is not None:
        yield node.value, structs.replace(spot, line=node.value.lineno), rest
    elif isinstance(node, ast.Call):
        yield from _of_call(files, node, spot, parts)
    elif isinstance(node, ast.Name):
        yield from _of_name(files, back, node, spot, parts)
    elif isinstance(node, ast.Attribute):
        yield from _filled(files, node, spot, parts)


def _of_call(files: Files, node: ast.Call, spot: Spot, parts: tuple[Part, ...]) -> Iterator[_Value]:
    name, owner = called_name(node), node.func.value if isinstance(node.func, ast.Attribute) else None
    function = called_function(files, spot.tree, node)
    if function is not None:
        file, scope = function
        for item in own_nodes(scope):
            if isinstance(item, ast.Return) and item.value is not None:
                yield item.value, Spot(file, files[file], scope, item.lineno, call=(node, spot)), parts
    elif name in _READS and owner is not None:
        yield owner, spot, (_ANY, *parts)
    elif name in _ITERATES and owner is None and node.args:
        yield node.args[0], spot, (_ANY, *parts) if name == "next" else parts


def _of_name(files: Files, back: Slice, node: ast.Name, spot: Spot, parts: tuple[Part, ...]) -> Iterator[_Value]:
    looped = looped_over(spot, node.id)
    if looped is not None:
        yield looped[0], spot, (*looped[1], *parts)
        return
    yield from _filled(files, node, spot, parts)
    yield from _bound(spot, node.id, parts)
    if node.id in parameters(spot.scope):
        passed = back.argument(node.id, spot)
        if passed is not None:
            yield *passed, parts
    elif not isinstance(spot.scope, ast.Module):
        yield from _bound(structs.replace(spot, scope=spot.tree, depth=None, call=None), node.id, parts)


def _bound(spot: Spot, name: str, parts: tuple[Part, ...]) -> Iterator[_Value]:
    """What lines of the scope set a variable to, whichever ran last."""
    for node in own_nodes(spot.scope):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            at = structs.replace(spot, line=node.lineno)
            if variable(target) == name:
                yield node.value, at, parts
            elif isinstance(target, (ast.Tuple, ast.List)):
                places = [n for n, item in enumerate(target.elts) if variable(item) == name]
                yield from ((node.value, at, (place, *parts)) for place in places)


def _filled(files: Files, node: ast.Name | ast.Attribute, spot: Spot, parts: tuple[Part, ...]) -> Iterator[_Value]:
    """What lines set an attribute to, of any object, or put into a container."""
    if isinstance(node, ast.Name):
        places: list[tuple[str | None, ast.Module, ast.AST]] = [(spot.file, spot.tree, spot.scope)]
        called = node.id
    else:
        places, called = [(file, tree, tree) for file, tree in files.items()], f".{node.attr}"
    for file, tree, around in places:
        for statement, value in kept_in(around, called):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            put_in = isinstance(statement, ast.Expr) or isinstance(target, ast.Subscript)
            if put_in and not parts:
                continue
            scope = scope_of(tree, statement.lineno)
            at = spot if scope is spot.scope else Spot(file, tree, scope, statement.lineno)
            yield value, structs.replace(at, line=statement.lineno), parts[1:] if put_in else parts
