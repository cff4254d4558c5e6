"""A subtraction that makes class numbers begin at 0, and a negative one of what was 0: where the program has it."""

from __future__ import annotations

import ast

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.slicing.batch_items import batch_item
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_HOPS = 12
_KEEPS = frozenset(
    {
        *("long", "int", "float", "double", "to", "type", "astype", "cuda", "cpu", "numpy", "clone", "copy", "detach"),
        *("contiguous", "view", "reshape", "squeeze", "unsqueeze", "flatten", "ravel", "permute", "transpose"),
    }
)
_WRAPS = frozenset({"tensor", "as_tensor", "from_numpy", "LongTensor", "array", "asarray", "int", "stack"})
_LIBRARIES = ("torch", "np", "numpy")
_WRITES = frozenset(
    {
        "where",
        "full",
        "full_like",
        "new_full",
        "masked_fill",
        "index_fill",
        "fill",
        "pad",
        "pad_sequence",
        "get",
        "nan_to_num",
    }
)
_FILLS = frozenset({"masked_fill_", "fill_", "index_fill_", "fill"})
_THREE = 3


class Shift(msgspec.Struct, frozen=True):
    """`labels - 1`. `text`: as the program writes it; `mask`: what chooses the labels that it changes."""

    text: str
    spot: Spot
    line: int
    by: int
    mask: ast.expr | None = None


class Barely(msgspec.Struct, frozen=True):
    """`targets > 0` of floats, which is true of a number that should be 0. `line`: of the comparison."""

    compared: ast.expr
    text: str
    spot: Spot
    line: int


class Marker(msgspec.Struct, frozen=True):
    """`labels[unknown] = -1`."""

    text: str
    spot: Spot
    line: int


def what_makes(at: FailingLine, node: ast.AST, label: int) -> Shift | Marker | None:
    """Of a negative label: the last line that may have written it, as a marker or by a subtraction."""
    spot = at.slice.spot(0)
    for _ in range(_HOPS):
        if spot is None:
            return None
        found = _marker(node, spot, label) or _here(at, node, spot)
        if found is not None:
            return found if isinstance(found, Marker) or label < 0 <= label + found.by else None
        step = _step(at, node, spot)
        if step is None:
            return None
        node, spot = step
    return None


def _marker(node: ast.AST, spot: Spot, label: int) -> Marker | None:
    """The constant itself, written into the tensor."""
    if isinstance(node, ast.Call) and called_name(node) in _WRITES:
        given = any(whole(item) == label for item in passed_values(node))
        return Marker(source(node), spot, node.lineno) if given else None
    name = variable(node)
    above = (item for item in own_nodes(spot.scope) if isinstance(item, (ast.Assign, ast.Call)))
    writes = (item for item in above if name is not None and item.lineno < spot.line and _writes(item, name, label))
    return next((Marker(source(item), spot, item.lineno) for item in writes), None)


def _writes(item: ast.Assign | ast.Call, name: str, label: int) -> bool:
    """`labels[unknown] = -1`, `labels.masked_fill_(unknown, -1)`."""
    if isinstance(item, ast.Assign):
        parts = [part for part in item.targets if isinstance(part, ast.Subscript) and variable(part.value) == name]
        return bool(parts) and whole(item.value) == label
    own = isinstance(item.func, ast.Attribute) and _is_of(item.func.value, name)
    return own and called_name(item) in _FILLS and any(whole(given) == label for given in passed_values(item))


def _is_of(owner: ast.AST, name: str | None) -> bool:
    """`labels`, and `labels[2:]`."""
    return variable(owner.value if isinstance(owner, ast.Subscript) else owner) == name


def without_casts(node: ast.AST) -> ast.AST:
    """`mask` of `torch.from_numpy(mask).long()`."""
    for _ in range(_HOPS):
        inner = _inner(node)
        if inner is None:
            break
        node = inner
    return node


def _inner(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call):
        return None
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if called_name(node) in _WRAPS and (owner is None or source(owner) in _LIBRARIES) and node.args:
        return node.args[0]
    return owner if called_name(node) in _KEEPS and owner is not None and source(owner) not in _LIBRARIES else None


def _here(at: FailingLine, node: ast.AST, spot: Spot) -> Shift | None:
    by = _subtracted(at, node, spot)
    if by is not None:
        return Shift(source(node), spot, getattr(node, "lineno", spot.line), by)
    if isinstance(node, ast.Call) and called_name(node) == "where":
        mask, chosen = argument_at(node, 0, "condition"), argument_at(node, 1, "input")
        by = _subtracted(at, chosen, spot) if chosen is not None and len(node.args) == _THREE else None
        return Shift(source(node), spot, node.lineno, by, mask) if by is not None else None
    return _in_place(at, node, spot)


