"""NumPy views of tensors that a program keeps in a variable: `self.array = self.series.numpy()`.

A view has the memory of its tensor. What is copied on the way (`copy()`, `astype()`, an index array) is no view.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SAME_MEMORY = frozenset(
    {"detach", "cpu", "view", "squeeze", "unsqueeze", "t", "transpose", "permute", "narrow", "select", "requires_grad_"}
)
_SAME_ARRAY = frozenset({"reshape", "view", "squeeze", "transpose", "swapaxes", "ravel"})
_SAME_ATTRIBUTES = frozenset({"T", "mT", "data", "real"})
_FUNCTIONS = frozenset({"asarray", "asanyarray", "from_dlpack"})
_MODULES = frozenset({"np", "numpy"})


class ArrayView(msgspec.Struct, frozen=True):
    """`name` is set at `line` to a view of the memory of the tensor `of`; `value`: the expression that makes it."""

    name: str
    of: ast.expr
    line: int
    value: str


def array_views(tree: ast.AST) -> Iterator[ArrayView]:
    """Those of a module that its assignments keep, also as an item of a container that is written out."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign):
            pairs = list(each_set(node.targets, node.value))
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            pairs = [(node.target, node.value)]
        else:
            continue
        for target, value in pairs:
            for name, item in _kept(target, value):
                tensor = _viewed(item)
                if tensor is not None:
                    yield ArrayView(name, tensor, item.lineno, ast.unparse(item))


def _kept(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    name = ast.unparse(target)
    yield name, value
    if isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant):
                yield f"{name}[{key.value!r}]", item
    elif isinstance(value, (ast.Tuple, ast.List)):
        for place, item in enumerate(value.elts):
            yield f"{name}[{place}]", item
    elif isinstance(value, ast.Call) and called_name(value) == "dict":
        for given in value.keywords:
            if given.arg is not None:
                yield f"{name}[{given.arg!r}]", given.value


def _viewed(value: ast.expr) -> ast.expr | None:
    """The tensor whose memory an array has; None of any other expression."""
    array = _behind(value, _SAME_ARRAY)
    if not isinstance(array, ast.Call):
        return None
    function = array.func
    if isinstance(function, ast.Attribute) and function.attr == "numpy" and not array.args:
        return same_tensor(function.value)
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name) or not array.args:
        return None
    if function.value.id not in _MODULES or len(array.args) > 1 or keyword_value(array, "dtype") is not None:
        return None
    copies = keyword_value(array, "copy")
    unchanged = isinstance(copies, ast.Constant) and copies.value is False
    return (
        same_tensor(array.args[0]) if function.attr in _FUNCTIONS or (function.attr == "array" and unchanged) else None
    )


def same_tensor(node: ast.expr) -> ast.expr:
    """`self.series` of `self.series[10:].detach().T`: what it has the memory of."""
    return _behind(node, _SAME_MEMORY)


def _behind(node: ast.expr, methods: frozenset[str]) -> ast.expr:
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            node = node.func.value
        elif (isinstance(node, ast.Attribute) and node.attr in _SAME_ATTRIBUTES) or (
            isinstance(node, ast.Subscript) and _is_basic(node.slice)
        ):
            node = node.value
        else:
            return node


def _is_basic(index: ast.expr) -> bool:
    """Slices and numbers make views; arrays of indices and conditions copy."""
    if isinstance(index, ast.Tuple):
        return all(_is_basic(item) for item in index.elts)
    if isinstance(index, ast.UnaryOp):
        return _is_basic(index.operand)
    return isinstance(index, ast.Slice) or (isinstance(index, ast.Constant) and not isinstance(index.value, str))
