"""What statements read and may change, by their syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.constants import ORDERS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, parameters

RANDOM = Pattern(
    r"(^|[._])(random|rng|randint|randrange|randperm|rand|randn|uniform|normal|gauss|choice|choices|shuffle|multinomial"
    r"|integers)\b"
)
# Functions that change nothing they are given.
PURE = frozenset(
    {
        *("len", "abs", "min", "max", "sum", "any", "all", "print", "str", "int", "float", "bool", "range", "repr"),
        *("isinstance", "sorted", "enumerate", "zip", "round", "list", "tuple", "set", "frozenset", "reversed"),
    }
)
_KEEPS = frozenset({"append", "add", "appendleft", "put", "insert", "remove", "discard"})  # an argument as it is


def names_read(node: ast.AST) -> list[str]:
    """What an expression reads: names, and attributes as they are written; no functions that are called."""
    called = {id(item.func) for item in nodes_of(node) if isinstance(item, ast.Call)}
    inner = {id(item.value) for item in nodes_of(node) if isinstance(item, ast.Attribute) and id(item) not in called}
    found = [
        ast.unparse(item)
        for item in nodes_of(node)
        if isinstance(item, (ast.Name, ast.Attribute)) and id(item) not in called and id(item) not in inner
        if not (isinstance(item, ast.Attribute) and not isinstance(item.value, (ast.Name, ast.Attribute)))
    ]
    return list(dict.fromkeys(found))


def bound_in(nodes: Iterable[ast.AST]) -> set[str]:
    """What statements bind, or store into: of `a[i] = 1` and `a.b = 1` also `a`."""
    found: set[str] = set()
    for item in nodes:
        targets: list[ast.expr] = []
        if isinstance(item, ast.Assign):
            targets = item.targets
        elif isinstance(item, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For)):
            targets = [item.target]
        elif isinstance(item, ast.Delete):
            targets = item.targets
        for target in targets:
            for part in nodes_of(target):
                if isinstance(part, (ast.Name, ast.Attribute)) and not isinstance(part.ctx, ast.Load):
                    found.add(ast.unparse(part))
                elif isinstance(part, (ast.Subscript, ast.Attribute)) and not isinstance(part.ctx, ast.Load):
                    found.add(ast.unparse(part.value))
    return found


def touched(nodes: Sequence[ast.AST], *, passed: bool = True) -> set[str]:
    """What they may change: what they bind, what a method of it is called of, and what they pass to functions."""
    found = bound_in(nodes)
    for item in nodes:
        if not isinstance(item, ast.Call):
            continue
        if isinstance(item.func, ast.Attribute):
            found.add(ast.unparse(item.func.value))
        name = called_name(item)
        pure = name in PURE | _KEEPS or (RANDOM.search(ast.unparse(item.func)) and name != "shuffle")
        if passed and not pure:
            given = passed_values(item)
            found |= {ast.unparse(one) for one in given if isinstance(one, (ast.Name, ast.Attribute))}
        if isinstance(item.func, ast.Attribute) and ast.unparse(item.func.value) == "self":
            found |= {"self"}
    return found


def is_own(scope: Scope, name: str) -> bool:
    """Whether only the function itself can bind a name: a variable of its own, of which no function inside knows."""
    if isinstance(scope, (ast.Module, ast.Lambda)) or "." in name:
        return False
    outer = [item for item in nodes_of(scope) if isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names]
    return not outer and (name in parameters(scope) or bool(lines_that_bind(scope, name)))


def compares_numbers(test: ast.expr) -> bool:
    """`attempt < 5`: what a function that is called cannot change, as it could the items of a list."""
    plain = (ast.Name, ast.Constant)
    return (
        isinstance(test, ast.Compare)
        and all(isinstance(item, ORDERS) for item in test.ops)
        and all(isinstance(item, plain) for item in (test.left, *test.comparators))
    )


def is_among(name: str, touched: set[str]) -> bool:
    """Whether a variable, or what holds it, is one of these: `self.at` is where `self` is."""
    parts = name.split(".")
    return any(".".join(parts[: count + 1]) in touched for count in range(len(parts)))


def is_plain(test: ast.expr) -> bool:
    """Whether it reads nothing but values: no attribute, no item, and no call but of functions like len()."""
    return all(
        not isinstance(item, (ast.Attribute, ast.Subscript, ast.Await))
        and not (isinstance(item, ast.Call) and called_name(item) not in PURE)
        for item in nodes_of(test)
    )
