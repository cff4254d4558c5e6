"""What the statement of a line reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_headed, parameters, spans, statement_at

_DOTTED = Pattern(r"\w+(\.\w+)+")


def names_of_line(tree: ast.Module, line: int) -> list[str]:
    """Variables that the statement reads, `self.x` included; of a `raise`, those of the `if` around it."""
    return list(dict.fromkeys(name for part in _read_on(tree, line) for name in names_of(part)))


def items_of_line(tree: ast.Module, line: int) -> list[str]:
    """Variables of the comprehensions of the statement, which `names_of_line` leaves out."""
    found = [
        name.id
        for part in _read_on(tree, line)
        for item in nodes_of(part)
        if isinstance(item, ast.comprehension)
        for name in nodes_of(item.target)
        if isinstance(name, ast.Name)
    ]
    return list(dict.fromkeys(found))


def attributes_of_line(tree: ast.Module, line: int) -> list[str]:
    """Attributes of attributes and of variables that the statement reads: `self.graph.adj`, `batch.adj`."""
    found = []
    for part in _read_on(tree, line):
        called = {id(item.func) for item in nodes_of(part) if isinstance(item, ast.Call)}
        inner = {
            id(item.value) for item in nodes_of(part) if isinstance(item, ast.Attribute) and id(item) not in called
        }
        for item in nodes_of(part):
            whole = isinstance(item, ast.Attribute) and id(item) not in called and id(item) not in inner
            if whole and variable(item) is None and _DOTTED.fullmatch(text := ast.unparse(item)):
                found.append(text)
    return list(dict.fromkeys(found))


def names_of_call(tree: ast.Module, line: int) -> list[str]:
    """As `names_of_line`; of the head of a function, its parameters: torch.compile gives that line for all of it."""
    scope = function_headed(tree, line)
    return parameters(scope) if scope is not None else names_of_line(tree, line)


def subscripts_of_line(tree: ast.Module, line: int) -> tuple[list[str], list[str]]:
    """What the statement looks something up in, and by what: `images` and `current` of `f(images[current])`."""
    tables: list[str] = []
    keys: list[str] = []
    for part in _read_on(tree, line):
        for item in nodes_of(part):
            if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load):
                tables += names_of(item.value)
                keys += names_of(item.slice)
    return list(dict.fromkeys(tables)), [name for name in dict.fromkeys(keys) if name not in tables]


def _read_on(tree: ast.Module, line: int) -> Sequence[ast.AST]:
    """What the statement of a line evaluates itself; of a `raise`, the test of the `if` around it."""
    inner = statement_at(tree, line)
    if inner is None:
        return ()
    if isinstance(inner, ast.Raise):
        tests = [item for item in nodes_of(tree) if isinstance(item, (ast.If, ast.While)) and spans(item, line)]
        return [max(tests, key=lambda item: item.lineno).test] if tests else ()
    return [*_parts(inner)]


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement evaluates itself: of a loop or branch the head without the body."""
    if isinstance(statement, (ast.If, ast.While)):
        yield statement.test
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        yield statement.iter
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        yield from statement.items
    elif isinstance(statement, ast.AugAssign):
        yield statement.value
        yield statement.target
    elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try)):
        yield statement
