"""The only call of a function in a program's files, also by a thread, a process or a pool that it is handed to."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL, argument_of
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import parameters

_HANDS_ON = ("submit", "apply", "apply_async", "run_in_executor", "call_soon", "to_thread", "spawn", "start_processes")


@dataclass(frozen=True)
class OnlyCall:
    """`call` is in `file`; it calls the function itself, or hands it to what does: then `passed` are its arguments."""

    file: str
    tree: ast.Module
    call: ast.Call
    passed: tuple[ast.expr, ...] | None = None

    def argument(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
        """What it passes for a parameter."""
        if self.passed is None:
            return argument_of(self.call, function, name)
        places = [item for item in parameters(function) if item != "self"]
        place = places.index(name) if name in places else len(self.passed)
        return self.passed[place] if place < len(self.passed) else None


def only_call(files: Mapping[str, ast.Module], function: ast.FunctionDef | ast.AsyncFunctionDef) -> OnlyCall | None:
    """None where there are several, or none; and for what every object may be called by, such as forward()."""
    if function.name in MADE_ON_CALL or function.name.startswith("__"):
        return None
    defined = [
        item
        for tree in files.values()
        for item in ast.walk(tree)
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == function.name
    ]
    found = [call for file, tree in files.items() for call in _calls(file, tree, function.name)]
    return found[0] if len(found) == 1 and len(defined) == 1 else None


def _calls(file: str, tree: ast.Module, name: str) -> Iterator[OnlyCall]:
    for call in (item for item in ast.walk(tree) if isinstance(item, ast.Call)):
        if called_name(call) == name:
            yield OnlyCall(file, tree, call)
            continue
        target = keyword_value(call, "target")
        if target is not None and _means(target, name):
            given = keyword_value(call, "args")
            yield OnlyCall(file, tree, call, tuple(given.elts) if isinstance(given, (ast.Tuple, ast.List)) else ())
        elif called_name(call) in _HANDS_ON and any(_means(item, name) for item in call.args):
            place = next(n for n, item in enumerate(call.args) if _means(item, name))
            rest = call.args[place + 1 :]
            whole = rest[0].elts if len(rest) == 1 and isinstance(rest[0], ast.Tuple) else rest
            yield OnlyCall(file, tree, call, tuple(whole))


def _means(node: ast.expr, name: str) -> bool:
    held = variable(node)
    return held == name or (isinstance(node, ast.Attribute) and node.attr == name)
