"""Whether an expression is one tensor, and no tuple, list or dict of several: by torch's layers and functions."""

from __future__ import annotations

import ast

from msgspec import structs

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_SEVERAL_LAYERS = frozenset({"LSTM", "GRU", "RNN", "LSTMCell", "MultiheadAttention", "AdaptiveLogSoftmaxWithLoss"})
_SEVERAL = frozenset(  # functions and methods that may return several
    {"max", "min", "sort", "topk", "kthvalue", "mode", "median", "nanmedian", "cummax", "cummin", "aminmax", "size"}
    | {"split", "chunk", "tensor_split", "unbind", "unsafe_chunk", "unique", "unique_consecutive", "nonzero", "where"}
    | {"var_mean", "std_mean", "meshgrid", "svd", "qr", "lu", "eig", "eigh", "slogdet", "lstsq", "frexp", "histogram"}
    | {"broadcast_tensors", "load", "tolist", "stride", "autocast", "no_grad", "multi_head_attention_forward", "item"}
    | {"checkpoint", "vmap", "grad", "jit", "compile", "hsplit", "vsplit", "dsplit", "gradient", "atleast_1d"}
    | {"atleast_2d", "atleast_3d", "five_crop", "ten_crop"}
)
METHODS = frozenset(  # of a tensor, and of what else has them one that is like it
    {"view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "contiguous", "mean", "sum", "float"}
    | {"softmax", "log_softmax", "sigmoid", "tanh", "relu", "exp", "log", "sqrt", "clamp", "detach", "clone", "argmax"}
    | {"matmul", "mm", "bmm", "mul", "add", "sub", "div", "pow", "abs", "norm", "masked_fill", "expand", "amax", "t"}
)
_TORCH = ("torch", "F", "torch.nn.functional", "nn.functional", "torch.linalg", "functional")
_NUMERIC = (ast.Sub, ast.Mult, ast.Div, ast.MatMult, ast.Pow)
_LISTED = (ast.List, ast.Tuple, ast.ListComp)
_DEEPEST = 5


def returns_one_tensor(back: Slice, call: ast.Call, spot: Spot, deepest: int = _DEEPEST) -> bool:
    """Whether each `return` of the program's function that is called gives one; or a layer of torch's own does."""
    found = back.function(call, spot) if deepest else None
    if found is None:
        return _is_layer_of_one(back, call.func, spot)
    function, at = found
    nodes = [*own_nodes(function)]
    if any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in nodes):
        return False
    returns = [item for item in nodes if isinstance(item, ast.Return)]
    inside = structs.replace(at, scope=function, depth=None, call=(call, spot))
    return bool(returns) and all(
        item.value is not None
        and is_one_tensor(back, item.value, structs.replace(inside, line=item.lineno), deepest - 1)
        for item in returns
    )


def is_one_tensor(back: Slice, node: ast.AST, spot: Spot, deepest: int = _DEEPEST) -> bool:
    """False where it may be anything else."""
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        if any(isinstance(back.made(item, spot, calls=False).node, _LISTED) for item in sides):
            return False  # `[x] * 3`
        return isinstance(node.op, _NUMERIC) or any(is_one_tensor(back, item, spot, deepest) for item in sides)
    if isinstance(node, ast.IfExp):
        return all(is_one_tensor(back, item, spot, deepest) for item in (node.body, node.orelse))
    if isinstance(node, ast.Call):
        return _is_one_result(back, node, spot, deepest)
    if not isinstance(node, ast.Name) or not deepest:
        return False
    made = back.made(node, spot, calls=False)
    return made.node is not node and is_one_tensor(back, made.node, made.spot, deepest - 1)


def _is_one_result(back: Slice, call: ast.Call, spot: Spot, deepest: int) -> bool:
    name, func = called_name(call), call.func
    if keyword_value(call, "return_indices", "return_inverse", "return_counts") is not None:
        return False
    if name is not None and isinstance(func, ast.Attribute) and ast.unparse(func.value) in _TORCH:
        return name not in _SEVERAL
    if returns_one_tensor(back, call, spot, deepest):
        return True
    if not isinstance(func, ast.Attribute) or ast.unparse(func.value) == "self":  # `self.norm(x)` is no tensor's
        return False
    return name in METHODS and back.function(call, spot) is None


def _is_layer_of_one(back: Slice, func: ast.expr, spot: Spot) -> bool:
    """`self.head`, an nn.Linear; an nn.Sequential by its last layer."""
    made = back.made(func, spot, calls=True)
    call = made.node
    if not isinstance(call, ast.Call) or not _is_of_nn(call) or keyword_value(call, "return_indices") is not None:
        return False
    last = call.args[-1] if called_name(call) == "Sequential" and call.args else None
    if last is None:
        return called_name(call) not in (*_SEVERAL_LAYERS, "Sequential", "ModuleList", "ModuleDict")
    inner = back.made(last, made.spot, calls=True).node
    return isinstance(inner, ast.Call) and _is_of_nn(inner) and called_name(inner) not in _SEVERAL_LAYERS


def _is_of_nn(call: ast.Call) -> bool:
    name = called_name(call) or ""
    owner = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    text = ast.unparse(call.func)
    return name[:1].isupper() and (owner == "nn" or text.startswith(("nn.", "torch.nn.")))
