"""Ranks that each name themselves as the root of a call: each one calls it for the tensors of its own share.

`if owner[i] == rank: dist.reduce(p.grad, dst=rank)`: a reduce() is one call of all ranks for one tensor, whose root is
the rank that owns that tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.collectives.description import place_of, value_of
from pytracer.analyze.collectives.left_out_calls import LeftOut
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.collectives.own_lines import only_call
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.syntax.calls import argument_at
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.ranks import is_rank
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

_ROOTS = {"reduce": "dst", "gather": "dst", "broadcast": "src", "scatter": "src"}
_PLACES = {"reduce": 1, "broadcast": 1, "gather": 2, "scatter": 2}


def own_root(sides: Sequence[tuple[ProcessView, Collective]], match: GroupMatch) -> LeftOut | None:
    """Where both are at one line, and each is the root of its own call."""
    view, call = sides[0]
    frame, node, name = place_of(call), only_call(view.process.snapshot, call), _ROOTS.get(call.op or "")
    root = argument_at(node, _PLACES[call.op], name) if node is not None and name is not None and call.op else None
    own = all(str(value_of(item, "root", match)) == f"{one.process.rank}" for one, item in sides)
    tree = syntax_tree(view.process.snapshot, frame)
    if not own or frame is None or frame.line is None or root is None or tree is None:
        return None
    found = _owner(tree, frame.line, root)
    if found is None:
        return None
    branch, owner = found
    head = quoted(view.process.snapshot, frame, branch.lineno)
    return LeftOut(
        f"each rank calls it only for its own share (line {branch.lineno}: {head}), with itself as {name}",
        f"A {call.op}() is one call of all ranks for one tensor, with one root: take it out of the branch of line "
        f"{branch.lineno} and call it on all ranks, with `{name}={source(owner)}`. Keep only what is done with the "
        "result for the rank that owns it.",
    )


def _owner(tree: ast.Module, line: int, root: ast.expr) -> tuple[ast.If, ast.expr] | None:
    """What the rank is compared with: by `if owner[i] == rank:` around a line, or `!= rank: continue` before it."""
    for item, around in deciding_ifs(tree, line):
        test = item.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        if not isinstance(test.ops[0], ast.Eq if around else ast.NotEq):
            continue
        sides = [test.left, test.comparators[0]]
        own = [is_rank(part) for part in sides]
        if sum(own) == 1 and any(ast.unparse(part) == ast.unparse(root) for part in sides):
            return item, sides[own.index(False)]
    return None
