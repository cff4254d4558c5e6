"""Which argument a kernel's assertion is about: calls of torch's functions, methods and layers in one statement.

Calls are known by the name of what they call, so a function of the program or of another library with such a name is
none of them: its module is looked up in the imports. Which of several calls it was is not known; all are found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import parts, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as, imported_names
from pytracer.analyze.evidence.syntax.scopes import is_parameter, spans

BRACKETS = "[]"
# Parameters by place, of the function; of a method the first one is the tensor that it is called on.
SIGNATURES = {
    "bernoulli": ("input",),
    "binary_cross_entropy": ("input", "target"),
    "cross_entropy": ("input", "target"),
    "embedding": ("input", "weight"),
    "embedding_bag": ("input", "weight", "offsets"),
    "gather": ("input", "dim", "index"),
    "index_add": ("input", "dim", "index", "source"),
    "index_copy": ("input", "dim", "index", "source"),
    "index_fill": ("input", "dim", "index", "value"),
    "index_put": ("input", "indices", "values"),
    "index_reduce": ("input", "dim", "index", "source"),
    "index_select": ("input", "dim", "index"),
    "masked_scatter": ("input", "mask", "source"),
    "max_unpool2d": ("input", "indices"),
    "max_unpool3d": ("input", "indices"),
    "multi_margin_loss": ("input", "target"),
    "multinomial": ("input", "num_samples"),
    "nll_loss": ("input", "target"),
    "one_hot": ("tensor", "num_classes"),
    "poisson": ("input",),
    "put": ("input", "index", "source"),
    "repeat_interleave": ("input", "repeats", "dim"),
    "scatter": ("input", "dim", "index"),
    "scatter_add": ("input", "dim", "index"),
    "scatter_reduce": ("input", "dim", "index"),
    "take": ("input", "index"),
    "take_along_dim": ("input", "indices", "dim"),
}
_LAYERS = {
    "BCELoss": "binary_cross_entropy",
    "CrossEntropyLoss": "cross_entropy",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding_bag",
    "MaxUnpool2d": "max_unpool2d",
    "MaxUnpool3d": "max_unpool3d",
    "MultiMarginLoss": "multi_margin_loss",
    "NLLLoss": "nll_loss",
}
_OF_FUNCTIONAL = frozenset(_LAYERS.values())  # written in Python, of which no method exists
_LOSSES = frozenset({"cross_entropy", "nll_loss", "binary_cross_entropy"})
_LOSS = Pattern(r"loss|criterion")
_MODULES = ("torch", "torch.Tensor", "torch.nn.functional")
_NO_INDEX = (ast.Slice, ast.Constant, ast.Starred, ast.Compare, ast.JoinedStr)
_CONTAINERS = ("list of", "tuple of", "dict of", "deque of")


class CheckedCall(msgspec.Struct, frozen=True):
    """A call, or x[...], with the expression that a kernel checks. `layer`: where the layer that is called was made."""

    function: str
    node: ast.Call | ast.Subscript
    arguments: tuple[ast.expr, ...]
    given: dict[str, ast.expr]
    layer: Made | None = None
    is_layer: bool = False
    guessed: bool = False
    """Whether the name alone says that it is a loss."""


def checked_calls(at: FailingLine, checks: Iterable[str], only: str | None) -> list[CheckedCall]:
    """Those of the statement, whose argument may be the one.

    Args:
        at: the line that launched the kernel.
        checks: function and parameter, as `known/device_assertions.toml` has them.
        only: the function of torch/nn/functional.py that ran; None: there was none.
    """
    statement = at.statement
    if statement is None:
        return []
    wanted = {
        function: name
        for function, _, name in (item.partition(".") for item in checks)
        if function == only or (only is None and function not in _OF_FUNCTIONAL)
    }
    found = [*_found(at, [*_evaluated(statement)], wanted, only)]
    return [item for item in found if spans(item.node, at.line)] or found


def _found(
    at: FailingLine, nodes: Iterable[ast.AST], wanted: dict[str, str], only: str | None
) -> Iterator[CheckedCall]:
    for node in nodes:
        if isinstance(node, ast.Subscript) and BRACKETS in wanted:
            indices = (*_indices(at, node),)
            if indices:
                yield CheckedCall(BRACKETS, node, indices, {"input": node.value})
        elif isinstance(node, ast.Call):
            call = _called(at, node, only)
            argument = call.given.get(wanted.get(call.function, "")) if call is not None else None
            if call is not None and argument is not None:
                several = isinstance(argument, (ast.Tuple, ast.List))
                items = [*argument.elts] if isinstance(argument, (ast.Tuple, ast.List)) and several else [argument]
                kept = tuple(item for item in items if not isinstance(item, ast.Constant))
                yield CheckedCall(call.function, node, kept, call.given, call.layer, call.is_layer, call.guessed)


def _evaluated(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement evaluates itself, without the functions in it."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try)):
        return
    skipped = {id(statement.annotation)} if isinstance(statement, ast.AnnAssign) else set()
    waiting = [*parts(statement)]
    while waiting:
        item = waiting.pop(0)
        yield item
        waiting += [inner for inner in ast.iter_child_nodes(item) if id(inner) not in skipped]


def _called(at: FailingLine, call: ast.Call, only: str | None) -> CheckedCall | None:
    """With its arguments by name."""
    name = (called_name(call) or "").removesuffix("_")
    signature = SIGNATURES.get(name)
    func = call.func
    if signature is not None and module_of(at, func) in _MODULES:
        return CheckedCall(name, call, (), _given(call, signature))
    method = name not in _OF_FUNCTIONAL and not (name == "bernoulli" and (call.args or call.keywords))
    if signature is not None and method and isinstance(func, ast.Attribute) and _may_be_tensor(at, func.value):
        return CheckedCall(name, call, (), {signature[0]: func.value, **_given(call, signature[1:])})
    return _layer(at, call, only)


def _layer(at: FailingLine, call: ast.Call, only: str | None) -> CheckedCall | None:
    """`self.embed(tokens)`, where the layer's class is known: by what made it, or by what was recorded of it."""
    spot = at.slice.spot(0)
    if spot is None:
        return None
    made: Made | None = at.slice.made(call.func, spot, calls=True)
    kind = called_name(made.node) if made is not None and isinstance(made.node, ast.Call) else None
    if made is not None and isinstance(made.node, ast.Call) and kind in _LAYERS:
        if at.slice.defined(made.node.func, made.spot) is not None:  # a class of the program
            return None
    else:
        kind, made = (at.value(call.func) or "").partition("(")[0] or kind, None
    function, guessed = _LAYERS.get(kind or ""), False
    if function is None and not kind and only in _LOSSES and _LOSS.search((called_name(call) or "").lower()):
        function, guessed = only, True
    if function is None or at.slice.function(call, spot) is not None:
        return None
    names = tuple(name for name in SIGNATURES[function] if name != "weight")
    return CheckedCall(function, call, (), _given(call, names), made, True, guessed)


