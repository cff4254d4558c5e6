"""A variable that only one rank fills, and that a function uses behind its collective: the others have None there.

`merged = [None] * world if rank == 0 else None`, `gather_object(rows, merged)`, `sorted(merged)`: who lets all ranks
call that function has to see to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame


def unready_words(snapshot: Snapshot, frame: PythonFrame, here: str | None) -> str:
    """`` `merged` is None on the other ranks (line 79): ...``; nothing where no such variable is used behind a line.

    `frame`: the line that calls the collective; `here`: the file that is spoken of.
    """
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return ""
    scope = scope_of(tree, frame.line)
    if isinstance(scope, (ast.Module, ast.Lambda)):
        return ""
    for use in sorted(_uses(scope, frame.line), key=lambda item: item.lineno):
        bound = _none_on_others(tree, scope, use.id, frame.line)
        if bound is not None and not _is_asked(tree, use):
            line, used = (line_in(frame.file, number, here) for number in (bound, use.lineno))
            return (
                f" There `{use.id}` is None on the other ranks ({line}): where it is, let {scope.name}() return before "
                f"{used}, which uses it."
            )
    return ""


def _uses(scope: Scope, line: int) -> Iterator[ast.Name]:
    for item in own_nodes(scope):
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load) and item.lineno > line:
            yield item


def _none_on_others(tree: ast.Module, scope: Scope, name: str, line: int) -> int | None:
    """The line that leaves a variable None but on one rank, and that nothing before the collective changes."""
    bound = [(at, value) for at, value in lines_that_bind(scope, name) if at <= line]
    match bound:
        case [(at, ast.IfExp(test=test, body=body, orelse=other))] if is_of_rank(test):
            return at if is_none(body) != is_none(other) else None
        case [(at, value), (filled, _)] if value is not None and is_none(value):
            return at if any(around and is_of_rank(item.test) for item, around in deciding_ifs(tree, filled)) else None
    return None


def _is_asked(tree: ast.Module, use: ast.Name) -> bool:
    """Whether the rank alone comes there, or who has something in the variable; or whether it is only handed on."""
    if any(is_of_rank(item.test) or use.id in bare_names(item.test) for item, _ in deciding_ifs(tree, use.lineno)):
        return True
    return any(
        (
            isinstance(item, (ast.If, ast.IfExp, ast.While))
            and spans(item, use.lineno)
            and use.id in bare_names(item.test)
        )
        or (isinstance(item, ast.Return) and item.value is use)
        for item in own_nodes(scope_of(tree, use.lineno))
    )
