"""Layers of which tensor parallelism leaves each rank some columns: what a line then takes for the whole of them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_VIEW = Pattern(r"shape '\[([\d, ]*)\]' is invalid for input of size (\d+)")
_MATRICES = Pattern(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)")
_UNEQUAL = Pattern(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")
_STYLE = "ColwiseParallel"
_GATHERED = f"{_STYLE}(output_layouts=Replicate())"
_WHOLE = ("output_layouts", "use_local_output")
_HEADS = Pattern(r"head(?!_?(?:dim|size|width))|group", re.IGNORECASE)
_DEEPEST = 5


class _Cut(msgspec.Struct, frozen=True):
    """`name`: of the tensor at the line; `layer`: the call that made it; `plan`: the line that cuts the layer."""

    name: str
    shape: Shape
    layer: str
    plan: str
    share: int

    @property
    def part(self) -> str:
        return f"1/{self.share}"


def shared_columns(at: FailingLine) -> str | None:
    """What to write instead."""
    cut = _cut(at)
    if cut is None:
        return None
    columns = cut.shape.sizes[-1]
    said = (
        f"`{cut.layer}` is {_STYLE} ({cut.plan}), so each rank computes {cut.part} of its columns: `{cut.name}` "
        f"{cut.shape.words} has {columns} of {columns * cut.share}."
    )
    if _VIEW.search(at.message):
        heads = _heads(at, cut)
        if heads is None:
            return (
                f"{said} At line {at.line} write -1 for the size that is shared (the number of heads), or divide it "
                "by the size of the mesh."
            )
        text, number = heads
        return (
            f"{said} `{text}` {number}{at.came(text)} is that of the whole layer: write -1 for it at line {at.line}, "
            f"or divide it by the size of the mesh ({number} // {cut.share} = {number // cut.share}) after "
            "parallelize_module()."
        )
    if _MATRICES.search(at.message):
        layer = at.layer
        named = f"`{layer.name}`" if layer is not None else "The layer behind it"
        return f"{said} {named} takes all: give it RowwiseParallel() in the plan, or {_GATHERED}."
    return f"{said} What it meets at line {at.line} has all: write {_GATHERED}, or cut that as well."


def shared_columns_subject(at: FailingLine) -> str | None:
    """For the headline."""
    cut = _cut(at)
    if cut is None:
        return None
    heads = _heads(at, cut) if _VIEW.search(at.message) else None
    still = f", and `{heads[0]}` is still {heads[1]}" if heads is not None else ""
    has = f"`{cut.name}` {cut.shape.words} has this rank's {cut.part} of it"
    return f"`{cut.layer}` is {_STYLE} ({cut.plan}), {has}{still}"


def _cut(at: FailingLine) -> _Cut | None:
    share = _share(at.message)
    spot = at.slice.spot(0)
    if share is None or spot is None or at.node is None:
        return None
    plan = dict(_planned(at))
    for name, shape in at.shapes.items() if plan else ():
        layer = _layer(at, ast.parse(name, mode="eval").body, spot, plan, _DEEPEST)
        if layer is not None and shape.sizes and _is_short(at.message, shape):
            func, where = layer
            known = _is_share_of(at, func, where, shape.sizes[-1] * share, share)
            return _Cut(name, shape, source(func), plan[func.attr], share) if known else None
    return None


def _is_share_of(at: FailingLine, func: ast.Attribute, where: Spot, columns: int, share: int) -> bool:
    """Whether the layer was made with so many columns; of an unknown one, whether there are as many ranks as shares."""
    made = at.slice.made(func, where, calls=True)
    if isinstance(made.node, ast.Call) and called_name(made.node) in ("Linear", "Embedding"):
        named = [item.value for item in made.node.keywords if item.arg in ("out_features", "embedding_dim")]
        for size in [*made.node.args[1:2], *named][:1]:
            number = at.evaluated(size, made.spot)
            if number is not None:
                return number == columns
    return at.snapshot.rank is not None and at.snapshot.rank.world_size == share


def _share(message: str) -> int | None:
    """How many times as many there would have to be."""
    found = _VIEW.search(message)
    if found is not None:
        wanted, size = math.prod(int(item) for item in re.findall(r"\d+", found[1])), int(found[2])
    else:
        pair = _MATRICES.search(message) or _UNEQUAL.search(message)
        if pair is None:
            return None
        size, wanted = sorted(int(item) for item in pair.groups())
    return wanted // size if size and wanted % size == 0 and wanted > size else None


def _is_short(message: str, shape: Shape) -> bool:
    """Whether it is the smaller of the two."""
    found = _VIEW.search(message)
    if found is not None:
        return shape.elements == int(found[2])
    pair = _MATRICES.search(message)
    if pair is not None:
        return shape.sizes[-1] == int(pair[1]) < int(pair[2])
    unequal = _UNEQUAL.search(message)
    return unequal is not None and shape.sizes[-1] == min(int(item) for item in unequal.groups())


def _planned(at: FailingLine) -> Iterator[tuple[str, str]]:
    """Layers by the last part of their names, each with the line that cuts it."""
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            pairs: list[tuple[ast.expr | None, ast.expr]] = []
            if isinstance(item, ast.Dict):
                pairs = [*zip(item.keys, item.values, strict=True)]
            elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Subscript):
                pairs = [(item.targets[0].slice, item.value)]
            elif isinstance(item, ast.Call) and called_name(item) == "parallelize_module" and item.args:
                styles = [*item.args[1:], *(part.value for part in item.keywords)]
                pairs = [(item.args[0], style) for style in styles]
            for key, value in pairs:
                name = _last_name(key)
                if name is not None and isinstance(value, ast.Call) and _cuts(value):
                    yield name, at.in_file(file, value.lineno)


def _cuts(style: ast.Call) -> bool:
    return called_name(style) == _STYLE and not any(item.arg in _WHOLE for item in style.keywords)


def _last_name(key: ast.expr | None) -> str | None:
    """`wq` of `"attention.wq"`, of `f"layers.{n}.wq"` and of `layer.attention.wq`."""
    if isinstance(key, ast.Attribute):
        return key.attr
    last = key.values[-1] if isinstance(key, ast.JoinedStr) and key.values else key
    text = last.value if isinstance(last, ast.Constant) and isinstance(last.value, str) else None
    name = text.rpartition(".")[2] if text is not None else ""
    return name if name.isidentifier() else None


def _layer(
    at: FailingLine, node: ast.AST, spot: Spot, plan: dict[str, str], depth: int
) -> tuple[ast.Attribute, Spot] | None:
    """The call of such a layer that a value comes from, through what keeps the number of columns."""
    made = at.slice.made(node, spot, calls=False)
    node, spot = made.node, made.spot
    if not isinstance(node, ast.Call) or depth == 0:
        return None
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else None
    if name in plan and isinstance(func, ast.Attribute):
        return func, spot
    inner = [*node.args[:1], *([func.value] if isinstance(func, ast.Attribute) and not node.args else [])]
    return next((found for item in inner if (found := _layer(at, item, spot, plan, depth - 1)) is not None), None)


def _heads(at: FailingLine, cut: _Cut) -> tuple[str, int] | None:
    """The size of a view that counts the heads, by its name; it is shared by the ranks."""
    call = at.only(ast.Call)
    given = call.args if call is not None else []
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    found = []
    for item in given:
        text = ast.unparse(item)
        value = at.value(item) or ""
        number = whole(item) if variable(item) is None else int(value) if value.isdecimal() else None
        if _HEADS.search(text) and number is not None and number % cut.share == 0:
            found.append((text, number))
    return found[0] if len(found) == 1 else None
