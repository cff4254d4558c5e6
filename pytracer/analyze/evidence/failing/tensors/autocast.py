"""Operations that autocast computes in a lower dtype, where the program has entered it around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans_body

_LOWERED = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "einsum", "mv", "addmv", "chain_matmul"}
    | {f"conv{way}{n}d" for way in ("", "_transpose") for n in (1, 2, 3)}
    | {"scaled_dot_product_attention", "multi_head_attention_forward", "convolution", "bilinear"}
)
_LAYERS = Pattern(r"(?:\w+\.)*(?:Linear|Conv(?:Transpose)?[123]d|GRU|LSTM|RNN|MultiheadAttention|Bilinear)")
_KEEPING = Pattern(r"(?:\w+\.)*(?:\w*ReLU\w*|GELU|SiLU|Mish|ELU|Tanh|Sigmoid|Dropout\w*|Flatten|MaxPool\dd|Identity)")
_DTYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16"}
_DEFAULTS = {"cuda": "float16", "cpu": "bfloat16"}
_DEPTH = 12


class Autocast(msgspec.Struct, frozen=True):
    """`operation`: what it computes in the lower dtype. `entered`, `line`: of `with torch.autocast(...)`."""

    operation: str
    entered: Spot
    line: int


def lowered(at: FailingLine, node: ast.expr, spot: Spot, dtype: str) -> Autocast | None:
    """None where autocast does not compute it so, is not surely entered, or with another dtype."""
    operation = _operation(at, node, spot)
    if operation is None or dtype not in _DTYPES.values():
        return None
    for place, line, call in _around(at, spot):
        if called_name(call) != "autocast":
            continue
        return Autocast(operation, place, line) if _is_for(at, call, place, dtype) else None
    return None


def _operation(at: FailingLine, node: ast.expr, spot: Spot) -> str | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "@"
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node)
    if name in _LOWERED and not at.slice.function(node, spot):
        return f"{name}()"
    made = at.slice.made(node.func, spot, calls=True).node
    return f"{ast.unparse(node.func)}()" if made is not node.func and _is_layer(made) else None


def _is_layer(made: ast.AST) -> bool:
    """`nn.Linear(3, 4)`; of nn.Sequential the last one that does not only keep the dtype."""
    if not isinstance(made, ast.Call):
        return False
    text = ast.unparse(made.func)
    if text.rpartition(".")[2] != "Sequential":
        return _LAYERS.fullmatch(text) is not None
    for item in reversed(made.args):
        kind = ast.unparse(item.func) if isinstance(item, ast.Call) else ""
        if _KEEPING.fullmatch(kind) is None:
            return _LAYERS.fullmatch(kind) is not None
    return False


def keeps_dtype(made: ast.Call) -> bool:
    """`nn.ReLU()`, `nn.Dropout(0.1)`: a layer without weights."""
    return _KEEPING.fullmatch(ast.unparse(made.func)) is not None


def _around(at: FailingLine, spot: Spot) -> Iterator[tuple[Spot, int, ast.Call]]:
    """The calls that are entered around a place, the innermost first: by `with`, by decorators, of all callers."""
    place: Spot | None = spot
    for _ in range(_DEPTH):
        if place is None:
            return
        yield from _entered(at, place)
        place = _caller(at, place)


def _entered(at: FailingLine, place: Spot) -> Iterator[tuple[Spot, int, ast.Call]]:
    blocks = [item for item in own_nodes(place.scope) if isinstance(item, (ast.With, ast.AsyncWith))]
    for block in sorted(blocks, key=lambda item: item.lineno, reverse=True):
        if not spans_body(block.body, place.line):
            continue
        for part in reversed(block.items):
            before = structs.replace(place, line=block.lineno)
            made = at.slice.made(part.context_expr, before, calls=False)
            if isinstance(made.node, ast.Call):
                yield before, block.lineno, made.node
    for decorator in getattr(place.scope, "decorator_list", ()):
        if isinstance(decorator, ast.Call):
            yield place, decorator.lineno, decorator


def _caller(at: FailingLine, place: Spot) -> Spot | None:
    if place.call is not None:
        return structs.replace(place.call[1], line=place.call[0].lineno)
    return at.slice.spot(place.depth + 1) if place.depth is not None else None


def _is_for(at: FailingLine, call: ast.Call, place: Spot, dtype: str) -> bool:
    """Whether it is enabled, and with that dtype, as far as it is known."""
    enabled = argument_at(call, 2, "enabled")
    if enabled is not None:
        made = at.slice.made(enabled, place, calls=True)
        known = at.value_at(enabled, place) or (repr(made.node.value) if isinstance(made.node, ast.Constant) else "")
        if known == "False":
            return False
    given = argument_at(call, 1, "dtype")
    if given is not None:
        named = ast.unparse(at.slice.made(given, place, calls=True).node).rpartition(".")[2]
        return _DTYPES.get(named, dtype) == dtype
    device = argument_at(call, 0, "device_type")
    kind = device.value if isinstance(device, ast.Constant) and isinstance(device.value, str) else ""
    return _DEFAULTS.get(kind, dtype) == dtype
