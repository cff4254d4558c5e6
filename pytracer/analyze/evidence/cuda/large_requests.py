"""Why one request was so large: the sizes of an expression of the failing line that make exactly that many bytes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.cuda.result_shapes import Result, results_of
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.recorded import Layer, Shape
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import OutOfMemory

_LARGE = 256 << 20  # bytes: of smaller ones the sum matters
_SHARE = 0.25  # of what is live
_ROUNDED = 512  # the allocator's smallest unit
_WIDTHS = (1, 2, 4, 8, 16)
_LONG = 1024


class LargeRequest(msgspec.Struct, frozen=True):
    """`subject`: what asks for it, and why so much. `change`: what to do about it."""

    subject: str
    change: str
    is_mistake: bool = False


def large_request(view: ProcessView, last: OutOfMemory) -> LargeRequest | None:
    """The expression whose result has exactly the requested size; None where several have, or others hold most."""
    if last.wanted_nbytes < _LARGE:
        return None
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack)
    if at is None:
        return None
    found = [item for item in results_of(at) if _is_size(item.sizes, last.wanted_nbytes)]
    if found:
        request = _of_result(at, found[0]) if len({item.sizes for item in found}) == 1 else None
    else:
        request = _of_layer(at, last.wanted_nbytes)
    if request is None or request.is_mistake or last.wanted_nbytes >= _SHARE * last.live_nbytes:
        return request
    return None


def _is_size(sizes: tuple[int, ...], wanted: int) -> bool:
    elements = Shape(sizes, "").elements
    return any(-(-elements * width // _ROUNDED) * _ROUNDED == wanted for width in _WIDTHS)


def _words(sizes: tuple[int, ...]) -> str:
    return Shape(sizes, "").words


def _of_result(at: FailingLine, found: Result) -> LargeRequest:
    text, sizes = source(found.node), _words(found.sizes)
    held = [f"`{source(node)}` {shape.words}" for node, shape in found.operands]
    of = f" of {' and '.join(held)}" if held else ""
    if found.kind == "broadcast" and len(found.operands) == 2:
        return _broadcast(at, found, f"`{text}` makes {sizes}{of}")
    if found.kind == "sizes":
        return LargeRequest(
            f"`{text}` makes {sizes}{of}",
            f"`{text}` asks for {sizes}{_sources(at, found.node)}: make it smaller, or in parts.",
        )
    return LargeRequest(f"`{text}` makes {sizes}{of}", _matrix(at, found))


def _broadcast(at: FailingLine, found: Result, subject: str) -> LargeRequest:
    (left, one), (right, other) = found.operands
    lacking = _without_last(found)
    if found.sizes in (one.sizes, other.sizes) and lacking is None:
        return LargeRequest(subject, "Use a smaller batch, or compute it in parts.")
    if lacking is None:
        return LargeRequest(
            subject,
            f"`{source(left)}` and `{source(right)}` are broadcast to {_words(found.sizes)}{_origins(at, found)}. If "
            "each value is meant to meet each of the other, do it in parts and reduce each part; otherwise give both "
            "the same shape.",
        )
    (long, shape), (short, its) = lacking
    whose = (
        f"`{source(long)}` {shape.words}{at.came(long)} has a last dimension of 1 that `{source(short)}` {its.words}"
    )
    return LargeRequest(
        subject,
        f"{whose}{at.came(short)} has not, so that they are broadcast to {_words(found.sizes)}. Give both one "
        f"shape before line {at.line}: `{_called(long)}.squeeze(-1)` or `{_called(short)}.unsqueeze(-1)`.",
        is_mistake=True,
    )


def _called(node: ast.expr) -> str:
    text = source(node)
    return text if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"


def _without_last(found: Result) -> tuple[tuple[ast.expr, Shape], tuple[ast.expr, Shape]] | None:
    """`[n, 1]` and `[n]`: as a model's output and its targets."""
    for long, short in (found.operands, found.operands[::-1]):
        if len(short[1].sizes) >= 1 and long[1].sizes == (*short[1].sizes, 1) and short[1].sizes[-1] > 1:
            return long, short
    return None


def _matrix(at: FailingLine, found: Result) -> str:
    *outer, rows, columns = found.sizes
    if outer and rows == columns >= _LONG and found.kind == "matrices" and _is_attention(at):
        return (
            f"The matrix of all pairs grows with the square of the length ({rows}): torch.nn.functional."
            "scaled_dot_product_attention() never makes it whole; or split the sequence."
        )
    pairs = f"The result has a value for each of {rows} x {columns} pairs{_origins(at, found)}"
    return f"{pairs}: compute it for a part of the rows at a time, and reduce or store each part before the next."


def _is_attention(at: FailingLine) -> bool:
    return any(isinstance(item, ast.Call) and called_name(item) == "softmax" for item in nodes_of(at.scope))


def _of_layer(at: FailingLine, wanted: int) -> LargeRequest | None:
    """The output of one of torch's layers."""
    layer = at.layer
    sizes = _output(layer) if layer is not None else None
    if layer is None or layer.given is None or sizes is None or not _is_size(sizes, wanted):
        return None
    call = at.only(ast.Call)
    passed = variable(call.args[0]) if call is not None and call.args else None
    came = at.came(passed) if passed is not None and at.shape(passed) == layer.given else ""
    return LargeRequest(
        f"layer `{layer.name}` ({layer.kind}) makes {_words(sizes)} of its input {layer.given.words}",
        f"The output of `{layer.name}` alone is {_words(sizes)}{came}: pass it fewer rows at a time (a smaller batch, "
        "or chunks of it).",
    )


def _output(layer: Layer) -> tuple[int, ...] | None:
    given = layer.given.sizes if layer.given is not None else ()
    if layer.kind == "Linear" and given and layer.options.get("in_features") == given[-1]:
        size = layer.options.get("out_features")
        return (*given[:-1], size) if size is not None else None
    size = layer.options.get("embedding_dim") if layer.kind == "Embedding" else None
    return (*given, size) if size is not None and given else None


def _origins(at: FailingLine, found: Result) -> str:
    told = [f"`{variable(node)}`{came}" for node, _ in found.operands if (came := at.came(node))]
    return f"; {' and '.join(told)}" if told else ""


def _sources(at: FailingLine, node: ast.expr) -> str:
    """`; `count` is 480000 (line 8: `count = len(rows)`)`: of the variables that the sizes are computed from."""
    told = []
    for name in dict.fromkeys(_numbers(at, node)):
        told.append(f"`{name}` is {at.value(name)}{at.came(name)}")
    return f"; {' and '.join(told)}" if told else ""


def _numbers(at: FailingLine, node: ast.expr) -> Iterator[str]:
    for item in nodes_of(node):
        name = variable(item)
        if name is not None and (at.value(name) or "").isdigit():
            yield name
