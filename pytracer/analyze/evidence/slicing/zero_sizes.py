"""Why a tensor that a module keeps is empty: `size = channels if track else 0`, and who passes `track=False`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.failing.not_finite.reach import values_bound
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_parameter, own_nodes, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder
from pytracer.report.job import PythonFrame

_QUOTED = 60
_SELF = "self."
_SETS, _OF_SETTING = "register_buffer", 2


class ZeroSize(msgspec.Struct, frozen=True):
    """`words`: ``line 28 makes their size 0 (`channels if track else 0`), and line 53 passes `track=False` ``."""

    words: str
    places: tuple[Place, ...]


def zero_size(view: ProcessView, item: Holder) -> ZeroSize | None:
    """None where the module's class does not choose the size so, in one place."""
    name = plain_expression(item.expression)
    at = item.frame
    frame = PythonFrame(file=at.file, line=at.line) if at is not None else None
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None or not name.startswith(_SELF):
        return None
    owner = class_around(tree, scope_of(tree, frame.line))
    methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)] if owner is not None else []
    found = [(method, chosen) for method in methods for chosen in _chosen(method, name)]
    if len(found) != 1:
        return None
    method, chosen = found[0]
    line = place_of(view, frame.file, chosen.lineno)
    words = f"{line} makes the size 0 (`{shortened(ast.unparse(chosen), _QUOTED)}`)"
    places: list[Place] = [(frame.file, chosen.lineno)]
    passing = _passing(view, method, chosen)
    if passing is not None:
        file, number, text = passing
        words += f", and {place_of(view, file, number)} passes `{text}`"
        places.append((file, number))
    return ZeroSize(words, tuple(places))


def _chosen(method: ast.FunctionDef, name: str) -> Iterator[ast.IfExp]:
    """The expressions of a method that may make the size of the attribute 0."""
    for value in _made(method, name):
        size = value.args[0] if len(value.args) == 1 else None
        if isinstance(size, ast.Name):
            bound = [item for item, index in values_bound(method, size.id) if index is None]
            size = bound[0] if len(bound) == 1 and isinstance(bound[0], ast.expr) else None
        if isinstance(size, ast.IfExp) and (_is_zero(size.body) or _is_zero(size.orelse)):
            yield size


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0


def _made(method: ast.FunctionDef, name: str) -> Iterator[ast.Call]:
    """`torch.zeros(size)` of `self.x = torch.zeros(size)`, and of `self.register_buffer("x", torch.zeros(size))`."""
    for value, index in values_bound(method, name):
        if index is None and isinstance(value, ast.Call):
            yield value
    for node in own_nodes(method):
        if not isinstance(node, ast.Call) or called_name(node) != _SETS or len(node.args) < _OF_SETTING:
            continue
        first, held = node.args[0], node.args[1]
        named = isinstance(first, ast.Constant) and first.value == name.removeprefix(_SELF)
        if named and isinstance(held, ast.Call):
            yield held


def _passing(view: ProcessView, method: ast.FunctionDef, chosen: ast.IfExp) -> tuple[str, int, str] | None:
    """The only call of the program that passes, by its name, what makes the test choose 0."""
    test, wanted = chosen.test, _is_zero(chosen.body)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, wanted = test.operand, not wanted
    if not isinstance(test, ast.Name) or not is_parameter(method, test.id):
        return None
    found = [
        (file, item.value.lineno, f"{item.arg}={ast.unparse(item.value)}")
        for file, tree in program_files(view.process.snapshot, program_frames(view)).items()
        for call in nodes_of(tree)
        if isinstance(call, ast.Call)
        for item in call.keywords
        if item.arg == test.id and isinstance(item.value, ast.Constant) and bool(item.value.value) == wanted
    ]
    return found[0] if len(found) == 1 else None
