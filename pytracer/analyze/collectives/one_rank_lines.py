"""Lines that one rank alone comes to, and what the others have instead."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank, one_rank_words
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans, spans_body

_INFINITE = Pattern(r"(?:math|np|numpy|torch)\.inf|float\('[+-]?inf(?:inity)?'\)", re.IGNORECASE)


def one_rank_branch(spot: Spot, line: int) -> str | None:
    """The ranks that come to a line below an `if` on the rank, which is not around the line that reads the value."""
    reader = {id(item) for item, around in deciding_ifs(spot.tree, spot.line) if around}
    for item, around in deciding_ifs(spot.tree, line):
        below = spans_body(item.body, line)
        one = is_for_one_rank(item.test)
        if id(item) in reader and line != spot.line:
            continue
        if around and one is not None and scope_of(spot.tree, item.lineno) is spot.scope:
            rank = one_rank_words(item.test)
            return rank if below is one else f"the ranks other than {rank}"
    return None


def on_two_sides(spot: Spot, one: int, other: int) -> bool:
    """Whether two lines are on the two sides of an `if` on the rank."""
    return any(
        is_for_one_rank(item.test) is not None and spans_body(item.body, one) != spans_body(item.body, other)
        for item, _ in deciding_ifs(spot.tree, one)
        if item.orelse and all(spans(item, line) for line in (one, other))
    )


def is_nothing(value: ast.AST | None) -> bool:
    """What a rank has that was not given a value: None, 0, False, an empty list; infinity."""
    if isinstance(value, ast.Constant):
        return not value.value
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    number = value.operand if isinstance(value, ast.UnaryOp) else value
    return number is not None and _INFINITE.fullmatch(ast.unparse(number)) is not None


def is_unchanged(value: ast.AST, spot: Spot) -> bool:
    """`loss` in `loss = best if rank != 0 else loss`."""
    statement = statement_at(spot, spot.line)
    name = variable(value)
    return name is not None and isinstance(statement, ast.Assign) and name in map(variable, statement.targets)


def statement_at(spot: Spot, line: int) -> ast.stmt | None:
    """The assignment of a line."""
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign)
    return next((item for item in own_nodes(spot.scope) if isinstance(item, kinds) and item.lineno == line), None)
