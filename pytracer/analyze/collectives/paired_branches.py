"""Two branches on the rank that belong together: `if rank != 0: barrier()`, the work, `if rank == 0: barrier()`.

Every rank comes to one of them, so that neither decides whether a rank calls at all.
"""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank, one_rank_number
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body


def is_paired(tree: ast.Module, branch: ast.If, line: int) -> bool:
    """Whether the other ranks call the same as a line, below an `if` of the same function that asks the opposite."""
    one, number = is_for_one_rank(branch.test), one_rank_number(branch.test)
    if one is None or number is None or branch.orelse or not spans_body(branch.body, line):
        return False
    names = {called_name(item) for item in calls_on(tree, line)} - {None}
    return any(
        isinstance(item, ast.If)
        and item is not branch
        and is_for_one_rank(item.test) is (not one)
        and one_rank_number(item.test) == number
        and any(isinstance(part, ast.Call) and called_name(part) in names for at in item.body for part in nodes_of(at))
        for item in own_nodes(scope_of(tree, line))
    )
