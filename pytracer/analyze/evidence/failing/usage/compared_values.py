"""What the two sides of a comparison were, in the frames of a method that calls itself: of the last items."""

from __future__ import annotations

import ast
import itertools
import operator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.returns import Named
from pytracer.analyze.evidence.syntax.scopes import is_parameter, spans
from pytracer.analyze.naming import LineWords
from pytracer.report.job import PythonFrame

_COMPARED = 40
_SIZED = Pattern(r"\w+ of (\d+)(?:$|[ ,;])")
_NUMBER = Pattern(r"-?\d+(?:\.\d+)?$")
_COMPARES = {ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Eq: operator.eq}


class Compared(msgspec.Struct, frozen=True):
    """A comparison that held, and the values of its sides."""

    part: str
    values: str


def compared(
    at: FailingLine, test: ast.expr, spot: Spot, calls: tuple[tuple[ast.Call, Named], ...], frame: PythonFrame
) -> Compared | None:
    """Of a test, or of the first part of an `or` that held for all rejected items that are recorded."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]:
        if not isinstance(part, ast.Compare) or len(part.ops) != 1:
            continue
        compare = _COMPARES.get(type(part.ops[0]))
        left, right = (_side(at, item, spot, calls, frame) for item in (part.left, part.comparators[0]))
        if compare is None or left is None or right is None:
            continue
        pairs = [(a, b) for a in left[0] for b in right[0]]
        if pairs and all(compare(a, b) for a, b in pairs):
            values = [words for words in (left[1], right[1]) if words]
            return Compared(f"`{shortened(ast.unparse(part), _COMPARED)}`", list_words(values))
    return None


def _side(
    at: FailingLine, node: ast.expr, spot: Spot, calls: tuple[tuple[ast.Call, Named], ...], frame: PythonFrame
) -> tuple[list[float], str] | None:
    """The values of one side, and their words."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return [node.value], ""
    sized = isinstance(node, ast.Call) and called_name(node) == "len" and len(node.args) == 1
    inner = node.args[0] if isinstance(node, ast.Call) and sized else node
    held = _recorded(at, _in_method(inner, calls), frame, calls)
    pattern = _SIZED if sized else _NUMBER
    found = [match for value in held if (match := pattern.match(value)) is not None]
    if found and len(found) == len(held):
        numbers = [float(match.group(1) if sized else match.group(0)) for match in found]
        each = sorted(set(numbers))
        shown = f"{each[0]:g}" if len(each) == 1 else f"{each[0]:g} to {each[-1]:g}"
        return numbers, f"`{ast.unparse(node)}` was {shown} in {_of_last(len(numbers))}"
    number = at.evaluated(node, spot)
    if number is None:
        return None
    return [number], f"`{ast.unparse(node)}` is {number}{_set_at(at, node, spot)}"


def _of_last(count: int) -> str:
    return f"each of the last {count}" if count > 1 else "the last one"


def _set_at(at: FailingLine, node: ast.expr, spot: Spot) -> str:
    made = at.slice.made(node, spot, calls=True)
    where: LineWords | None = at.place(made.spot, made.line) if made.through else None
    return f", {where}" if where is not None else ""


def _recorded(
    at: FailingLine, node: ast.expr | None, frame: PythonFrame, calls: tuple[tuple[ast.Call, Named], ...]
) -> list[str]:
    """What an expression of the method was in its frames that had rejected an item."""
    if node is None:
        return []
    tree = at.slice.spot(at.frames.index(frame))
    method = tree.scope if tree is not None else None
    name = ast.unparse(node)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and method is not None:
        inside = _item_of_dict(method, node) if not _is_key_set(at, node, calls) else None
        name = ast.unparse(inside) if inside is not None else name
    depths = [n for n, item in enumerate(at.frames) if item == frame and at.values_at(n)]
    return [value for n in depths if (value := at.values_at(n).get(name)) is not None]


def _is_key_set(at: FailingLine, node: ast.Subscript, calls: tuple[tuple[ast.Call, Named], ...]) -> bool:
    """Whether a line sets the key anew, `data["label"] = ...`, but for one behind a call that led on from there."""
    key = ast.unparse(node.slice)
    behind = [(function, later) for (_, function), (later, _) in itertools.pairwise(calls)]
    return any(
        isinstance(item, ast.Subscript)
        and isinstance(item.ctx, ast.Store)
        and ast.unparse(item.slice) == key
        and not any(spans(function, item.lineno) and item.lineno > later.lineno for function, later in behind)
        for tree in program_files(at.snapshot, at.frames).values()
        for item in nodes_of(tree)
    )


def _item_of_dict(method: ast.AST, node: ast.Subscript) -> ast.expr | None:
    """`label` of `data["label"]`, where the method makes `data = {"label": label}`."""
    if not isinstance(node.value, ast.Name) or not isinstance(node.slice, ast.Constant):
        return None
    made = [value for _, value in lines_that_bind(method, node.value.id) if isinstance(value, ast.Dict)]
    if len(made) != 1:
        return None
    pairs = zip(made[0].keys, made[0].values, strict=True)
    found = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == node.slice.value]
    return found[0] if len(found) == 1 else None


def _in_method(node: ast.expr, calls: tuple[tuple[ast.Call, Named], ...]) -> ast.expr | None:
    """An expression of a function that was called, in the words of the method that began the calls."""
    for call, function in reversed(calls):
        base: ast.expr = node
        while isinstance(base, ast.Subscript):
            base = base.value
        if not isinstance(base, ast.Name) or not is_parameter(function, base.id) or lines_that_bind(function, base.id):
            return None
        given = argument_of(call, function, base.id)
        if given is None:
            return None
        node = _with_base(node, given)
    return node


def _with_base(node: ast.expr, base: ast.expr) -> ast.expr:
    if isinstance(node, ast.Subscript):
        return ast.Subscript(_with_base(node.value, base), node.slice, node.ctx)
    return base
