"""Two values of kinds that do not go together: a number added to a text, a list that is asked for a key."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import holds
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_JOINED = Pattern(r'can only concatenate (?P<left>str|list|tuple) \(not "(?P<right>[\w.]+)"\) to (?P=left)')
_INDEXED = Pattern(r"(?P<kind>list|tuple|string) indices must be integers(?: or slices)?, not '?(?P<by>\w+)'?")
_NO_NEXT = Pattern(r"'(?:\w*[iI]ter(?:ator)?|generator|map|zip|enumerate|filter)' object has no attribute 'next'$")
_NUMBER_HAS_NO = Pattern(r"'(float|int|bool)' object has no attribute '(item|detach|cpu|numpy|tolist)'")
_NO_TENSOR = Pattern(r"'numpy\.ndarray' object has no attribute '(to|cuda|cpu|detach|numpy|unsqueeze|requires_grad_)'")
_RECURRENT = ("LSTM", "GRU", "RNN")


def mixed_kinds(at: FailingLine) -> str | None:
    """The first that fits the message."""
    if at.kind not in ("TypeError", "AttributeError") or not at.own:
        return None
    return next((words for explain in _EXPLAINED if (words := explain(at)) is not None), None)


def _joined(at: FailingLine) -> str | None:
    """`"epoch " + 3`, `predictions + x.argmax(1)`."""
    found = _JOINED.search(at.message)
    sums = [
        item for item in nodes_of(at.node or ast.Pass()) if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Add)
    ]
    exact = [item for item in sums if item is at.node] or (sums if len(sums) == 1 else [])
    if found is None or not exact:
        return None
    right = exact[0].right
    value = at.value(right)
    kind = "an" if found["right"][:1] in "aeio" else "a"
    told = f" is {value}" if value is not None else f" is {kind} {found['right']}"
    if found["left"] == "str":
        return (
            f"`{source(right)}`{whence(at, right)}{told}, and `+` puts only texts together: write "
            f"`str({source(right)})` at line {at.line}, or an f-string."
        )
    left = source(exact[0].left)
    kind = found["left"]
    instead = f"`{left}.append({source(right)})`" if kind == "list" else f"`{left} + ({source(right)},)`"
    rows = f", or `{left}.extend({source(right)}.tolist())` for its numbers" if found["right"] == "Tensor" else ""
    return (
        f"`{source(right)}`{told}, and `{left}` a {kind}, to which only a {kind} can be added: write {instead}{rows}."
    )


def _asked_for_a_key(at: FailingLine) -> str | None:
    """`rows["text"]` of a list, `row["text"]` of a key of a dict, `out[:, -1]` of a tuple."""
    found = _INDEXED.search(at.message)
    items = [item for item in nodes_of(at.node or ast.Pass()) if isinstance(item, ast.Subscript)]
    exact = [item for item in items if item is at.node] or (items if len(items) == 1 else [])
    if found is None or not exact:
        return None
    owner = exact[0].value
    name, value = source(owner), at.value(owner) or ""
    if found["kind"] == "string" and found["by"] == "str":
        return _key_of_dict(at, owner)
    if not value.startswith(f"{found['kind']} of "):
        return None
    has = f"`{name}`{whence(at, owner)} is a {value}"
    if found["by"] == "str":
        first = f"`{name}[0][{source(exact[0].slice)}]`"
        return (
            f"{has}, and line {at.line} asks it for the key {source(exact[0].slice)}: take an item first ({first}), or "
            "loop over it; or what was read or returned is not what is meant."
        )
    if found["by"] == "tuple":
        parts = "`output, state`" if _is_recurrent(at, owner) else "the parts"
        return (
            f"{has}, and line {at.line} indexes it as one tensor (`{source(exact[0])}`): take the part that is meant "
            f"first, `{name}[0]`, or name {parts} where it is made."
        )
    return None


def _is_recurrent(at: FailingLine, owner: ast.expr) -> bool:
    """Whether an nn.LSTM, nn.GRU or nn.RNN made it."""
    made = at.made(owner)
    call = made.node if made is not None else None
    layer = at.slice.made(call.func, made.spot, calls=True) if made is not None and isinstance(call, ast.Call) else None
    return layer is not None and isinstance(layer.node, ast.Call) and called_name(layer.node) in _RECURRENT


def _key_of_dict(at: FailingLine, owner: ast.expr) -> str | None:
    """A loop over a dict gives its keys."""
    loops = [
        item
        for item in own_nodes(at.scope)
        if isinstance(item, (ast.For, ast.AsyncFor)) and isinstance(owner, ast.Name) and holds(item.target, owner.id)
        if spans(item, at.line) and isinstance(item.target, ast.Name)
    ]
    if len(loops) != 1 or not isinstance(owner, ast.Name) or len(places_that_bind(at.scope, owner.id)) != 1:
        return None
    if not re.match(r"\w*[dD]ict of ", at.value(loops[0].iter) or ""):
        return None
    table, loop = source(loops[0].iter), at.here(loops[0].lineno)
    return (
        f"`{source(owner)}` is a key of `{table}` ({at.value(loops[0].iter)}), as the loop at {loop} goes over a dict, "
        f"which gives its keys: loop over `{table}.values()`, or over `{table}.items()` for both."
    )


def _attribute(at: FailingLine, name: str) -> ast.Attribute | None:
    found = [item for item in nodes_of(at.node or ast.Pass()) if isinstance(item, ast.Attribute) and item.attr == name]
    return found[0] if len(found) == 1 else None


def _old_next(at: FailingLine) -> str | None:
    """`iterator.next()` of Python 2."""
    node = _attribute(at, "next") if _NO_NEXT.search(at.message) else None
    if node is None:
        return None
    return f"Iterators have no .next() in Python 3: write `next({source(node.value)})` at line {at.line}."


def _number_already(at: FailingLine) -> str | None:
    """`total.item()` of a float."""
    found = _NUMBER_HAS_NO.search(at.message)
    node = _attribute(at, found[2]) if found is not None else None
    value = at.value(node.value) if node is not None else None
    if found is None or node is None or value is None:
        return None
    name = source(node.value)
    return (
        f"`{name}`{whence(at, node.value)} is {value}, a plain {found[1]}, which has no .{found[2]}: leave "
        f".{found[2]}() out at line {at.line}."
    )


def _array(at: FailingLine) -> str | None:
    """`batch.to(device)` of a NumPy array."""
    found = _NO_TENSOR.search(at.message)
    node = _attribute(at, found[1]) if found is not None else None
    shape = shape_of(at.value(node.value)) if node is not None else None
    if found is None or node is None or shape is None:
        return None
    name, plain = source(node.value), ".float()" if shape.dtype == "float64" else ""
    return (
        f"`{name}`{whence(at, node.value)} is a NumPy array {shape.words} {shape.dtype}, which has no .{found[1]}: "
        f"make a tensor of it first, `torch.from_numpy({name}){plain}`."
    )


_EXPLAINED: tuple[Callable[[FailingLine], str | None], ...] = (
    _joined,
    _asked_for_a_key,
    _old_next,
    _number_already,
    _array,
)
