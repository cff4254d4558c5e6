"""Which ranks come to a line of the program: by an `if` on the rank around it, or around what calls its function.

The rank may be asked through a property, an attribute or a variable: `state.is_main`, of `return self.rank == 0`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.callers import calls_of, only_function
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank, one_rank_number, one_rank_words
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes, scope_of, spans, spans_body

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PROPERTIES = Pattern(r"property$")
_DEPTH, _MOST_CALLERS = 3, 8


class RankSide(msgspec.Struct, frozen=True):
    """`branch`, in `file`, lets one rank alone come to a line, or all `but` that one; `rank` in words.

    `number`: of that rank, None where it is a local one. `below`: the line is in its body, or in that of its `else`.
    """

    branch: ast.If
    file: str
    rank: str
    number: int | None
    but: bool
    below: bool

    def has(self, rank: int) -> bool | None:
        """Whether a rank comes there; None where its number says nothing."""
        return None if self.number is None else (rank == self.number) is not self.but

    @property
    def words(self) -> str:
        """`rank 0`, `the ranks other than rank 0`."""
        return f"the ranks other than {self.rank}" if self.but else self.rank


def rank_side(files: Mapping[str, ast.Module], file: str, line: int, depth: int = _DEPTH) -> RankSide | None:
    """None where all ranks may come there, or which do is not known.

    Args:
        files: Of the program.
        file: That of the line.
        line: The line.
        depth: How many callers out it may be looked for.
    """
    tree = files[file]
    for branch, around in deciding_ifs(tree, line):
        if not around and any(not spans(item, line) for item in _ifs_around(tree, branch)):
            continue  # an `if` that leaves, below another one
        test = asked_rank(files, tree, branch.test, branch.lineno)
        one, below = is_for_one_rank(test), around and spans_body(branch.body, line)
        if one is None or (_asks_more(test) and not (one and below)):
            continue  # `if is_main and better:` leaves its `else` to all
        return RankSide(branch, file, one_rank_words(test), one_rank_number(test), one is not below, below)
    scope = scope_of(tree, line)
    own = only_function(files, scope.name) if isinstance(scope, _FUNCTIONS) and depth else None
    if own is None or own[1] is not scope:
        return None
    calls = [*islice(calls_of(files, *own), _MOST_CALLERS + 1)]
    first: RankSide | None = None
    for item in calls if len(calls) <= _MOST_CALLERS else ():
        side = rank_side(files, item.file, item.call.lineno, depth - 1)
        if side is None or (first is not None and side.words != first.words):
            return None
        first = first or side
    return first


def _ifs_around(tree: ast.Module, branch: ast.If) -> list[ast.If]:
    return [item for item, around in deciding_ifs(tree, branch.lineno) if around]


def _asks_more(test: ast.expr) -> bool:
    return any(isinstance(item, ast.BoolOp) for item in nodes_of(test))


def asked_rank(files: Mapping[str, ast.Module], tree: ast.Module, test: ast.expr, line: int) -> ast.expr:
    """A condition of a line, with what it asks through a name as what that is, where it is the rank."""
    found: ast.expr = _Resolver(files, tree, line).visit(copy.deepcopy(test))
    return found


class _Resolver(ast.NodeTransformer):
    """Of the names in a condition at a line."""

    def __init__(self, files: Mapping[str, ast.Module], tree: ast.Module, line: int) -> None:
        self._files, self._tree, self._line = files, tree, line

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """By the only property, or the only line that sets it."""
        if any(_has_default(tree, node.attr) for tree in self._files.values()):
            return node
        return self._as_rank(node, [*_of_properties(self._files, node.attr), *_set_to(self._files, node.attr)])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """By the only line of the function that binds it; else of the module."""
        scope = scope_of(self._tree, self._line)
        if is_parameter(scope, node.id):
            return node
        own = [*bindings_of(scope, node.id)] or [*bindings_of(self._tree, node.id)]
        return self._as_rank(node, [value for _, value, index in own if index is None])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """By the only function of that name."""
        own = only_function(self._files, called_name(node) or "")
        return self._as_rank(node, [*_returned(own[1])] if own is not None else [])

    def _as_rank(self, node: ast.expr, values: list[ast.AST | None]) -> ast.expr:
        value = values[0] if len(values) == 1 else None
        known = isinstance(value, ast.expr) and is_for_one_rank(value) is not None
        return value if isinstance(value, ast.expr) and known else node


def _of_properties(files: Mapping[str, ast.Module], name: str) -> Iterator[ast.AST | None]:
    for tree in files.values():
        for item in nodes_of(tree):
            marks = item.decorator_list if isinstance(item, ast.FunctionDef) and item.name == name else []
            if isinstance(item, ast.FunctionDef) and any(_PROPERTIES.search(ast.unparse(one)) for one in marks):
                yield from _returned(item)


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST | None]:
    return (item.value for item in own_nodes(function) if isinstance(item, ast.Return))


def _has_default(tree: ast.Module, name: str) -> bool:
    """Whether a class has it itself, such as a dataclass: each object may have another value."""
    parts = (part for item in nodes_of(tree) if isinstance(item, ast.ClassDef) for part in item.body)
    return any(
        variable(target) == name
        for part in parts
        if isinstance(part, (ast.Assign, ast.AnnAssign))
        for target in (part.targets if isinstance(part, ast.Assign) else [part.target])
    )


def _set_to(files: Mapping[str, ast.Module], name: str) -> Iterator[ast.AST | None]:
    """`self.is_main = rank == 0`."""
    for tree in files.values():
        for item in nodes_of(tree):
            targets = item.targets if isinstance(item, ast.Assign) else []
            targets = [item.target] if isinstance(item, ast.AnnAssign) else targets
            if any(isinstance(one, ast.Attribute) and one.attr == name and variable(one) for one in targets):
                yield item.value  # type: ignore[attr-defined]
