"""Whether the source asks for the indices that C read from arrays, so that they may well lead nowhere else.

In C by a condition, a cut to a range, a rest of a division, or a function that is given the array; in Python by an
`assert`, an `if`, or a call that makes numbers within a range.
"""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.own_code.lookups import Lookup, is_filled
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_BOUNDS = frozenset(
    {"clamp", "clamp_", "clip", "minimum", "fmod", "remainder", "randint", "randperm", "arange", "integers", "where"}
)
_NO_FUNCTIONS = "if|for|while|switch|return|sizeof|free|\\w*_cast|memset"


def is_asked(lookup: Lookup) -> bool:
    """Whether the function in C has a condition or a cut to a range for the index of a lookup, or of one before it."""
    text = "\n".join(lookup.scope.texts)
    steps = _steps(lookup)
    names = "|".join(sorted({re.escape(item.variable) for item in steps if item.variable}))
    plain = re.sub(r"\b(?:for|while)\s*\([^{}]*?\)\s*(?=[\w{])", " ", text)
    asks = rf"\b(?:if|\w*(?:assert|CHECK)\w*)\s*\([^;{{}}]*\b(?:{names})\b"
    cuts = rf"\b(?:{names})\s*=[^;]*(?:\?|\b\w*(?:min|max|clamp))"
    if names and re.search(f"{asks}|{cuts}", plain) is not None:
        return True
    return any(_is_cut(item, text) for item in steps if item.by) or any(
        _is_checked(item, text) for one in steps for item in one.by
    )


def is_asked_before(spot: Spot, inner: str) -> bool:
    """Whether Python asks for the numbers of an array before it passes it, or makes them in a range."""
    name = inner.partition("[")[0]
    for node in own_nodes(spot.scope):
        if getattr(node, "lineno", spot.line) >= spot.line:
            continue
        if isinstance(node, (ast.Assert, ast.If)) and any(variable(item) == name for item in nodes_of(node.test)):
            return True
        if isinstance(node, ast.Assign) and any(variable(item) == name for item in node.targets):
            made = [*nodes_of(node.value)]
            if any(isinstance(item, ast.Call) and called_name(item) in _BOUNDS for item in made):
                return True
            if any(isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mod) for item in made):
                return True
    return False


def _steps(lookup: Lookup) -> list[Lookup]:
    return [lookup, *(step for item in lookup.by for step in _steps(item))]


def _is_cut(lookup: Lookup, text: str) -> bool:
    """Whether the index is a rest or has a mask, or the array is another one than the caller's."""
    index = lookup.text.partition("[")[2]
    array = re.escape(lookup.array)
    return re.search(r"%|(?<!&)&(?!&)", index) is not None or (
        lookup.array in lookup.scope.parameters and re.search(rf"(?<![\w.>*]){array}\s*[-+]?=(?!=)", text) is not None
    )


def _is_checked(by: Lookup, text: str) -> bool:
    """Whether an element is compared, or cut, or a function is given the array."""
    array = rf"(?<![\w.>]){re.escape(by.array)}"
    element = rf"{array}\s*\[[^;\[\]]*\]\s*\)*\s*"
    asks = rf"{element}(?:[<>](?![<>])|[=!]=|%|&(?!&)|\?)|\b(?:if|\w*(?:assert|CHECK)\w*)\s*\([^;{{}}]*{array}\s*\["
    given = rf"\b(?!(?:{_NO_FUNCTIONS})\b)\w+\s*\([^;{{}}()]*{array}\b(?!\s*(?:\[|\)\s*\{{))[^;{{}}()]*\)\s*[;)<>=!&|]"
    moved = rf"{array}\s*[-+]?=(?!=)" if by.array in by.scope.parameters else r"(?!)"
    return is_filled(by) or re.search(f"{asks}|{given}|{moved}", text) is not None
