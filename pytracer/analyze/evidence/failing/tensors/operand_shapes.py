"""Two operands whose shapes do not fit: which dimension is transposed, missing or unequal, and where it was made."""

from __future__ import annotations

import ast
import math
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine, Origin
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.failing.tensors.planes import layer_size, of_images, planes
from pytracer.analyze.evidence.failing.tensors.result_shapes import Shapes
from pytracer.analyze.evidence.failing.usage.settings import by_constants, set_by
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_OF_OWNER = frozenset(
    {"masked_fill", "masked_fill_", "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "pow", "maximum",
     "minimum", "copy_", "masked_select", "lerp", "addcmul_"}
)  # fmt: skip
_INPUT = Pattern(r"^(?:n|num|d|dim|size)?_?in(?:put|_|$)|feat|^width|^dim")
_CHILD = Pattern(r"\.[1-9]\d*$")  # of an nn.Sequential, where another one makes its input
_TELLING = 3  # a smaller number may be any
_FIXED = Pattern(r"nn\.Parameter|register_buffer|zeros|ones|arange|randn|tril|triu")


def _operands(at: FailingLine) -> tuple[ast.AST, ast.AST] | None:
    """Of `a @ b`, `a + b`, torch.matmul(a, b), `a.masked_fill(b, 0)`."""
    for item in nodes_of(at.node) if at.node is not None else ():
        owner = item.func.value if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) else None
        if isinstance(item, ast.Call) and called_name(item) in _OF_OWNER and at.shape(owner) is not None and item.args:
            return owner or item, item.args[0]
        if isinstance(item, ast.BinOp):
            return item.left, item.right
        if isinstance(item, ast.Compare) and len(item.comparators) == 1:
            return item.left, item.comparators[0]
        if isinstance(item, ast.Call) and len(item.args) == 2 and not isinstance(item.args[0], ast.Starred):
            return item.args[0], item.args[1]
        if isinstance(item, ast.AugAssign):
            return item.target, item.value
    return None


