"""Functions and classes of a module, and which of them a line is in."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeGuard

from pytracer.analyze.evidence.syntax.nodes import nodes_of

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = Function | ast.Module
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def is_main_part(item: ast.AST) -> TypeGuard[ast.If]:
    """`if __name__ == "__main__":`."""
    return isinstance(item, ast.If) and "__name__" in ast.unparse(item.test)


def function_headed(tree: ast.Module, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function whose `def`, or one of whose decorators, is at a line."""
    for item in nodes_of(tree):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.body:
            first = min([item.lineno, *(one.lineno for one in item.decorator_list)])
            if first <= line <= item.lineno < item.body[0].lineno:
                return item
    return None


def spans(node: ast.stmt | ast.expr | ast.ExceptHandler, line: int) -> bool:
    """Whether a line is one of its own."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def statement_at(tree: ast.AST, line: int) -> ast.stmt | None:
    """The innermost statement around a line; the first one of several alone on it. A decorator is of its `def`."""
    found: ast.stmt | None = None
    inside = deque(ast.iter_child_nodes(tree))
    while inside:
        item = inside.popleft()
        if isinstance(item, ast.stmt):
            decorators = getattr(item, "decorator_list", ())
            if not spans(item, line) and not any(spans(one, line) for one in decorators):
                continue
            found, inside = item, deque()
        inside += [part for part in ast.iter_child_nodes(item) if not isinstance(part, ast.expr)]
    return found


def spans_body(body: Sequence[ast.stmt], line: int) -> bool:
    """Whether a line lies between the first and the last of the statements of a block; an empty one has none."""
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or 0)


def scope_of(tree: ast.Module, line: int) -> Scope:
    """The innermost function around a line, else the module."""
    inside = [item for item in _functions(tree) if _spans_function(item, line)]
    return max(inside, key=lambda item: item.lineno, default=tree)


def named_function_around(tree: ast.Module, node: ast.stmt | ast.ExceptHandler) -> Scope:
    """The innermost `def` whose body has a statement, also where it is on the line of the `def`, else the module."""
    at = (node.lineno, node.col_offset)
    named = [item for item in _functions(tree) if not isinstance(item, ast.Lambda)]
    inside = [item for item in named if _begin(item.body[0]) <= at <= _end(item)]
    return max(inside, key=_begin, default=tree)


def _begin(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


@lru_cache(maxsize=64)  # asked for each line that is followed, of few files
def _functions(tree: ast.Module) -> tuple[Function, ...]:
    """All of a module, the outer ones first."""
    return tuple(item for item in nodes_of(tree) if isinstance(item, _FUNCTIONS))


def _spans_function(node: Function, line: int) -> bool:
    return node.lineno < line <= (node.end_lineno or 0)


@lru_cache(maxsize=1 << 12)  # see nodes_of()
def own_nodes(scope: ast.AST) -> tuple[ast.AST, ...]:
    """Of a scope without those of functions and classes inside; the scope itself is none."""
    return tuple(_inside(scope))


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    for item in ast.iter_child_nodes(scope):
        yield item
        if not isinstance(item, (*_FUNCTIONS, ast.ClassDef)):
            yield from _inside(item)


def is_parameter(scope: Scope, name: str) -> bool:
    """Whether a caller passes it."""
    return name in parameters(scope)


def parameters(scope: Scope) -> list[str]:
    """By name, without `*args` and `**kwargs`."""
    if isinstance(scope, ast.Module):
        return []
    given = scope.args
    return [item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def all_parameters(scope: Scope) -> list[str]:
    """With `*args` and `**kwargs`."""
    if isinstance(scope, ast.Module):
        return []
    spread = (item.arg for item in (scope.args.vararg, scope.args.kwarg) if item is not None)
    return [*parameters(scope), *spread]


def runs(tree: ast.Module, scope: Scope, line: int, function: str | None) -> bool:
    """Whether a frame's function is that of a scope: a class, and a function or lambda of one line, has none here."""
    name = (function or "").rpartition(".")[2]
    if name == "<lambda>":
        return isinstance(scope, ast.Lambda)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    named = (item for item in nodes_of(tree) if isinstance(item, kinds) and item.name == name and item is not scope)
    return name == getattr(scope, "name", None) or not any(spans(item, line) for item in named)


def only_reads_around(tree: ast.Module, line: int) -> bool:
    """Whether the only lambda of a line has that line alone and no parameters: all its variables are others'."""
    found = [item for item in _functions(tree) if isinstance(item, ast.Lambda) and spans(item, line)]
    return len(found) == 1 and found[0].end_lineno == found[0].lineno and not all_parameters(found[0])


def second_parameter(scope: Scope) -> str | None:
    """Of a method that takes one argument beside `self`: that."""
    return next(iter(parameters(scope)[1:]), None)


def class_named(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """The only class of that name."""
    found = [item for item in definitions(tree).get(name, ()) if isinstance(item, ast.ClassDef)]
    return found[0] if len(found) == 1 else None


def function_named(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The only function or method of that name."""
    found = [item for item in definitions(tree).get(name, ()) if not isinstance(item, ast.ClassDef)]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=64)  # asked for each call that is followed, of few files
def definitions(tree: ast.Module) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """All functions, methods and classes of a module by name, the outer ones first."""
    found: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]] = {}
    for item in nodes_of(tree):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(item.name, []).append(item)
    return found


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """What each node stands in."""
    return {child: node for node in nodes_of(tree) for child in ast.iter_child_nodes(node)}


def callee_named(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The only function of that name, or the constructor of the only class."""
    owner = class_named(tree, name)
    if owner is None:
        return function_named(tree, name)
    return next((part for part in owner.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)


def class_around(tree: ast.Module, scope: Scope) -> ast.ClassDef | None:
    """Of a method."""
    classes = (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef))
    return next((item for item in classes if any(part is scope for part in item.body)), None)


def is_method(tree: ast.Module, scope: Scope) -> bool:
    """Whether it is one of a class, and has the object as `self`."""
    return class_around(tree, scope) is not None and parameters(scope)[:1] == ["self"]


def qualified_name(tree: ast.Module, scope: Scope, otherwise: str = "<module>") -> str:
    """`Stats.refresh` of a method; `otherwise` of a module and of a lambda."""
    owner, name = class_around(tree, scope), getattr(scope, "name", otherwise)
    return f"{owner.name}.{name}" if owner is not None else name


def withs_around(tree: ast.Module, line: int) -> Iterator[ast.With]:
    """The `with` statements of its function that have been entered where a line runs."""
    for item in own_nodes(scope_of(tree, line)):
        if isinstance(item, ast.With) and spans_body(item.body, line):
            yield item


def default_of(scope: Scope, name: str) -> ast.expr | None:
    """Of a parameter."""
    if isinstance(scope, ast.Module):
        return None
    given = scope.args
    places = [*given.posonlyargs, *given.args]
    defaults = dict(zip([item.arg for item in places[::-1]], given.defaults[::-1], strict=False))
    named = {item.arg: value for item, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
    return {**defaults, **named}.get(name)


def classes_below(trees: Iterable[ast.Module], owner: ast.ClassDef) -> list[ast.ClassDef]:
    """The classes that are derived from one by its name, directly or not."""
    classes = [item for tree in trees for item in nodes_of(tree) if isinstance(item, ast.ClassDef)]
    names, known = {owner.name}, 0
    while len(names) > known:
        known = len(names)
        names |= {item.name for item in classes if any(ast.unparse(base) in names for base in item.bases)}
    return [item for item in classes if item.name in names and item.name != owner.name]
