"""What calls of the program's own native code were passed: tensors by the variables that held them, also a caller's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.own_code.own_libraries import OwnCall, OwnLibraries
from pytracer.analyze.evidence.preconditions.call import given_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes, parameters, scope_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def passed_tensor(view: ProcessView, call: OwnCall, name: str) -> Argument | None:
    """Of a variable of the call: by the function around it, where that has not returned, else by who called that."""
    tree = syntax_tree(view.process.snapshot, call.at)
    if tree is None or call.at.line is None:
        return None
    scope = scope_of(tree, call.at.line)
    for frame in python_frames(view):
        if frame.file != call.at.file or frame.line is None:
            continue
        outer = scope_of(tree, frame.line)
        node = ast.parse(name, mode="eval").body if outer is scope else None
        if node is None and isinstance(scope, _FUNCTIONS) and is_parameter(scope, name):
            node = _handed_on(outer, scope, name, frame.line)
        given = given_of(view, frame, node) if node is not None else None
        if given is not None and given.tensor is not None:
            return given.tensor
    return None


def _handed_on(
    outer: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, line: int
) -> ast.expr | None:
    """What a function passes for the parameter `name` of another one, where only one call above or at a line does."""
    if lines_that_bind(function, name):
        return None
    names = parameters(function)
    place = names.index(name) - (names[:1] == ["self"])
    calls = [
        item
        for item in own_nodes(outer)
        if isinstance(item, ast.Call) and called_name(item) == function.name and item.lineno <= line
    ]
    if len(calls) != 1 or any(isinstance(item, ast.Starred) for item in calls[0].args):
        return None
    by_name = keyword_value(calls[0], name)
    return by_name if by_name is not None else calls[0].args[place] if place < len(calls[0].args) else None


def kept_address(view: ProcessView, libraries: OwnLibraries) -> str | None:
    """`` `table` of install(), whose address line 17 passes, `` of the only call that passes a local's that is gone."""
    found = list(_kept(view, libraries))
    return found[0] if len(found) == 1 else None


def _kept(view: ProcessView, libraries: OwnLibraries) -> Iterator[str]:
    frames = program_frames(view)
    running = {frame.function.rpartition(".")[2] for frame in map(python_frame, python_frames(view)) if frame.function}
    trees = program_files(view.process.snapshot, frames)
    for call in libraries.calls:
        tree = trees.get(call.at.file or "")
        scope = scope_of(tree, call.at.line) if tree is not None and call.at.line is not None else None
        if not isinstance(scope, _FUNCTIONS) or scope.name in running:
            continue
        for name in call.passes:
            if lines_that_bind(scope, name) and not is_parameter(scope, name):
                yield f"`{name}` of {scope.name}(), whose address {libraries.line(call.at)} passes to {call.function}()"
