"""The branch on the rank around a line that makes a process group, which other ranks left out."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._text import capital, shortened
from pytracer.analyze.collectives.alike_tests import constructor_values, is_alike
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import (
    comes_alone,
    is_for_one_rank,
    is_of_rank,
    is_rank,
    one_rank_number,
    reads_rank,
)
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of, spans, spans_body
from pytracer.analyze.naming import place_words
from pytracer.report.job import PythonFrame

_QUOTED = 60


def group_branch_words(
    tree: ast.Module, made: PythonFrame, elsewhere: PythonFrame, makers: Sequence[int], others: Sequence[int]
) -> str | None:
    """`train.py:12 in setup makes one below `if rank in CRITICS:` (line 11): ...`; None where no such branch is sure.

    Args:
        tree: Of the file of `made`.
        made: The line that made the group on `makers`.
        elsewhere: Where `others` made their next group instead.
        makers: Ranks that made it.
        others: Ranks that did not.
    """
    line = made.line
    if line is None or (made.file, line) == (elsewhere.file, elsewhere.line):
        return None
    around = [item for item, is_around in deciding_ifs(tree, line) if is_around]
    branch = next((item for item in around if not is_alike(tree, item)), None)
    if branch is None or not _asks_rank(tree, branch) or not _parts(branch, line, makers, others):
        return None
    if elsewhere.file == made.file and spans(branch, elsewhere.line or 0):
        return None
    names = {called_name(call) for call in calls_on(tree, line)}
    if any(called_name(call) in names for item in around for call in _calls_beside(item, line)):
        return None  # the others make theirs there
    is_elif = any(item.orelse == [branch] and item.col_offset == branch.col_offset for item in _ifs(tree))
    text = f"`{'elif' if is_elif else 'if'} {shortened(ast.unparse(branch.test), _QUOTED)}:`"
    where = "below" if spans_body(branch.body, line) else "in the `else` of"
    return (
        f"{capital(place_words(made))} makes one {where} {text} (line {branch.lineno}): take it out of that branch, "
        "the list of ranks says who is a member; or pass use_local_synchronization=True there."
    )


def own_list_words(tree: ast.Module, made: PythonFrame) -> str | None:
    """`` The list of ranks at train.py:15 (`sorted([rank, peer])`) has the rank in it ``: groups of each rank's own."""
    calls = [item for item in calls_on(tree, made.line or 0) if called_name(item) == "new_group" and item.args]
    given = calls[0].args[0] if len(calls) == 1 else None
    if given is None or not is_of_rank(given) or _goes_through_ranks(tree):
        return None
    return (
        f"The list of ranks at {place_words(made)} (`{shortened(ast.unparse(given), _QUOTED)}`) has the rank in it, so "
        "that each rank makes groups of its own: go through the groups of all ranks on every rank "
        "(`itertools.combinations(range(world_size), 2)` for pairs), and keep those that the rank is in."
    )


def _goes_through_ranks(tree: ast.Module) -> bool:
    """Whether a `for` counts a rank up, as each rank may do alike: `for rank in range(0, world_size, 2)`."""
    targets = (item.target for item in nodes_of(tree) if isinstance(item, (ast.For, ast.comprehension)))
    return any(is_rank(part) for item in targets for part in nodes_of(item))


def _asks_rank(tree: ast.Module, branch: ast.If) -> bool:
    """Itself, by a variable of its function that is bound once, or by an attribute that the constructor sets."""
    scope = scope_of(tree, branch.lineno)
    parts = branch.test.values if isinstance(branch.test, ast.BoolOp) else [branch.test]
    apart = [item for item in parts if not is_alike(tree, ast.copy_location(ast.If(item, [], []), branch))]
    return bool(apart) and all(_is_of_rank(tree, scope, item, branch.lineno) for item in apart)


def _is_of_rank(tree: ast.Module, scope: Scope, test: ast.expr, line: int) -> bool:
    if reads_rank(test):
        return True
    for item in nodes_of(test):
        values: list[ast.AST | None] = []
        if isinstance(item, ast.Name):
            values = [value for at, value in lines_that_bind(scope, item.id) if at < line]
        elif isinstance(item, ast.Attribute):
            values = [value for value, _ in constructor_values(tree, scope, variable(item) or "") or ()]
        if len(values) == 1 and values[0] is not None and reads_rank(values[0]):
            return True
    return False


def _parts(branch: ast.If, line: int, makers: Sequence[int], others: Sequence[int]) -> bool:
    """Whether a branch for one rank alone has that one on its side; others are not known to have other ranks."""
    if is_for_one_rank(branch.test) is None:
        return True
    number = one_rank_number(branch.test)
    alone = makers if comes_alone(branch, line, around=True) else others
    return number is None or [*alone] == [number]


def _calls_beside(branch: ast.If, line: int) -> list[ast.Call]:
    """Those of the side of a branch that does not have the line."""
    beside = branch.orelse if spans_body(branch.body, line) else branch.body
    return [item for part in beside for item in nodes_of(part) if isinstance(item, ast.Call)]


def _ifs(tree: ast.Module) -> list[ast.If]:
    return [item for item in nodes_of(tree) if isinstance(item, ast.If)]
