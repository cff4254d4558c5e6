"""A condition that goes by the clock of each process: in its text, or in the method that it calls.

`while step < args.steps and not timer.expired():`, where expired() returns `time.monotonic() - self.started > limit`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.alike_tests import is_alike
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, scope_of

_CLOCK = Pattern(r"\b(?:time|perf_counter|monotonic|process_time|now|utcnow)\(\)|\b(?:perf_counter|monotonic)_ns\(\)")
_KEEPS = frozenset({"int", "float", "bool", "round", "min", "max", "abs"})
_DEPTH = 3  # of methods that ask one another
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Files = Mapping[str, ast.Module]


def reads_clock(files: _Files, tree: ast.Module, line: int, test: ast.expr) -> str | None:
    """What of a condition goes by a clock, as `timer.expired()`; empty of the whole, None of nothing.

    Of parts joined by `and` or `or`, where all others come out the same on all ranks.

    Args:
        files: Of the program.
        tree: Of the file of the condition.
        line: Of the condition.
        test: The condition.
    """
    if _in_text(tree, line, test):
        return ""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    asked = [(item, name) for item in parts if (name := _of_part(files, tree, line, item)) is not None]
    others = [item for item in parts if not any(item is part for part, _ in asked)]
    return asked[0][1] if len(asked) == 1 and all(_is_alike(files, tree, item, line) for item in others) else None


def _of_part(files: _Files, tree: ast.Module, line: int, part: ast.expr) -> str | None:
    while isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
        part = part.operand
    if _in_text(tree, line, part):
        return ast.unparse(part)
    sides = [part.left, *part.comparators] if isinstance(part, ast.Compare) else [part]
    return next((ast.unparse(item) for item in sides if _asks_clock(files, item, _DEPTH)), None)


def _in_text(tree: ast.Module, line: int, test: ast.expr) -> bool:
    """Itself, or by what its variables were made of last."""
    texts = [ast.unparse(test)]
    scope = scope_of(tree, line)
    for item in nodes_of(test):
        if isinstance(item, ast.Name):
            above = [(at, value) for at, value in lines_that_bind(scope, item.id) if at < line and value is not None]
            last = [value for at, value in above if at == max(number for number, _ in above)]
            texts += [ast.unparse(value) for value in last if not _is_handed_on(value)]
    return isinstance(test, (ast.Compare, ast.Name)) and any(_CLOCK.search(text) for text in texts)


def _asks_clock(files: _Files, asked: ast.expr, depth: int) -> bool:
    """Whether it calls the program's only function of a name, or reads the only property, that returns by a clock."""
    called = isinstance(asked, ast.Call)
    named = asked.func if isinstance(asked, ast.Call) else asked
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", None) if called else None
    if name is None or depth == 0:
        return False
    found = [
        item for tree in files.values() for item in nodes_of(tree) if isinstance(item, _FUNCTIONS) and item.name == name
    ]
    if len(found) != 1 or called == _is_property(found[0]):
        return False
    given = [item.value for item in own_nodes(found[0]) if isinstance(item, ast.Return) and item.value is not None]
    given = [item for item in given if not isinstance(item, ast.Constant)]
    return len(given) == 1 and any(_is_clock(files, part, depth) for part in _values(given[0]))


def _is_clock(files: _Files, value: ast.expr, depth: int) -> bool:
    """`time.time() - self.started`, `self.elapsed`."""
    if _CLOCK.search(ast.unparse(value)) is not None:
        return not _is_handed_on(value)
    return isinstance(value, (ast.Call, ast.Attribute)) and _asks_clock(files, value, depth - 1)


def _values(value: ast.expr) -> Iterator[ast.expr]:
    """The sides of a comparison and of a difference; else itself."""
    if isinstance(value, ast.Compare):
        for item in (value.left, *value.comparators):
            yield from _values(item)
    elif isinstance(value, ast.BinOp):
        yield from _values(value.left)
        yield from _values(value.right)
    else:
        yield value


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [item.id for item in function.decorator_list if isinstance(item, ast.Name)]
    return "property" in names or "cached_property" in names


def _is_handed_on(value: ast.AST) -> bool:
    """`agree(time.time() > end)`: what a function makes of a clock's number may be the same on all ranks."""
    return isinstance(value, ast.Call) and bool(value.args or value.keywords) and called_name(value) not in _KEEPS


def _is_alike(files: _Files, tree: ast.Module, test: ast.expr, line: int) -> bool:
    """Also by what the program makes its variables of: `total_steps = len(loader)` is another one on each rank."""
    if not is_alike(tree, ast.If(test, [], [], lineno=line, col_offset=0)):
        return False
    given = parameters(scope_of(tree, line))
    for item in nodes_of(test):
        name = last_name(item) if isinstance(item, (ast.Name, ast.Attribute)) else None
        if name is None:
            continue
        if (isinstance(item, ast.Name) and name in given and _is_compared(test, item)) or _is_counted(files, name):
            return False
    return True


def _is_compared(test: ast.expr, name: ast.Name) -> bool:
    return isinstance(test, ast.Compare) and any(side is name for side in (test.left, *test.comparators))


def _is_counted(files: _Files, name: str) -> bool:
    """Whether a line of the program sets such a name, or passes it by that name, as a length."""
    for tree in files.values():
        for item in nodes_of(tree):
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.keyword)) else None
            named = any(last_name(part) == name for part in targets if part is not None)
            named = item.arg == name if isinstance(item, ast.keyword) else named
            calls = [part for part in nodes_of(value) if isinstance(part, ast.Call)] if named and value else []
            if any(called_name(call) == "len" for call in calls):
                return True
    return False
