"""The lines of a program that put something into the queue, or the pipe, that another line receives from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.ended_senders import class_in, function_in
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters
from pytracer.analyze.naming import LineWords

_PUTS = ("put", "put_nowait", "send")


def putting_lines(at: FailingLine, got: str) -> list[LineWords]:
    """Those of the functions and classes that a process was given the queue for; each with its text.

    Args:
        at: The line that receives.
        got: The queue, as that line calls it.
    """
    found: dict[tuple[str | None, int], LineWords] = {}
    for file, inside, name in _given(at, got):
        for item in nodes_of(inside):
            if isinstance(item, ast.Call) and called_name(item) in _PUTS and isinstance(item.func, ast.Attribute):
                owner = variable(item.func.value)
                if owner is not None and owner.rpartition(".")[2] == name:
                    words = at.in_file(file, item.lineno).quoted(f"{owner}.{called_name(item)}()")
                    found.setdefault((file, item.lineno), words)
    return [*found.values()]


def _given(at: FailingLine, got: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Where a process works, and what the queue is called there."""
    names = {got.rpartition(".")[2], *_other_ends(at, got)}
    calls = [item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    for call in calls:
        target = keyword_value(call, "target") or (call.args[0] if called_name(call) == "spawn" and call.args else None)
        given = keyword_value(call, "args") or (
            call.args[1] if called_name(call) == "spawn" and call.args[1:] else None
        )
        function = function_in(at, ast.unparse(target).rpartition(".")[2]) if target is not None else None
        if function is not None and isinstance(given, (ast.Tuple, ast.List)):
            first = 1 if called_name(call) in ("spawn", "start_processes") or _is_bound(function[1]) else 0
            yield from (
                (function[0], function[1], name)
                for place, name in enumerate(parameters(function[1])[first:])
                if place < len(given.elts) and _is_one_of(given.elts[place], names)
            )
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.ClassDef):
                yield from ((file, item, name) for name in _given_to_class(at, calls, item, names))


def _given_to_class(at: FailingLine, calls: list[ast.Call], owner: ast.ClassDef, names: set[str]) -> Iterator[str]:
    """`self.queue`, which `Worker(i, queue)` was given."""
    init = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is None or class_in(at, owner.name) is not owner:
        return
    places = parameters(init)[1:]
    passed: set[str] = set()
    for call in calls:
        if called_name(call) == owner.name:
            passed |= {places[n] for n, item in enumerate(call.args[: len(places)]) if _is_one_of(item, names)}
            passed |= {item.arg for item in call.keywords if item.arg and _is_one_of(item.value, names)}
    for item in init.body:
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Name) and item.value.id in passed:
            yield from (target.attr for target in item.targets if isinstance(target, ast.Attribute))


def _is_one_of(node: ast.expr, names: set[str]) -> bool:
    name = variable(node)
    return name is not None and name.rpartition(".")[2] in names


def _is_bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return parameters(function)[:1] == ["self"]


def _other_ends(at: FailingLine, got: str) -> Iterator[str]:
    """`child` of `parent, child = Pipe()`."""
    for tree in at.files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Tuple):
                ends = [variable(part) for part in item.targets[0].elts]
                called = called_name(item.value) if isinstance(item.value, ast.Call) else None
                if called == "Pipe" and got in ends:
                    yield from (name.rpartition(".")[2] for name in ends if name is not None and name != got)