def _subtracted(at: FailingLine, node: ast.AST | None, spot: Spot) -> int | None:
    """`labels - 1`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return None
    return _positive(at, node.right, spot)


def _positive(at: FailingLine, node: ast.AST, spot: Spot) -> int | None:
    number = at.evaluated(node, spot)
    if number is None and isinstance(node, ast.Constant) and isinstance(node.value, float):
        number = int(node.value) if node.value.is_integer() else None
    return number if number is not None and number > 0 else None


def _in_place(at: FailingLine, node: ast.AST, spot: Spot) -> Shift | None:
    """`labels -= 1`, `labels[mask] -= 1`, `labels[mask] = labels[mask] - 1`, `labels.sub_(1)`: the last one above."""
    name = variable(node)
    found: list[Shift] = []
    scopes = [spot.scope] if name is not None else []
    for item in (part for scope in scopes for part in own_nodes(scope)):
        change = _change(item, name or "")
        if change is None or not isinstance(item, (ast.stmt, ast.expr)) or item.lineno >= spot.line:
            continue
        by = _positive(at, change[1], structs.replace(spot, line=item.lineno))
        if by is not None:
            found.append(Shift(source(item), spot, item.lineno, by, change[0]))
    bound = [line for line, _ in lines_that_bind(spot.scope, name or "") if line < spot.line]
    found = [item for item in found if item.line >= max(bound, default=0)]
    return max(found, key=lambda item: item.line, default=None)


def _change(item: ast.AST, name: str) -> tuple[ast.expr | None, ast.expr] | None:
    """The mask, and what is subtracted."""
    if isinstance(item, ast.AugAssign) and isinstance(item.op, ast.Sub):
        return _of_target(item.target, name, item.value)
    if (
        isinstance(item, ast.Call)
        and called_name(item) == "sub_"
        and isinstance(item.func, ast.Attribute)
        and item.args
    ):
        return _of_target(item.func.value, name, item.args[0])
    if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Subscript):
        value = item.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
            return _of_target(item.targets[0], name, value.right)
    return None


def _of_target(target: ast.AST, name: str, by: ast.expr) -> tuple[ast.expr | None, ast.expr] | None:
    if variable(target) == name:
        return None, by
    if isinstance(target, ast.Subscript) and variable(target.value) == name:
        return target.slice, by
    return None


def _step(at: FailingLine, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
    """Back to what has the same numbers."""
    inner = _inner(node)
    if inner is not None:
        return inner, spot
    sample = batch_item(at.slice, node, spot)
    if sample is not None and sample.made.node is not node:
        return sample.made.node, sample.made.spot
    made = at.slice.made(node, spot, calls=True)
    if made.through:
        return made.node, made.spot
    return (node.value, spot) if isinstance(node, ast.Subscript) else None


def barely_above(at: FailingLine, shift: Shift) -> Barely | None:
    """The mask, where it takes floats above 0: what they are minus 1 is a class only if they are whole numbers."""
    compared = _comparison(at, shift)
    if compared is None or shift.spot.depth is None:
        return None
    left = compared.compared
    name = variable(left)
    shape = shape_of(at.values_at(shift.spot.depth).get(name or ""))
    return compared if shape is not None and "float" in shape.dtype else None


def takes_zero(at: FailingLine, shift: Shift) -> bool:
    """Whether the subtraction reaches a label 0, as far as its mask is read."""
    return shift.mask is None or (_comparison(at, shift) is None and not _excludes_zero(at, shift))


def _excludes_zero(at: FailingLine, shift: Shift) -> bool:
    made = at.slice.made(shift.mask, structs.replace(shift.spot, line=shift.line), calls=True) if shift.mask else None
    tests = [item for item in nodes_of(made.node) if isinstance(item, ast.Compare)] if made is not None else []
    return any(isinstance(item.ops[0], ast.NotEq) and source(item.comparators[0]) in ("0", "0.0") for item in tests)


def _comparison(at: FailingLine, shift: Shift) -> Barely | None:
    """`targets > 0`, written there or made above."""
    if shift.mask is None:
        return None
    made = at.slice.made(shift.mask, structs.replace(shift.spot, line=shift.line), calls=True)
    node = made.node
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right, operation = node.left, node.comparators[0], node.ops[0]
        if isinstance(operation, ast.Lt):
            left, right = right, left
        if isinstance(operation, (ast.Gt, ast.Lt)) and source(right) in ("0", "0.0"):
            return Barely(left, source(node), made.spot, made.line)
    if isinstance(node, ast.Call) and called_name(node) == "gt" and isinstance(node.func, ast.Attribute):
        given = node.args[-1] if node.args else None
        if given is not None and source(given) in ("0", "0.0"):
            owner = node.args[0] if len(node.args) > 1 else node.func.value
            return Barely(owner, source(node), made.spot, made.line)
    return None
