"""The one line that can have bound a variable at a place; nothing where another may have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.slicing.spots import END
from pytracer.analyze.evidence.syntax.bindings import registered
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, places_that_bind, reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, all_parameters, is_main_part, own_nodes, spans

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)


def bindings_of(scope: ast.AST, name: str) -> Iterator[tuple[int, ast.AST | None, int | None]]:
    """Lines that bind it, the value, and which part of it; no value of a loop, a `with` or `x += y`."""
    for node in own_nodes(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if _is(target, name):
                    yield node.lineno, node.value, None
                elif isinstance(target, (ast.Tuple, ast.List)):
                    parts = [n for n, item in enumerate(target.elts) if _is(item, name)]
                    starred = any(isinstance(item, ast.Starred) for item in target.elts)
                    if parts and not starred:
                        yield node.lineno, node.value, parts[0]
                    elif holds(target, name):
                        yield node.lineno, None, None
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.AugAssign)):
            if holds(node.target, name):
                yield node.lineno, None, None
        elif (held := registered(node)) is not None and held[0] == name and isinstance(node, ast.Call):
            yield node.lineno, held[1], None
        elif isinstance(node, ast.withitem) and node.optional_vars is not None and holds(node.optional_vars, name):
            yield node.optional_vars.lineno, None, None


def last_binding(scope: Scope, name: str, line: int) -> tuple[int, ast.AST | None, int | None] | None:
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


def only_global(tree: ast.Module, name: str) -> tuple[int, ast.AST | None, int | None] | None:
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


def _is(target: ast.AST, name: str) -> bool:
    return variable(target) == name
