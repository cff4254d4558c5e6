"""One tensor whose shape does not fit what is done with it: a view, an index, a mask, a dimension that is gone."""

from __future__ import annotations

import ast
import math
import re

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import whole_number
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import syntax_tree

_TURNS = frozenset({"transpose", "permute", "t", "swapaxes", "movedim", "expand", "expand_as"})
_IMAGE = 3  # dimensions: channels, height, width


def unfit_values(at: FailingLine, found: re.Match[str]) -> str | None:
    """`target[index] = values`."""
    statement = at.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Subscript):
        return None
    index = variable(target.slice)
    by = f", by `{index}`{at.came(index)}" if index is not None and at.came(index) else ""
    return (
        f"`{source(value)}`{at.came(value)} is {found[1]}, and `{source(target)}` takes "
        f"{found[2]}{by}: cut one to the other, or make room for all."
    )


def without_dimension(at: FailingLine, found: re.Match[str]) -> str | None:
    """What a squeeze() on the way took away."""
    for name, shape in at.shapes.items():
        made = at.made(name) if len(shape.sizes) == int(found[1]) + 1 else None
        for node, spot in (*made.through[1:], (made.node, made.spot)) if made is not None else ():
            squeezed = [
                item
                for item in _applied(node)
                if called_name(item) == "squeeze" and not item.keywords
                if not item.args or (isinstance(item.func, ast.Attribute) and variable(item.func.value) == "torch")
            ]
            if squeezed and len(squeezed[0].args) < 2:
                place = at.place(spot, squeezed[0].lineno)
                return (
                    f"`{name}` is {shape.words}, without the dimension {found[2]} that line {at.line} asks for: "
                    f"squeeze() at {place} takes away every dimension of 1, also that of a batch of one. Name the "
                    "dimension there (`squeeze(-1)`, flatten(1))."
                )
    return None


def _applied(node: ast.AST) -> list[ast.Call]:
    """`f()` and `g()` of `x.f().g()`, and of torch.g(x.f()); not what its arguments went through."""
    found = []
    while isinstance(node, ast.Call):
        found.append(node)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        whole = owner is None or variable(owner) in ("torch", "F")
        node = owner if owner is not None and not whole else node.args[0] if node.args else ast.Pass()
    return found


def unfit_view(at: FailingLine, found: re.Match[str]) -> str | None:
    """`x.view(...)` of another number of elements: a rounded division, or a batch that is smaller."""
    wanted, size = [int(item) for item in re.findall(r"-?\d+", found[1])], int(found[2])
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    shape = at.shape(owner)
    product = math.prod(number for number in wanted if number != -1)
    has = f"`{source(owner)}` {shape.words}" if owner is not None and shape is not None else "The tensor"
    text = f"{has} has {size} elements, and [{found[1]}] takes {'a multiple of ' if -1 in wanted else ''}{product}"
    rounded = _rounded_division(at)
    if rounded is not None:
        return f"{text}: {rounded}."
    if shape is not None and wanted and -1 not in wanted and shape.sizes:
        first = product // wanted[0] if wanted[0] else 0
        if first and size % first == 0 and shape.sizes[0] == size // first:
            smaller = shape.sizes[0] < wanted[0]
            last = ", as in a last batch that is smaller" if smaller else ""
            drop = ", or drop_last=True" if smaller else ""
            return (
                f"{text}: the first size is {shape.sizes[0]}, not {wanted[0]}{last}. "
                f"Take it from the tensor (`x.size(0)`, or -1){drop}."
            )
    shared = _shared_columns(at, product, size) if -1 not in wanted else None
    if shared is not None:
        return f"{text}, {shared}"
    fixed = _fixed_size(at, call, wanted, size) if call is not None and shape is not None else None
    if fixed is not None:
        return f"{has} has {size} elements, {fixed}"
    made = at.came(owner) if owner is not None else ""
    return f"{text}. Correct the size at line {at.line} that is not the input's{made}, or take it from x.shape."


