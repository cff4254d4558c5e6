"""Calls of operators that torch's own line made just before, in a function of its file: the hook of weight_norm().

`setattr(module, self.name, self.compute_weight(module))` has made its weight when the attribute is set; what it passed
to the operator are parameters of a module, which are recorded with their sizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.lifetime.variables import plain_expression, python_frames, registered_name
from pytracer.analyze.evidence.preconditions.call import BoundCall, given_of, operator_calls, passed_arguments
from pytracer.analyze.evidence.preconditions.modules import called_module
from pytracer.analyze.evidence.preconditions.terms import Given
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import function_named
from pytracer.analyze.known.operators import Precondition
from pytracer.analyze.naming import short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame

_TORCH = "/torch/"


def library_calls(view: ProcessView, known: Mapping[str, Precondition]) -> Iterator[BoundCall]:
    """Of torch's frames above the program's innermost line."""
    between: list[PythonFrame] = []
    for frame in python_frames(view):
        if not is_library_file(frame.file):
            break
        tree = syntax_tree(view.process.snapshot, python_frame(frame)) if _TORCH in (frame.file or "") else None
        if tree is not None and frame.line is not None:
            for call in calls_on(tree, frame.line):
                yield from _made_by(view, frame, tree, call, known)
        between.append(frame)


def _made_by(
    view: ProcessView, frame: PythonFrame, tree: ast.Module, call: ast.Call, known: Mapping[str, Precondition]
) -> Iterator[BoundCall]:
    """Of the operators that a function of the file calls, which the frame's line calls with its own variables."""
    function = function_named(tree, called_name(call) or "")
    plain = all(isinstance(item, ast.Name) for item in call.args) and not call.keywords
    if function is None or not plain or function.name == (frame.function or "").rpartition(".")[2]:
        return
    of_self = isinstance(call.func, ast.Attribute) and variable(call.func.value) == "self"
    names = [item.arg for item in function.args.args][of_self:]
    passed = {name: item.id for name, item in zip(names, call.args, strict=False) if isinstance(item, ast.Name)}
    if of_self:
        passed["self"] = "self"
    module = called_module(view, frame)
    for name, inner in operator_calls(function, tree, known):
        found = {
            argument: item
            for argument, node in passed_arguments(inner, known[name])
            if (item := _value(view, frame, function, node, passed)) is not None
        }
        given = {argument: _named(view, item, module, {*passed.values()}) for argument, item in found.items()}
        place = f"{short_file(frame.file)}:{inner.lineno}"
        texts = {argument: item.name.strip("`") for argument, item in given.items()}
        yield BoundCall(name, given, known[name], inner.lineno, texts, place=place)


def _value(
    view: ProcessView, frame: PythonFrame, function: ast.AST, node: ast.expr, passed: Mapping[str, str]
) -> Given | None:
    """An attribute of what the frame passes, also one that a line before reads by `getattr(module, name + "_g")`."""
    if isinstance(node, ast.Name):
        bound = [value for _, value in lines_that_bind(function, node.id)]
        if not bound and node.id in passed:
            return given_of(view, frame, ast.Name(passed[node.id]))
        if len(bound) != 1 or not isinstance(bound[0], ast.expr):
            return None
        node = bound[0]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in passed:
        return given_of(view, frame, ast.Attribute(ast.Name(passed[node.value.id]), node.attr))
    read = _read_by_name(node)
    if read is None or read[0] not in passed:
        return None
    found = {
        name
        for item in (view.crash.holders if view.crash is not None else ())
        if item.frame == frame
        and (name := plain_expression(item.expression)).startswith(f"{passed[read[0]]}.")
        and name.endswith(read[1])
        and name.count(".") == 1
    }
    return given_of(view, frame, ast.parse(found.pop(), mode="eval").body) if len(found) == 1 else None


def _read_by_name(node: ast.expr) -> tuple[str, str] | None:
    """`module` and `_g` of `getattr(module, self.name + "_g")`."""
    if not isinstance(node, ast.Call) or called_name(node) != "getattr" or len(node.args) != 2:
        return None
    owner, name = node.args
    if not isinstance(owner, ast.Name) or not isinstance(name, ast.BinOp) or not isinstance(name.right, ast.Constant):
        return None
    return (owner.id, name.right.value) if isinstance(name.right.value, str) else None


def _named(view: ProcessView, item: Given, module: str | None, owners: set[str]) -> Given:
    """By what the program calls the module, `self.conv1.weight_g` of `module.weight_g`; else by the model's name."""
    owner, _, attribute = item.name.strip("`").partition(".")
    if owner not in owners or not attribute:
        return item
    registered = registered_name(view, item.base) if module is None and item.base else None
    name = f"{module}.{attribute}" if module is not None else registered
    return structs.replace(item, name=f"`{name}`") if name is not None else item
