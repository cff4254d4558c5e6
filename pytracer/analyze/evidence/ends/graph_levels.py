"""Whether a value of the program's source is a tensor with the autograd graph of others, surely, maybe or not."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from enum import IntEnum

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_ITSELF = ("data", "shape", "dtype", "device", "ndim", "grad", "requires_grad")
# Calls whose result has no graph: numbers, indices, comparisons, what is cut off.
_CUTS = frozenset(
    {"item", "detach", "detach_", "numpy", "tolist", "float", "int", "len", "bool", "str", "argmax", "argmin", "size"}
    | {"argsort", "eq", "ne", "gt", "ge", "lt", "le", "isnan", "isfinite", "nonzero", "long", "numel", "any", "all"}
    | {"zeros_like", "ones_like", "rand_like", "randn_like", "range", "print", "isinstance", "equal", "allclose"}
)
# Functions and methods of tensors whose result has one.
_KEEPS = frozenset(
    {
        "mean",
        "sum",
        "norm",
        "abs",
        "pow",
        "square",
        "sqrt",
        "exp",
        "log",
        "cpu",
        "cuda",
        "to",
        "double",
        "half",
        "clamp",
    }
    | {"softmax", "log_softmax", "sigmoid", "tanh", "relu", "squeeze", "unsqueeze", "view", "reshape", "flatten"}
    | {"cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "stack", "cat", "add"}
    | {"contiguous", "permute", "transpose", "clone", "logsumexp", "matmul", "mul", "div", "criterion"}
)
_ROUNDS = 3


class Graph(IntEnum):
    """Whether there is one."""

    NONE = 0
    MAYBE = 1
    SURE = 2


class Levels:
    """Of the variables of a function: those given, and what its statements compute from them.

    Args:
        scope: The function, or the module.
        given: Variables with a graph.
        layers: Callables of the program that keep the graph of what they get: layers and losses of torch.
        forward: Whether it is a forward(), where what the object calls is a layer.
    """

    def __init__(
        self, scope: ast.AST, given: dict[str, Graph], layers: Iterable[str] = (), *, forward: bool = False
    ) -> None:
        self._of, self._layers, self._forward = dict(given), frozenset(layers), forward
        assigns = [item for item in own_nodes(scope) if isinstance(item, ast.Assign)]
        for _ in range(_ROUNDS):
            for item in assigns:
                for target in item.targets:
                    self._assign(target, item.value)
        # A name that also holds a number at times, `loss = loss.item()`, is not known to have one.
        for item in assigns:
            for name in filter(None, map(variable, item.targets)):
                if self.of(item.value) is Graph.NONE and any(self._reads(part) for part in nodes_of(item.value)):
                    self._of.pop(name, None)

    def _reads(self, node: ast.AST) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and bool(self._of.get(variable(node) or "", Graph.NONE))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for part, held in zip(target.elts, value.elts, strict=True):
                    self._assign(part, held)
                return
            level = min(self.of(value), Graph.MAYBE)
            names = [name for part in target.elts if (name := variable(part)) is not None]
        else:
            level, names = self.of(value), [name for name in [variable(target)] if name is not None]
        for name in names:
            self._of[name] = max(level, self._of.get(name, Graph.NONE))

    def of(self, value: ast.expr) -> Graph:
        """Of an expression."""
        if isinstance(value, ast.Name):
            return self._of.get(value.id, Graph.NONE)
        if isinstance(value, ast.Attribute):
            own = self._of.get(variable(value) or "", Graph.NONE)
            return own or (Graph.NONE if value.attr in _ITSELF else self.of(value.value))
        if isinstance(value, (ast.Subscript, ast.Starred)):
            return self.of(value.value)
        if isinstance(value, ast.BinOp):
            return max(self.of(value.left), self.of(value.right))
        if isinstance(value, ast.UnaryOp):
            return Graph.NONE if isinstance(value.op, ast.Not) else self.of(value.operand)
        if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
            return max(map(self.of, value.elts), default=Graph.NONE)
        if isinstance(value, ast.Dict):
            return max(map(self.of, value.values), default=Graph.NONE)
        if isinstance(value, ast.IfExp):
            found = max(self.of(value.body), self.of(value.orelse))
            return min(found, Graph.MAYBE)
        return self._of_call(value) if isinstance(value, ast.Call) else Graph.NONE

    def _of_call(self, call: ast.Call) -> Graph:
        name = called_name(call) or ""
        if name in _CUTS:
            return Graph.NONE
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        parts = [*call.args, *(item.value for item in call.keywords), *([owner] if owner is not None else [])]
        level = max(map(self.of, parts), default=Graph.NONE)
        named = variable(call.func) or ""
        keeps = name in _KEEPS or name.lower().endswith("loss") or named in self._layers
        own = self._forward and named.startswith("self.")
        return level if keeps or own else min(level, Graph.MAYBE)
