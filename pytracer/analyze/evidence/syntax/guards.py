"""The tests that some lines of a function stand below, where each is below one alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.evidence.syntax.tries import EXPECTING, hushes

_OTHERS = (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler)


class Guard(msgspec.Struct, frozen=True):
    """One branch. `test`: what leads to it: for a `case` the comparison that it means. `before`: the tests above it."""

    test: ast.expr
    line: int
    head: int  # the line of its `if` or `match`
    before: tuple[ast.expr, ...] = ()


def guards_of(scope: ast.AST, lines: Sequence[int], use: int) -> list[Guard] | None:
    """The branches that these lines are in, each once; None where one is in none, in an `else`, or in a loop or `try`.

    Args:
        scope: The function.
        lines: Statements of it.
        use: A line of it that none of these branches has; 0 for none.
    """
    found = [_guard_of(scope, line, use) for line in lines]
    kept = {item.line: item for item in found if item is not None}
    return [*kept.values()] if None not in found else None


def _guard_of(scope: ast.AST, line: int, use: int) -> Guard | None:
    around = [item for item in own_nodes(scope) if isinstance(item, (ast.If, ast.Match, *_OTHERS))]
    around = [item for item in around if item.lineno < line and spans(item, line) and not (use and spans(item, use))]
    if any(isinstance(item, _OTHERS) for item in around):
        return None
    heads = [item for item in around if not any(_goes_on_as(other, item) for other in around)]
    if len(heads) != 1:
        return None
    branches = _branches(heads[0]) if isinstance(heads[0], ast.If) else _cases(heads[0])  # type: ignore[arg-type]
    before: list[ast.expr] = []
    for test, at, body in branches:
        if any(spans(item, line) for item in body):
            return (
                Guard(test, at, heads[0].lineno, tuple(before)) if stands_in(body, line) and test is not None else None
            )
        before += [test] if test is not None else []
    return None


def _goes_on_as(first: ast.AST, other: ast.AST) -> bool:
    """Whether the second is an `elif` of the first."""
    return isinstance(first, ast.If) and len(first.orelse) == 1 and first.orelse[0] is other


def _branches(head: ast.If) -> Iterator[tuple[ast.expr | None, int, list[ast.stmt]]]:
    """`if`, each `elif`, and `else`, which has no test."""
    item = head
    while True:
        yield item.test, item.lineno, item.body
        if len(item.orelse) != 1 or not isinstance(item.orelse[0], ast.If):
            break
        item = item.orelse[0]
    yield None, item.lineno, item.orelse


def _cases(head: ast.Match) -> Iterator[tuple[ast.expr | None, int, list[ast.stmt]]]:
    for case in head.cases:
        values = [case.pattern] if isinstance(case.pattern, ast.MatchValue) else getattr(case.pattern, "patterns", [])
        parts = [item.value for item in values if isinstance(item, ast.MatchValue)]
        whole = len(parts) == len(values) and parts and case.guard is None
        compares = ast.Compare(head.subject, [ast.In()], [ast.Tuple(parts, ast.Load())])
        yield ast.copy_location(compares, case.pattern) if whole else None, case.pattern.lineno, case.body


def stands_in(body: Sequence[ast.stmt], line: int) -> bool:
    """Whether a line is one of these statements, or below a `with` among them: no test is between."""
    inner = [item for item in body if isinstance(item, (ast.With, ast.AsyncWith)) and spans(item, line)]
    if any(hushes(item, EXPECTING) for item in inner):
        return False  # an error may have kept the program from the line
    return any(item.lineno == line for item in body) or any(stands_in(item.body, line) for item in inner)
