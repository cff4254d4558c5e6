"""Where a program leaves out some items of what it goes through: `if keep(doc): yield doc`, `rows[mask]`, `filter()`.

How many are left is then up to the data, however evenly these were shared out before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import structs

from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, LOOPS, deciding_ifs
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, spans

_FILTERS = frozenset({"filter", "dropna", "query", "drop_duplicates", "takewhile", "dropwhile"})
_GROWS = frozenset({"append", "add", "put"})


def leaves_out(slice_: Slice, node: ast.AST, spot: Spot) -> tuple[ast.expr, Spot] | None:
    """The condition or the mask by which an expression, or the program's function that it calls, leaves some out.

    Args:
        slice_: Of the process.
        node: A step on the way back from a loop to where its items come from.
        spot: Its place.
    """
    if isinstance(node, COMPREHENSIONS):
        return next(((test, spot) for part in node.generators for test in part.ifs if not is_of_rank(test)), None)
    if isinstance(node, ast.Subscript):
        return (node, spot) if isinstance(node.slice, ast.Compare) else None
    if not isinstance(node, ast.Call):
        return None
    if called_name(node) in _FILTERS:
        return node, spot
    return next(_of_function(slice_, node, spot), None)


def _of_function(slice_: Slice, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """Of the function that is called, or of `__iter__` of the class: what decides whether it yields or keeps one."""
    found = slice_.function(call, spot)
    made = slice_.defined(call.func, spot) if found is None else None
    method = method_of(made[0], ("__iter__",)) if made is not None and isinstance(made[0], ast.ClassDef) else None
    if found is None and made is not None and method is not None:
        found = method, made[1]
    if found is None:
        return
    for item in own_nodes(found[0]):
        masked = _masking(item, found[1]) if isinstance(item, ast.Call) else None
        if masked is not None:
            yield masked, structs.replace(found[1], scope=found[0], line=masked.lineno, depth=None)
        is_kept = _keeps(item) and not _is_of_group(item, found[0])
        for test in _tests(found[1].tree, found[0], item.lineno) if is_kept else ():  # type: ignore[attr-defined]
            yield test, structs.replace(found[1], scope=found[0], line=test.lineno, depth=None)


def _keeps(item: ast.AST) -> bool:
    return isinstance(item, ast.Yield) or (isinstance(item, ast.Call) and called_name(item) in _GROWS)


def _is_of_group(item: ast.AST, function: ast.AST) -> bool:
    """Whether what is kept was gathered, as a batch is: the condition says when it is full, and leaves out none."""
    kept = [item.value] if isinstance(item, ast.Yield) else item.args if isinstance(item, ast.Call) else []
    names = {name for value in kept if value is not None for name in names_of(value)}
    return not names.isdisjoint(_gathered(function))


def _gathered(function: ast.AST) -> Iterator[str]:
    """`batch` of `batch.append(item)`, `buckets` of `buckets[key].append(item)`, `total` of `total += 1`."""
    for item in own_nodes(function):
        grown: ast.AST | None = item.target if isinstance(item, ast.AugAssign) else None
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and called_name(item) in _GROWS:
            grown = item.func.value
        while isinstance(grown, (ast.Subscript, ast.Attribute)) and variable(grown) is None:
            grown = grown.value
        name = variable(grown) if grown is not None else None
        if name is not None:
            yield name


def _masking(call: ast.Call, spot: Spot) -> ast.expr | None:
    """`rows.score > 2` of `rows.keep(rows.score > 2)`, a method that indexes attributes by it, and keeps the results.

    What the object is, is not asked: only one class of the file may have such a method.
    """
    masks = [item for item in call.args if isinstance(item, ast.Compare)]
    if len(masks) != 1 or not isinstance(call.func, ast.Attribute):
        return None
    own = [
        item
        for item in nodes_of(spot.tree)
        if isinstance(item, ast.FunctionDef) and item.name == called_name(call) and parameters(item)[:1] == ["self"]
    ]
    if len(own) != 1 or call.args.index(masks[0]) + 1 >= len(parameters(own[0])):
        return None
    name = parameters(own[0])[call.args.index(masks[0]) + 1]
    stored = [item for item in own_nodes(own[0]) if isinstance(item, ast.Assign) and _stores(item)]
    by_mask = any(
        isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Name) and part.slice.id == name
        for item in stored
        for part in nodes_of(item.value)
    )
    return masks[0] if by_mask else None


def _stores(item: ast.Assign) -> bool:
    return any(isinstance(part, ast.Attribute) for target in item.targets for part in nodes_of(target))


def _tests(tree: ast.Module, function: ast.AST, line: int) -> Iterator[ast.expr]:
    """Of a line within a loop of the function, the `if` of that loop by which it is not reached in each round."""
    loops = [item for item in own_nodes(function) if isinstance(item, LOOPS) and spans(item, line)]
    for test, _ in deciding_ifs(tree, line):
        if any(spans(loop, test.lineno) for loop in loops) and not is_of_rank(test.test):
            yield test.test
