"""The one line that can have bound a variable at a place; nothing where another may have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from pytracer.analyze.evidence.slicing.spots import END
from pytracer.analyze.evidence.syntax.bindings import registered
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import held_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, places_that_bind, reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, all_parameters, is_main_part, own_nodes, spans

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
Binding = tuple[int, ast.AST | None, int | None]


def bindings_of(scope: ast.AST, name: str) -> Iterator[Binding]:
    """Lines that bind it, the value, and which part of it; no value of a loop, a `with` or `x += y`."""
    return iter(_all_bindings(scope).get(name, ()))


@lru_cache(maxsize=1 << 12)  # see nodes_of()
def _all_bindings(scope: ast.AST) -> dict[str, list[Binding]]:
    found: dict[str, list[Binding]] = {}
    for node in own_nodes(scope):
        for name, binding in _bindings(node):
            found.setdefault(name, []).append(binding)
    return found


def _bindings(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """Of one node, for each variable."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from ((name, (node.lineno, *part)) for name, part in _parts(target, node.value))
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.AugAssign)):
        yield from ((name, (node.lineno, None, None)) for name in held_names(node.target))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        at = node.optional_vars.lineno
        yield from ((name, (at, None, None)) for name in held_names(node.optional_vars))
    elif isinstance(node, ast.Call) and (held := registered(node)) is not None:
        yield held[0], (node.lineno, held[1], None)


def _parts(target: ast.expr, value: ast.AST) -> Iterator[tuple[str, tuple[ast.AST | None, int | None]]]:
    """Each variable of a target, with the value that it is a part of; none where that is not certain."""
    direct = variable(target)
    if direct is not None:
        yield direct, (value, None)
    elif isinstance(target, (ast.Tuple, ast.List)):
        elements = [variable(item) for item in target.elts]
        starred = any(isinstance(item, ast.Starred) for item in target.elts)
        for name in held_names(target):
            known = name in elements and not starred
            yield name, (value, elements.index(name)) if known else (None, None)


@lru_cache(maxsize=1 << 12)  # see nodes_of()
def last_binding(scope: Scope, name: str, line: int) -> Binding | None:
    """None also where another one may be meant: a branch was or was not taken, or a round of a loop set it before."""
    reached = reaching(scope, name, line) if not isinstance(scope, ast.Lambda) and line != END else None
    if reached is not None:
        bound = reached if name in all_parameters(scope) or name.startswith("self.") else reached - {ENTRY}
        if len(bound) != 1:
            return None
    found = [*bindings_of(scope, name)]
    before = [item for item in found if item[0] < line and not _other_branch(scope, item[0], line)]
    above = sorted(before, key=lambda item: item[0])
    if not above:
        return None
    last = above[-1]
    if reached is not None and last[0] not in reached:
        return None
    around = [item for item in own_nodes(scope) if isinstance(item, _BRANCHES) and line != END]
    for item in around:
        inside = spans(item, line)
        if not inside and len(above) > 1 and item.lineno < last[0] <= (item.end_lineno or 0):
            return None
        carried = any(line <= other[0] <= (item.end_lineno or 0) for other in found)
        if inside and carried and isinstance(item, LOOPS) and last[0] < item.lineno:
            return None
    return last


def element_of(value: ast.AST | None, index: int | None) -> ast.expr | None:
    """Of what `bindings_of` gives: `b` of `x, y = a, b`; None where that part is not written out."""
    if index is None:
        return value if isinstance(value, ast.expr) else None
    whole = isinstance(value, (ast.Tuple, ast.List)) and not any(isinstance(item, ast.Starred) for item in value.elts)
    return value.elts[index] if whole and isinstance(value, (ast.Tuple, ast.List)) and index < len(value.elts) else None


def is_demonstration(tree: ast.Module, line: int) -> bool:
    """Below `if __name__ == "__main__"`, which does not run in a file that is imported."""
    return any(is_main_part(item) and spans(item, line) for item in tree.body)


def only_global(tree: ast.Module, name: str) -> Binding | None:
    """Which of several a function met is not known; nor whether another function has set it."""
    if len(places_that_bind(tree, name)) > 1:
        return None
    found = [*bindings_of(tree, name)]
    declared = any(isinstance(item, ast.Global) and name in item.names for item in nodes_of(tree))
    return found[0] if len(found) == 1 and not declared else None


def _other_branch(scope: Scope, one: int, line: int) -> bool:
    """Whether an `if` has the first line in its body, and the second in its `else`."""
    return any(
        isinstance(item, ast.If)
        and item.orelse
        and item.lineno < one < item.orelse[0].lineno <= line <= (item.end_lineno or 0)
        for item in own_nodes(scope)
    )
