"""Modules whose only matrices are weights of nn.Linear, which autograd saves as a transposed view, never as a leaf."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_WITHOUT_OTHERS = frozenset(
    {"Linear", "LazyLinear", "Sequential", "ModuleList", "ModuleDict", "Identity", "Flatten", "Unflatten"}
    | {"ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "GELU", "SiLU", "Mish", "Tanh", "Sigmoid", "Softplus", "Hardtanh"}
    | {"Softmax", "LogSoftmax", "Dropout", "Hardswish", "Hardsigmoid"}
)
_LEVELS = 4  # of classes and functions in each other


def has_only_linear(at: FailingLine, module: str, spot: Spot) -> bool:
    """As the source shows how it is made; of a part, all of the module around it.

    Args:
        at: The line that failed.
        module: As the function there calls it: `self.critic`.
        spot: Where.
    """
    node: ast.expr = ast.parse(module, mode="eval").body
    while True:
        made = at.slice.made(node, spot, calls=False)
        if isinstance(made.node, ast.Call):
            return _is_linear(at, made.node, made.spot, 0)
        if not isinstance(node, ast.Attribute):
            return False
        node = node.value


def _is_linear(at: FailingLine, node: ast.AST, spot: Spot, level: int) -> bool:
    """Each class of a layer that it makes is one without other parameters, or a class or function of that kind."""
    for call in [item for item in nodes_of(node) if isinstance(item, ast.Call)]:
        found = at.slice.defined(call.func, spot)
        if found is not None and isinstance(found[0], (ast.ClassDef, ast.FunctionDef)):
            if level >= _LEVELS or not _is_linear(at, found[0], found[1], level + 1):
                return False
            continue
        name = called_name(call) or ""
        if name.startswith(("register_", "load", "from_pretrained")) or (
            name[:1].isupper() and name not in _WITHOUT_OTHERS
        ):
            return False
    return True
