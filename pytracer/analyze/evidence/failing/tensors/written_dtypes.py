"""Values of another dtype than the tensor that takes them: `table[index] = values`, `average.lerp_(new, weight)`.

Neither converts. The cast, or autocast, is named where the values' way leads back to only one.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.tensors.dtype_sources import Cast, cast_words, dtype_source
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name

TYPES = {"Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64"}
TYPES |= {"Int": "int32", "Short": "int16", "Byte": "uint8", "Char": "int8", "Bool": "bool"}
TYPES |= {"double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
_PUT = Pattern(r"Index put requires .* got (\w+) for the destination and (\w+) for the source")
_LERP = Pattern(r"expected dtype ([\w:]+) for `(end|weight)` but got dtype ([\w:]+)")
_ADDED = Pattern(
    r"\bindex_(?:add|copy|reduce)_?\(\): self .*(?:same dtype|same scalar type)"
    r"|\bput_\(\): self and source .*same dtype"
    r"|scatter(?:_add|_reduce)?_?\(\): Expected self\.dtype to be equal to src\.dtype"
    r"|masked_scatter: expected self and source to have same dtypes"
)
_LERPS = frozenset({"lerp", "lerp_"})
_OF_TENSORS = ("half", "bfloat16", "double", "float", "to", "type")
_PLACES = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_WHOLE = frozenset({"int64", "int32", "int16", "uint8", "int8", "bool"})
_SHOWN = 44


class _Pair(msgspec.Struct, frozen=True):
    """`held` takes `value`; with their dtypes."""

    held: ast.expr
    value: ast.expr
    wanted: str
    found: str


def written_dtype(at: FailingLine) -> str | None:
    """Which has which dtype, where the odd one comes from, and the cast."""
    pair = _pair(at)
    if pair is None:
        return None
    held, value = source(pair.held), source(pair.value)
    made = whence(at, pair.held)
    since, other = _since(at, pair)
    if pair.wanted in _WHOLE and pair.found.startswith(("float", "bfloat")):
        since, other = "", f"make `{held}` with dtype={pair.found}, where fractions are to be kept"
    begin = f"`{held}`{made} is {pair.wanted}, and `{value}`{whence(at, pair.value)} {pair.found}{since}"
    return f"{begin}: {_cast(pair)}, or {other or 'make both of one dtype'}."


def written_subject(at: FailingLine) -> str | None:
    """For the headline: with what made it so, without what made the values."""
    pair = _pair(at)
    since = _since(at, pair)[0] if pair is not None else ""
    if pair is None or not since:
        return None
    return f"`{source(pair.held)}` is {pair.wanted}, and `{source(pair.value)}` {pair.found}{since}"


def _since(at: FailingLine, pair: _Pair) -> tuple[str, str]:
    """Why the values have that dtype, and what else could be done there."""
    found = dtype_source(at, pair.value, pair.found)
    if found is None:
        return "", ""
    if not isinstance(found, Cast):
        return f", as {cast_words(at, found, pair.found)}", f"make `{source(pair.held)}` with dtype={pair.found}"
    scope = found.spot.scope
    words = f", as {cast_words(at, found, pair.found)}"
    if not isinstance(found.node, ast.Call) or called_name(found.node) not in _OF_TENSORS:
        return words, f"make it with dtype={pair.wanted} there"
    if scope is at.scope or isinstance(scope, (ast.Module, ast.Lambda)):
        return words, "leave that cast out"
    return words, f"let {scope.name}() return the dtype that it is given"


def _cast(pair: _Pair) -> str:
    held = source(pair.held)
    whole = ast.unparse(pair.value)
    if len(whole) > _SHOWN:
        return f"end the value with `.to({held}.dtype)`"
    text = whole if isinstance(pair.value, _PLACES) else f"({whole})"
    return f"write `{text}.to({held}.dtype)`"


def _pair(at: FailingLine) -> _Pair | None:
    put = _PUT.search(at.message)
    if put is not None:
        return _assigned(at, TYPES.get(put[1], put[1]), TYPES.get(put[2], put[2]))
    lerp = _LERP.search(at.message)
    if lerp is not None:
        return _blended(at, lerp[2], TYPES.get(lerp[1], lerp[1]), TYPES.get(lerp[3], lerp[3]))
    return _added(at) if _ADDED.search(at.message) else None


def _assigned(at: FailingLine, wanted: str, found: str) -> _Pair | None:
    """`table[index] = values`, `table.index_put_((index,), values)`."""
    call = at.only(ast.Call)
    if call is not None and isinstance(call.func, ast.Attribute) and call.func.attr == "index_put_":
        value = argument_at(call, 1, "values")
        return _Pair(call.func.value, value, wanted, found) if value is not None else None
    statement = at.statement
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Subscript) or not isinstance(statement, ast.Assign):
        return None
    return _Pair(target.value, statement.value, wanted, found)


def _blended(at: FailingLine, argument: str, wanted: str, found: str) -> _Pair | None:
    """`x.lerp_(end, weight)`, `torch.lerp(x, end, weight)`."""
    call = at.only(ast.Call)
    if call is None or called_name(call) not in _LERPS or not isinstance(call.func, ast.Attribute):
        return None
    of_tensor = ast.unparse(call.func.value) != "torch"
    place = ("end", "weight").index(argument) + (0 if of_tensor else 1)
    held = call.func.value if of_tensor else argument_at(call, 0, "input")
    value = argument_at(call, place, argument)
    return _Pair(held, value, wanted, found) if held is not None and value is not None else None


def _added(at: FailingLine) -> _Pair | None:
    """`x.index_add_(0, index, values)`, `x.scatter_(1, index, values)`, where both are recorded."""
    call = at.only(ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute) or ast.unparse(call.func.value) == "torch":
        return None
    value = argument_at(call, 1 if called_name(call) == "masked_scatter_" else 2, "source", "src")
    held = call.func.value
    one, other = at.shape(held), at.shape(value) if value is not None else None
    if value is None or one is None or other is None or one.dtype == other.dtype:
        return None
    return _Pair(held, value, one.dtype, other.dtype)
