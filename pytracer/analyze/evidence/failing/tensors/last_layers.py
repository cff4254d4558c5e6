"""The layer that gave an output: its last number of features is the number of classes."""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name

_LAYERS = 4


def last_layer(at: FailingLine, output: str) -> str:
    """`` (line 26: `model = nn.Linear(8, classes)`) ``, of what gave the output; of nn.Sequential its last layer."""
    found = at.made(output)
    for _ in range(_LAYERS):
        node = found.node if found is not None else None
        if found is None or not isinstance(node, ast.Call):
            return ""
        if re.match(r"(?:torch\.)?nn\.Linear\(", ast.unparse(node)):
            return f" ({at.shown(found)})" if _gives(at, output, node, found.spot) else ""
        inner = node.func
        if called_name(node) == "Sequential":
            if not node.args or isinstance(node.args[-1], ast.Starred):
                return ""
            inner = node.args[-1]
        found = at.slice.made(inner, found.spot, calls=True)
    return ""


def _gives(at: FailingLine, output: str, layer: ast.Call, spot: Spot) -> bool:
    """Whether an output has the features of a layer, as far as both are known: another may have been put behind it."""
    given = argument_at(layer, 1, "out_features")
    shape, features = at.shape(output), at.evaluated(given, spot) if given is not None else None
    return shape is None or features is None or features in shape.sizes