def _given(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        found[name] = value
    return {**found, **{item.arg: item.value for item in call.keywords if item.arg is not None}}


def module_of(at: FailingLine, func: ast.AST) -> str | None:
    """`torch.nn.functional` of `F.embedding` and of an imported `embedding`; None: no module's, or one's unknown."""
    root = func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or is_parameter(at.scope, root.id):
        return None
    if any(bindings_of(at.scope, root.id)) or any(bindings_of(at.tree, root.id)):
        return None
    whole = imported_as(at.tree, func)
    return whole.rpartition(".")[0] if whole is not None else None


def _may_be_tensor(at: FailingLine, owner: ast.expr) -> bool:
    """Not a module, `self` or something that was recorded as another kind of object."""
    root = owner
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id in imported_names(at.tree) and not any(bindings_of(at.scope, root.id)):
        return False
    value = at.value(owner)
    known = value is None or shape_of(value) is not None or value[:1].isupper()  # `Parameter(...)`
    return known and not (isinstance(owner, ast.Name) and owner.id == "self")


def _indices(at: FailingLine, node: ast.Subscript) -> Iterator[ast.expr]:
    """What may be an index tensor between the brackets."""
    owner = at.value(node.value)
    if owner is not None and owner.startswith(_CONTAINERS):
        return
    if module_of(at, node) is not None or isinstance(node.value, ast.Constant):
        return
    for item in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        inverted = isinstance(item, ast.UnaryOp) and isinstance(item.op, (ast.Invert, ast.Not))
        if isinstance(item, _NO_INDEX) or inverted or whole(item) is not None:
            continue
        value = at.value(item)
        shape = shape_of(value)
        if value is None or (shape is not None and shape.dtype != "bool"):
            yield item