def unfit_matrices(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of a product, or of nn.Linear and its input."""
    rows, inner, expected, columns = (int(item) for item in found.groups())
    layer = at.layer
    if layer is not None and layer.kind == "Linear" and layer.options.get("in_features") == expected:
        return _linear(at, layer.name, layer.given, expected)
    both = _operands(at)
    if both is None or not _is_product(at):
        return None
    if all(at.shape(item) is None for item in both):
        return None  # two numbers of `torch.rand(4, 7)`
    left, right = source(both[0]), source(both[1])
    one = f"`{left}` has {inner} columns and `{right}` {expected} rows, which must be equal"
    if inner == columns:
        return f"{one}: `{right}` is transposed, write `{right}.T` at line {at.line}{made_words(at, both[1])}."
    if rows == expected:
        return f"{one}: `{left}` is transposed, write `{left}.T` at line {at.line}{made_words(at, both[0])}."
    return f"{one}{made_words(at, both[0])}{made_words(at, both[1])}. Change the one that was made with the wrong size."


def _is_product(at: FailingLine) -> bool:
    """And no call of a layer, or of F.linear(), that multiplies by a weight of another form."""
    products = ("matmul", "mm", "bmm", "dot", "mv")
    return any(
        (isinstance(item, ast.BinOp) and isinstance(item.op, ast.MatMult))
        or (isinstance(item, ast.AugAssign) and isinstance(item.op, ast.MatMult))
        or (isinstance(item, ast.Call) and called_name(item) in products)
        for item in nodes_of(at.node or ast.Pass())
    )


def _made_from(at: FailingLine, node: ast.AST) -> tuple[str, Origin] | None:
    """Its only name, and where that came from."""
    inside = names_in(node)
    name = variable(node) or (inside[0] if len(inside) == 1 else None)
    origin = at.came_from(name) if name is not None else None
    return (name, origin) if name is not None and origin is not None else None


def made_words(at: FailingLine, node: ast.AST) -> str:
    """``; `x` is from line 3: `x = f()` ``, or nothing."""
    found = _made_from(at, node)
    return f"; `{found[0]}` is from {found[1].place}: `{found[1].text}`{found[1].also}" if found is not None else ""


def _linear(at: FailingLine, name: str, given: Shape | None, expected: int) -> str | None:
    by = set_by(at, name, expected) or ("" if at.made(name) is not None else _chosen(at, name, expected))
    layer = f"`{name}`{at.came(name)} takes {expected} features{by}"
    if given is None or not given.sizes:
        return None
    last = given.sizes[-1]
    call = next((item for item in nodes_of(at.node) if isinstance(item, ast.Call)), None) if at.node else None
    passed = call.args[0] if call is not None and call.args else None
    what = f"`{source(passed)}`" if passed is not None and at.shape(passed) == given else "its input"
    flat = math.prod(given.sizes[1:])
    has = f"{layer}, and {what} is {given.words}"
    if len(given.sizes) > 2 and flat == expected:
        return f"{has}: it was not flattened. torch.flatten(x, 1) before the layer makes it [{given.sizes[0]}, {flat}]."
    if len(given.sizes) == 2 and given.sizes[0] == expected:
        return f"{has}: it is transposed; pass its .T."
    if last == 1 and given.elements == expected * given.sizes[0]:
        return f"{has}: a dimension of 1 is last; squeeze(-1) it."
    made = at.made(name)
    size = layer_size(made) if made is not None else None
    sides = planes(at, size, made.spot, last, expected) if made is not None and size is not None else None
    if sides is not None and len(given.sizes) == 2:
        return (
            f"{layer} ({sides.count} planes of {sides.takes}x{sides.takes}), and {what} {given.words} has "
            f"{sides.count} of {sides.has}x{sides.has}{of_images(at, sides)}. Resize the images, set "
            f"in_features={last} ({sides.count} * {sides.has} * {sides.has}), or put "
            f"nn.AdaptiveAvgPool2d({sides.takes}) before it is flattened."
        )
    whole = _without_batch(at, given, expected)
    if whole is not None:
        return f"{has}: {whole}"
    inside = _CHILD.search(name) is not None and passed is not None and at.shape(passed) != given
    came = at.came(passed) if passed is not None and not inside else ""
    flattened = re.search(r"flatten|view\(|reshape\(|\.size\(0\)", came) is not None or "Flatten" in str(at.values)
    if flattened:
        return (
            f"{has}{came}: the flattened size follows from the images' size. Set in_features={last}, resize the "
            "images, or put nn.AdaptiveAvgPool2d before it."
        )
    return f"{has}{came}, so {last}. Make the layer with in_features={last}, or give it what has {expected}."


def _without_batch(at: FailingLine, given: Shape, expected: int) -> str | None:
    """All samples of a batch in one row, as torch.flatten(x) leaves them."""
    if len(given.sizes) != 1 or given.sizes[0] % expected or given.sizes[0] == expected:
        return None
    count = given.sizes[0] // expected
    return (
        f"these are {count} times {expected} numbers in one row, so the batch was flattened with them. Keep its "
        "dimension: torch.flatten(x, 1), or x.view(x.size(0), -1)."
    )


def _chosen(at: FailingLine, name: str, size: int) -> str:
    """``, `len(columns) - 1` (line 48: `model = build(len(columns) - 1, 32)`)``: given to the call that made it."""
    spot = at.slice.spot(0)
    found = at.made(name.partition(".")[0] if not name.startswith("self.") else name, calls=False)
    if found is None or spot is None or not isinstance(found.node, ast.Call) or size < _TELLING:
        return ""
    here = found.spot.scope is spot.scope
    given = [*found.node.args[:1], *(item.value for item in found.node.keywords if _INPUT.search(item.arg or ""))]
    variable_ones = [item for item in given if not isinstance(item, ast.Constant)]
    equal = [item for item in variable_ones if _number_at(at, item, found.spot, here=here) == size]
    return f", `{source(equal[0])}` ({at.shown(found)})" if len(equal) == 1 else ""


def _number_at(at: FailingLine, node: ast.expr, spot: Spot, *, here: bool) -> float | None:
    return number_at(at, node) if here else at.evaluated(node, spot)


def unequal_operands(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of an operator that broadcasts."""
    first, second, dimension = (int(item) for item in found.groups())
    both = _operands(at)
    known = Shapes(at)
    computed = (ast.Compare, ast.BinOp, ast.UnaryOp)
    shapes = [known.of(item) if isinstance(item, computed) else at.shape(item) for item in both or ()]
    if both is None or len(shapes) != 2:
        return None
    if shapes[0] is None or shapes[1] is None:
        return _beside_call(at, both, shapes, (first, second, dimension))
    one, other = shapes[0], shapes[1]
    left, right = f"`{source(both[0])}`", f"`{source(both[1])}`"
    if one.sizes == other.sizes[::-1] and len(one.sizes) > 1:
        return f"{left} {one.words} and {right} {other.words} are each other's transpose: transpose one (`.T`)."
    missing = _missing_dimension(one, other, left, right)
    if missing is not None:
        return missing
    made = [made_words(at, item) for item in both]
    place = dimension % max(len(one.sizes), len(other.sizes))
    if _has(one, place, second, other) and _has(other, place, first, one):
        first, second = second, first  # of masked_fill(), and of what is written in place
    if not _has(one, place, first, other) or not _has(other, place, second, one):
        return None  # what a library made of them
    unequal = f"Dimension {place} is {first} in {left} {one.words} and {second} in {right} {other.words}"
    origins = [_made_from(at, item) for item in both]
    fixed = [n for n, found in enumerate(origins) if found is not None and _FIXED.search(found[1].text)]
    if len(fixed) == 1 and any(isinstance(item, ast.Attribute) for item in _within(both[fixed[0]])):
        size = (first, second)[fixed[0]]
        return (
            f"{unequal}{made[fixed[0]]}, made for {size}{made_for(at, both[fixed[0]], size)}: cut or pad the input "
            f"to {size}, or make it for {(second, first)[fixed[0]]} and slice it to the input (`[:, :n]`)."
        )
    return f"{unequal}{made[0]}{made[1]}. Only a dimension of 1 is broadcast: correct the one that has the wrong size."


def _within(node: ast.AST) -> list[ast.AST]:
    """An operand, and what a comparison of it with a number reads: `self.mask` of `self.mask == 0`."""
    return [node, node.left] if isinstance(node, ast.Compare) else [node]


def _beside_call(
    at: FailingLine, both: tuple[ast.AST, ast.AST], shapes: list[Shape | None], sizes: tuple[int, int, int]
) -> str | None:
    """`out + self.shortcut(x)`: what a call gave is not recorded, and has the size of its only input, or twice that."""
    places = [n for n, item in enumerate(both) if isinstance(item, ast.Call) and shapes[n] is None]
    known = [n for n, shape in enumerate(shapes) if shape is not None]
    if len(places) != 1 or len(known) != 1:
        return None
    call, whole = both[places[0]], shapes[known[0]]
    given = call.args[0] if isinstance(call, ast.Call) and len(call.args) == 1 else None
    passed = at.shape(given)
    if whole is None or passed is None or given is None or not isinstance(call, ast.Call):
        return None
    own, other, where = sizes[known[0]], sizes[places[0]], sizes[2] % len(whole.sizes)
    if len(passed.sizes) != len(whole.sizes) or whole.sizes[where] != own:
        return None
    has = f"`{source(both[known[0]])}` {whole.words} has {own} in dimension {where}, and `{source(call)}` {other}"
    if where > 1 and other == 2 * passed.sizes[where] and own in (other - 1, other + 1):
        return (
            f"{has}, twice the {passed.sizes[where]} of `{source(given)}`: an odd size was halved and doubled again. "
            "Pad the input to a multiple of 2 for each halving, or resize one to the other (F.interpolate(x, "
            f"size={source(both[known[0]])}.shape[2:]))."
        )
    if passed.sizes[where] != other:
        return None
    return (
        f"{has}, as many as `{source(given)}` {passed.words}: `{source(call.func)}` kept them. Give it a layer that "
        f"makes {own} of {other} there (a convolution of 1x1, a Linear) wherever the sizes differ, not only where a "
        "stride does, or make both sides alike."
    )


def _has(shape: Shape, place: int, size: int, other: Shape) -> bool:
    """Whether that is its size in a dimension of both, counted as an operator that broadcasts does."""
    own = place - max(len(shape.sizes), len(other.sizes)) + len(shape.sizes)
    return own >= 0 and shape.sizes[own] == size


def made_for(at: FailingLine, node: ast.AST, made_for: int) -> str:
    """The constants that the shape of a table was computed from."""
    found = at.made(node, calls=False)
    if found is None:
        return ""
    told = {
        by_constants(at, size, found)
        for item in nodes_of(found.node)
        if isinstance(item, ast.Call)
        for size in item.args
        if not isinstance(size, ast.Constant) and at.evaluated(size, found.spot) == made_for
    }
    return next(iter(told)) if len(told) == 1 else ""


def unfit_expand(at: FailingLine, found: re.Match[str]) -> str | None:
    """`table.expand(count, -1)` of a table that is no [1, ...]."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    shape = at.shape(owner)
    asked, size, place = (int(item) for item in found.groups())
    if call is None or owner is None or shape is None or called_name(call) not in ("expand", "expand_as"):
        return None
    last = place - len(call.args if called_name(call) == "expand" else shape.sizes) + len(shape.sizes)
    if not 0 <= last < len(shape.sizes) or shape.sizes[last] != size:
        return None
    name = variable(owner)
    table = f"`{source(owner)}` {shape.words}{at.came(name)}"
    has = f"Dimension {last} of {table} is {size}{made_for(at, owner, size)}"
    asks = call.args[place] if called_name(call) == "expand" and place < len(call.args) else call.args[0]
    by = f"`{source(asks)}`{at.came(asks)}"
    return (
        f"{has}, and {by} asks for {asked}: only a dimension of 1 can be expanded. Make it with {asked}, cut the "
        f"other to {size}, or repeat what is one row (`unsqueeze`, then expand)."
    )


def _missing_dimension(one: Shape, other: Shape, left: str, right: str) -> str | None:
    """`[8, 4]` and `[8]`: one lacks a dimension that the other has."""
    longer, shorter = (one, other) if len(one.sizes) > len(other.sizes) else (other, one)
    if len(longer.sizes) != len(shorter.sizes) + 1 or not shorter.sizes:
        return None
    for place in range(len(longer.sizes)):
        rest = longer.sizes[:place] + longer.sizes[place + 1 :]
        if rest == shorter.sizes and place:
            name, full = (right, left) if longer is one else (left, right)
            return (
                f"{name} {shorter.words} lacks dimension {place} of {full} {longer.words}: write "
                f"`{name.strip('`')}.unsqueeze({place})`."
            )
    return None
