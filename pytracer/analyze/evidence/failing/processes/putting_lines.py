"""The lines of a program that put something into the queue, or the pipe, that another line receives from."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.ended_senders import class_in, function_in
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.plain_values import is_plain_value
from pytracer.analyze.evidence.syntax.scopes import Scope, parameters, scope_of, spans
from pytracer.analyze.naming import LineWords

_PUTS = ("put", "put_nowait", "send")


class PuttingLine(msgspec.Struct, frozen=True):
    """`words`: the line with its text. `scope`: the function that it is in; `outermost`: with which a process begins.

    `plain`: nothing that it puts is a tensor: None, a number, a string.
    """

    words: LineWords
    call: ast.Call
    tree: ast.Module
    scope: Scope
    outermost: bool
    plain: bool


class _Given(msgspec.Struct, frozen=True):
    """Where a process works, and what the queue is called there; `plain`: which parameters are given no tensor."""

    file: str
    inside: ast.AST
    name: str
    plain: Mapping[str, bool] = {}


def putting_lines(at: FailingLine, got: str) -> list[PuttingLine]:
    """Those of the functions and classes that a process was given the queue for, in the order of the source.

    Args:
        at: The line that receives.
        got: The queue, as that line calls it.
    """
    found: dict[tuple[str, int], PuttingLine] = {}
    for given in _given(at, got):
        tree = at.files[given.file]
        for item in nodes_of(given.inside):
            if not isinstance(item, ast.Call) or called_name(item) not in _PUTS:
                continue
            owner = variable(item.func.value) if isinstance(item.func, ast.Attribute) else None
            if owner is None or owner.rpartition(".")[2] != given.name or (given.file, item.lineno) in found:
                continue
            scope = scope_of(tree, item.lineno)
            known = given.plain if scope is given.inside else {}
            found[given.file, item.lineno] = PuttingLine(
                at.in_file(given.file, item.lineno).quoted(f"{owner}.{called_name(item)}()"),
                item,
                tree,
                scope,
                scope is given.inside or (isinstance(given.inside, ast.ClassDef) and _name(scope) == "run"),
                all(is_plain_value(value, scope, known) for value in passed_values(item)),
            )
    return [found[key] for key in sorted(found)]


def behind_puts(at: FailingLine, lines: Sequence[PuttingLine]) -> str:
    """Where a process has put all: `behind line 8 (...)`, `behind the loop of line 6`, `before work() returns`."""
    if not lines:
        return "before they end"
    if len({id(item.scope) for item in lines}) > 1 or not lines[0].outermost:
        return "behind its last one of these calls" if len(lines) > 1 else f"behind its last call at {lines[0].words}"
    last = max(lines, key=lambda item: item.call.lineno)
    body = [item for item in getattr(last.scope, "body", ()) if spans(item, last.call.lineno)]
    if body and isinstance(body[0], ast.Expr):
        return f"behind {last.words}"
    if body and isinstance(body[0], LOOPS) and _ends(body[0]):
        return f"behind the loop of {at.in_file(last.words.file, body[0].lineno)}"
    return f"before {_name(last.scope)}() returns"


def _ends(loop: ast.AST) -> bool:
    """Whether it ends by itself, and so leads to the line behind it."""
    endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
    return not endless and not any(isinstance(item, ast.Return) for item in nodes_of(loop))


def _name(scope: Scope) -> str | None:
    return getattr(scope, "name", None)


def _given(at: FailingLine, got: str) -> Iterator[_Given]:
    names = {got.rpartition(".")[2], *_other_ends(at, got)}
    calls = [item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    found: list[_Given] = []
    for call in calls:
        target = keyword_value(call, "target") or (call.args[0] if called_name(call) == "spawn" and call.args else None)
        given = keyword_value(call, "args") or (
            call.args[1] if called_name(call) == "spawn" and call.args[1:] else None
        )
        function = function_in(at, ast.unparse(target).rpartition(".")[2]) if target is not None else None
        if function is not None and isinstance(given, (ast.Tuple, ast.List)):
            first = 1 if called_name(call) in ("spawn", "start_processes") or _is_bound(function[1]) else 0
            places = parameters(function[1])
            plain = {name: True for name in places[:first] if not _is_bound(function[1])}  # the number of the process
            plain |= {name: _is_known_plain(at, value) for name, value in zip(places[first:], given.elts, strict=False)}
            found += (
                _Given(*function, name, plain)
                for name, value in zip(places[first:], given.elts, strict=False)
                if _is_one_of(value, names)
            )
    for item in found:  # one function, begun by several calls
        others = [other.plain for other in found if other.inside is item.inside]
        yield structs.replace(item, plain={name: all(other.get(name) for other in others) for name in item.plain})
    for file, tree in at.files.items():
        for owner in nodes_of(tree):
            if isinstance(owner, ast.ClassDef):
                yield from (_Given(file, owner, name) for name in _given_to_class(at, calls, owner, names))


def _is_known_plain(at: FailingLine, value: ast.expr) -> bool:
    """Of what a call gives; a container may be filled later."""
    tree = next((item for item in at.files.values() if any(part is value for part in nodes_of(item))), None)
    if tree is None or any(isinstance(item, (ast.List, ast.Set, ast.Dict)) for item in nodes_of(value)):
        return False
    return is_plain_value(value, scope_of(tree, value.lineno), {})


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
