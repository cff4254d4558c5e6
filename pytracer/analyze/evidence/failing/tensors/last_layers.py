"""The layer that gave an output: its last number of features is the number of classes."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.reached_spots import reached_spot
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_LAYERS = 4
_ENTRIES = Pattern(r"(?:dict|list|set|\w*[dD]ict|Counter) of (\d+)$")
_LAYER = Pattern(r"(?:Lazy)?(?:Linear|Conv(?:Transpose)?[123]d)$")


def last_layer(at: FailingLine, output: str) -> str:
    """`` (line 26: `model = nn.Linear(8, classes)`) ``, of what gave the output; of nn.Sequential its last layer."""
    found = _layer(at, output)
    return f" ({at.shown(found)})" if found is not None else ""


def counted_before(at: FailingLine, output: str, classes: int, high: int) -> str | None:
    """Of a last layer that was made with the length of a table of names, which has more entries by now."""
    layer = _layer(at, output)
    given = (
        argument_at(layer.node, 1, "out_features") if layer is not None and isinstance(layer.node, ast.Call) else None
    )
    if layer is None or given is None:
        return None
    size = at.slice.made(given, layer.spot, calls=False)
    node = size.node
    if not isinstance(node, ast.Call) or called_name(node) != "len" or len(node.args) != 1 or size.spot.depth is None:
        return None
    held = _ENTRIES.match(at.value_at(node.args[0], size.spot) or "")
    now = int(held[1]) if held is not None else 0
    if not classes < now or high >= now:
        return None
    table = ast.unparse(node.args[0])
    return (
        f"`{table}` has {now} entries now, and had {classes} when {at.place(size.spot, node.lineno)} counted them. "
        "Count those of all data before the layer is made, and only look up later."
    )


def _layer(at: FailingLine, output: str) -> Made | None:
    found = at.made(output)
    for _ in range(_LAYERS):
        node = found.node if found is not None else None
        if found is None or not isinstance(node, ast.Call):
            return None
        if re.match(r"(?:torch\.)?nn\.Linear\(", ast.unparse(node)):
            return found if _gives(at, output, node, found.spot) else None
        inner = node.func
        if called_name(node) == "Sequential":
            if not node.args or isinstance(node.args[-1], ast.Starred):
                return None
            inner = node.args[-1]
        found = at.slice.made(inner, found.spot, calls=True)
    return None


def _gives(at: FailingLine, output: str, layer: ast.Call, spot: Spot) -> bool:
    """Whether an output has the features of a layer, as far as both are known: another may have been put behind it."""
    given = argument_at(layer, 1, "out_features")
    shape, features = at.shape(output), at.evaluated(given, spot) if given is not None else None
    return shape is None or features is None or features in shape.sizes


def layer_that_gives(at: FailingLine, size: int) -> str | None:
    """``Line 78 (`nn.Conv2d(16, n_class, 1)`; line 18: `n_class = 20`)`` of the only layer with that many outputs."""
    found: list[tuple[str, ast.Call, list[Made]]] = []
    for file, tree in at.trees.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or not _LAYER.match(called_name(item) or ""):
                continue
            given = argument_at(item, 1, "out_features", "out_channels")
            spot = reached_spot(at.slice, at.trees, file, scope_of(tree, item.lineno), item.lineno)
            if given is None or spot is None or at.evaluated(given, spot) != size:
                continue
            found.append((file, item, at.constants(given, spot)))
    if len(found) != 1:
        return None
    file, layer, constants = found[0]
    place = capital(at.in_file(file, layer.lineno))
    by = [at.shown(item) for item in constants if item.line != layer.lineno or item.spot.file != file]
    return f"{place} (`{source(layer)}`{f'; {by[0]}' if len(by) == 1 else ''})"
