"""Losses by their settings: BCELoss of what is no probability, with the layer that gave it; one that is not reduced."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value

_REFUSED = Pattern(r"all elements of (input|target) should be between 0 and 1")
_RANGE = Pattern(r"(-?[\d.e+-]+)\.\.(-?[\d.e+-]+), (\d+) of (\d+) outside of 0\.\.1(, whole)?$")
# Layers whose output has no bounds, or other ones than 0 and 1.
_UNBOUND = Pattern(r"^(?:Linear|LazyLinear|Bilinear|Conv\w+|BatchNorm\w+|LayerNorm|GroupNorm)$")
_ACTIVATION = Pattern(r"^(?:Tanh|ReLU|LeakyReLU|PReLU|ELU|GELU|SiLU|Softplus)$")
_NO_SCALAR = "grad can be implicitly created only for scalar outputs"
_SAME_NUMBERS = frozenset({"squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "contiguous", "to", "detach"})
_NOT_THERE = "not between 0 and 1"
_SCALE = "Scale it to 0 to 1 where it is made"
_PLACES = {"input": 0, "target": 1}
_LARGEST_BYTE = 255


def no_probability(at: FailingLine) -> str | None:
    """What is refused, and what to do with it."""
    return _words(at)[0]


def probability_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    return _words(at)[1]


def _words(at: FailingLine) -> tuple[str | None, str | None]:
    refused, call = _REFUSED.search(at.message), at.only(ast.Call)
    given = _argument(call, refused[1]) if refused is not None and call is not None else None
    if refused is None or call is None or given is None:
        return None, None
    span = _RANGE.match(at.compared.get(f"range of {refused[1]}", ""))
    if span is None and (at.compared or " nan" in (at.value(given) or "")):
        return None, None  # NaN, or too large to read: what else there is to say is in the table
    spread = f"{span[1]} to {span[2]}" if span is not None and span[1] != span[2] else span[1] if span else _NOT_THERE
    many = f" ({span[3]} of its {span[4]} elements below 0 or above 1)" if span is not None else ""
    of = f"`{source(given)}`{at.came(ast.unparse(given)) if isinstance(given, (ast.Name, ast.Attribute)) else ''}"
    if refused[1] == "target":
        how = _target_advice(float(span[1]), float(span[2]), span[5] is not None) if span is not None else _SCALE
        return f"The target {of} is {spread}{many}, and BCELoss takes 0 to 1 only. {how}.", f"{of} is {spread}"
    found = last_layer(at, given)
    if found is None:
        return None, None
    kind, layer = found
    if _ACTIVATION.match(kind):
        words = f"{of} is {spread}{many}: it comes from {layer}. Put nn.Sigmoid() in its place, or use nn.MSELoss."
        return words, f"{of} is {spread}, as it comes from {layer}"
    loss = at.made(call.func, calls=False)
    plain = loss is not None and isinstance(loss.node, ast.Call)
    made = (
        f" in place of `{source(loss.node)}` ({at.place(loss.spot, loss.line)})" if plain and loss is not None else ""
    )
    plain_call = called_name(call) == "binary_cross_entropy"
    with_logits = "F.binary_cross_entropy_with_logits" if plain_call else "nn.BCEWithLogitsLoss"
    target = _RANGE.match(at.compared.get("range of target", ""))
    also = ""
    if target is not None and int(target[3]):
        also = f" The target is {target[1]} to {target[2]}, too: for numbers that are no probabilities use nn.MSELoss."
    words = (
        f"{of} is {spread}{many}: it comes from {layer} without a sigmoid. Use {with_logits}{made}, or pass "
        f"`torch.sigmoid({source(given)})`.{also}"
    )
    return words, f"{of} is {spread}, as it comes from {layer} without a sigmoid"


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    named = keyword_value(call, name)
    place = _PLACES[name]
    whole = place < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args[: place + 1])
    return named or (call.args[place] if whole else None)


def _target_advice(low: float, high: float, whole: bool) -> str:
    if whole and low == -1 and high <= 1:
        return "Leave out those that are -1 before the loss (a mask), or make them 0 if they are the other class"
    if low == -1 and high <= 1:
        return "Bring it from -1..1 to 0..1 before the loss (`(target + 1) / 2`)"
    if whole and high == _LARGEST_BYTE and low >= 0:
        return "Divide it by 255 where it is loaded (or compare, `> 0`)"
    return f"{_SCALE}; numbers of classes go to nn.CrossEntropyLoss, other numbers to nn.MSELoss"


def last_layer(at: FailingLine, given: ast.expr) -> tuple[str, str] | None:
    """The kind of torch's last layer, and the variable that has it with what made it; None for a sigmoid or softmax."""
    found = at.made(given)
    node, spot = (found.node, found.spot) if found is not None else (given, at.slice.spot(0))
    while spot is not None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in _SAME_NUMBERS:
            break
        inner = at.slice.made(node.func.value, spot, calls=True)
        node, spot = inner.node, inner.spot
    if spot is None or not isinstance(node, ast.Call):
        return None
    made = at.slice.made(node.func, spot, calls=True)
    last = made
    while isinstance(last.node, ast.Call) and called_name(last.node) == "Sequential" and last.node.args:
        last = Made(last.node.args[-1], last.spot, last.through)
    kind = called_name(last.node) if isinstance(last.node, ast.Call) and made.through else None
    if kind is None or not (_UNBOUND.match(kind) or _ACTIVATION.match(kind)):
        return None
    place = at.place(last.spot, getattr(last.node, "lineno", 0))
    return kind, f"`{source(node.func)}` ({place}: `{source(last.node)}`)"


def not_reduced(at: FailingLine) -> str | None:
    """backward() of a loss that keeps one number for each element, as the program asked."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if _NO_SCALAR not in at.message or owner is None:
        return None
    made = at.made(owner, calls=False)
    loss = made.node if made is not None else owner
    made_by = (
        at.slice.made(loss.func, made.spot, calls=False) if made is not None and isinstance(loss, ast.Call) else None
    )
    asked = [
        f"{at.place(spot, item.value.lineno)}: `{source(node)}`"
        for node, spot in (
            (loss, made.spot if made is not None else None),
            *([(made_by.node, made_by.spot)] if made_by else []),
        )
        if isinstance(node, ast.Call) and spot is not None
        for item in node.keywords
        if item.arg == "reduction" and isinstance(item.value, ast.Constant) and item.value.value == "none"
    ]
    shape = at.shape(owner)
    if len(asked) != 1 or shape is None:
        return None
    name = source(owner)
    return (
        f"`{name}` is {shape.words}, one number for each element, as reduction='none' asks for ({asked[0]}): call "
        f"`{name}.mean().backward()`, after it is weighted if it shall be, or leave reduction='none' out."
    )