def _shared_columns(at: FailingLine, product: int, size: int) -> str | None:
    """A layer that tensor parallelism cut by its columns, of which each rank computes its share."""
    share = product // size if size and product % size == 0 else 1
    trees = (tree for frame in at.frames if (tree := syntax_tree(at.snapshot, frame)) is not None)
    cuts = (item for tree in trees for item in nodes_of(tree) if isinstance(item, ast.Call))
    if share < 2 or not any(called_name(item) == "ColwiseParallel" for item in cuts):
        return None
    return (
        f"{share} times as many. ColwiseParallel leaves each rank its share of a layer's columns, so of its heads: "
        "write -1 for the size that is shared (the number of heads), or divide it by the size of the mesh."
    )


def _fixed_size(at: FailingLine, call: ast.Call, wanted: list[int], size: int) -> str | None:
    """The first size is a constant of the program, and the others fit."""
    sizes = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    rest = math.prod(wanted[1:]) if wanted else 0
    if len(sizes) != len(wanted) or -1 in wanted or rest <= 0 or size % rest:
        return None
    found = at.made(sizes[0])
    constant = sizes[0] if found is None else found.node
    if not isinstance(constant, ast.Constant) or constant.value != wanted[0]:
        return None
    real = size // rest
    if real == 1 and wanted[0] in (3, 4) and len(wanted) == _IMAGE:
        return (
            f"those of one channel, and line {at.line} asks for {wanted[0]}: a grayscale image. Convert the images "
            '(`.convert("RGB")`) where they are read, or repeat the channel (`x.expand(3, -1, -1)`).'
        )
    whole = f"[{', '.join(map(str, [real, *wanted[1:]]))}]"
    by = f"`{source(sizes[0])}` is the constant {wanted[0]} ({at.place(found.spot, found.line)})" if found else ""
    by = by or f"line {at.line} has the constant {wanted[0]}"
    smaller = "; the last batch of an epoch is often smaller" if real < wanted[0] else ""
    return (
        f"which make {whole}{smaller}; {by}. Take the first size from the data (-1, or x.size(0)), or set "
        "drop_last=True in the DataLoader."
    )


def _rounded_division(at: FailingLine) -> str | None:
    """`d // heads` of the failing expression, or of the line that made one of its sizes, where it leaves a rest."""
    for item in nodes_of(at.node) if at.node is not None else ():
        if isinstance(item, ast.BinOp) and isinstance(item.op, ast.FloorDiv):
            left, right = whole_number(at, item.left), whole_number(at, item.right)
            if left is not None and right and left % right:
                rounds = f"`{source(item)}` rounds {left} / {right} down"
                return f"{rounds}. {left} must be a multiple of {right}: change one of them"
    call = at.only(ast.Call)
    for given in passed_values(call) if call is not None else ():
        for size in given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]:
            made = at.made(size) if isinstance(size, (ast.Name, ast.Attribute)) else None
            divided = made.node if made is not None else None
            if made is None or not isinstance(divided, ast.BinOp) or not isinstance(divided.op, ast.FloorDiv):
                continue
            left, right = at.evaluated(divided.left, made.spot), at.evaluated(divided.right, made.spot)
            if left is not None and right and left % right:
                return (
                    f"`{source(size)}` ({at.shown(made)}) is {left} / {right}, rounded down. {left} must be a multiple "
                    f"of {right}: change one of them"
                )
    return None


def out_of_order(at: FailingLine) -> str | None:
    """`y.transpose(1, 2).view(b, t, c)`: which call turned the dimensions round."""
    call = at.only(ast.Call)
    if "view size is not compatible with input tensor" not in at.message or call is None:
        return None
    if called_name(call) != "view" or not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    made = at.made(owner)
    steps = [(owner, at.slice.spot(0)), *(made.through[1:] if made is not None else ())]
    steps += [(made.node, made.spot)] if made is not None else []
    for node, spot in steps:
        turned = [item for item in _applied(node) if called_name(item) in _TURNS]
        if turned and spot is not None:
            where = at.place(spot, turned[0].lineno)
            here = f"`{source(turned[0])}`" + (f" ({where})" if turned[0].lineno != at.line else "")
            repeats = called_name(turned[0]) in ("expand", "expand_as")
            does = "repeats elements without copying them" if repeats else "leaves the elements in another order"
            asked = ", ".join(ast.unparse(item) for item in call.args)
            return (
                f"{here} {does}, and view() takes only elements that lie in order in memory. Write "
                f"`.reshape({asked})` in place of `.view({asked})`, which copies where it must."
            )
    return None
