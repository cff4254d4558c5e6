"""A variable that only one rank fills, and that a function uses behind its collective: the others have None there.

`merged = [None] * world if rank == 0 else None`, `gather_object(rows, merged)`, `sorted(merged)`: who lets all ranks
call that function has to see to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans, statement_at
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_NEED = frozenset(
    {"sorted", "len", "sum", "list", "tuple", "set", "dict", "max", "min", "any", "all", "enumerate", "zip", "reversed"}
    | {"iter", "map", "filter", "cat", "stack", "concat", "concatenate", "vstack", "hstack", "chain", "from_iterable"}
)
_COLLECTIVE = Pattern(
    r"(?:monitored_)?barrier|(?:all_(?:reduce|gather|to_all)|reduce|gather|scatter|broadcast)(?:_\w+)?\Z"
)


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
    statement = statement_at(scope, frame.line)
    end = (statement.end_lineno if statement is not None else None) or frame.line
    for use in sorted(_uses(scope, end), key=lambda item: item.lineno):
        bound = _none_on_others(tree, scope, use.id, frame.line)
        if bound is not None and not _is_asked(tree, use):
            line, used = (line_in(frame.file, number, here) for number in (bound, use.lineno))
            if _communicates(scope, use.lineno):
                return f" There `{use.id}` is None on the other ranks ({line}): let {used} use it only where it is not."
            return (
                f" There `{use.id}` is None on the other ranks ({line}): where it is, let {scope.name}() return before "
                f"{used}, which uses it."
            )
    return ""


def _uses(scope: Scope, line: int) -> Iterator[ast.Name]:
    """What fails with None; not what only hands it on, or prints it."""
    for item in own_nodes(scope):
        for used in _needed(item):
            if isinstance(used, ast.Name) and isinstance(used.ctx, ast.Load) and used.lineno > line:
                yield used


def _needed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        yield node.value
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.iter
    elif isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Call) and called_name(node) in _NEED:
        yield from node.args


def _communicates(scope: Scope, line: int) -> bool:
    """Whether a collective follows, which all ranks have to come to."""
    calls = (item for item in own_nodes(scope) if isinstance(item, ast.Call) and item.lineno >= line)
    return any(_COLLECTIVE.match(called_name(item) or "") for item in calls)


def _none_on_others(tree: ast.Module, scope: Scope, name: str, line: int) -> int | None:
    """The line that leaves a variable None but on one rank, and that nothing before the collective changes."""
    bound = lines_that_bind(scope, name)
    if any(at > line for at, _ in bound):
        return None
    match bound:
        case [(at, ast.IfExp(test=test, body=body, orelse=other))] if is_of_rank(test):
            return at if is_none(body) != is_none(other) else None
        case [(at, value), (filled, _)] if value is not None and is_none(value):
            return at if any(around and is_of_rank(item.test) for item, around in deciding_ifs(tree, filled)) else None
    return None


def _is_asked(tree: ast.Module, use: ast.Name) -> bool:
    """Whether the rank alone comes there, or who has something in the variable; or whether it is only handed on."""
    scope = scope_of(tree, use.lineno)
    if any(_asks(scope, item.test, use.id) for item, _ in deciding_ifs(tree, use.lineno)):
        return True
    for item in own_nodes(scope):
        if not isinstance(item, (ast.stmt, ast.expr)) or not spans(item, use.lineno):
            continue
        if isinstance(item, (ast.If, ast.IfExp, ast.While)) and _asks(scope, item.test, use.id):
            return True
        if isinstance(item, ast.BoolOp) and any(_asks(scope, part, use.id) for part in item.values[:-1]):
            return True
        if isinstance(item, ast.Try) and item.handlers:
            return True
    return False


def _asks(scope: Scope, test: ast.expr, name: str) -> bool:
    """For the rank, or the variable; also by a variable that has the answer: `is_writer = merged is not None`."""
    names = bare_names(test)
    answers = [value for item in names for _, value in lines_that_bind(scope, item) if value is not None]
    return any(is_of_rank(item) or name in bare_names(item) for item in (test, *answers))
