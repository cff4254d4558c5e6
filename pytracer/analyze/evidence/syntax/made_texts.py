"""The text that an expression makes of recorded numbers: `"hr_{}".format(str(index).zfill(5))`, `f"{index:05d}"`."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.outcomes import ValueOf, number

_FIELD = Pattern(r"\{(?P<place>\d?)(?::(?P<width>0?\d{0,2})d?)?\}")  # of str.format()
_PERCENT = Pattern(r"%(?P<width>0?\d{0,2})[ds]")
_WIDTH = Pattern(r"(0?\d{0,2})d?$")
_MOST = 64


def made_text(node: ast.AST | None, value_of: ValueOf) -> str | None:
    """None where a part is not known, or is spelled in another way than as whole numbers and texts are."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return _joined([_part(item, value_of) for item in node.values])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined([made_text(item, value_of) for item in (node.left, node.right)])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        return _filled(made_text(node.left, value_of), _PERCENT, given, value_of)
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
        return _given(node.args[0], value_of)
    if not isinstance(node.func, ast.Attribute):
        return None
    text, name = made_text(node.func.value, value_of), node.func.attr
    if name == "encode":
        return text
    if name == "format":
        return _filled(text, _FIELD, node.args, value_of)
    width = number(node.args[0], value_of) if name == "zfill" and len(node.args) == 1 else None
    return text.zfill(width) if text is not None and isinstance(width, int) and width <= _MOST else None


def _part(node: ast.expr, value_of: ValueOf) -> str | None:
    if not isinstance(node, ast.FormattedValue):
        return made_text(node, value_of)
    found = _WIDTH.match(made_text(node.format_spec, value_of) or "" if node.format_spec is not None else "")
    return _spelled(_given(node.value, value_of), found[1]) if found is not None and node.conversion == -1 else None


def _given(node: ast.expr, value_of: ValueOf) -> str | None:
    value = number(node, value_of)
    return str(value) if isinstance(value, int) else made_text(node, value_of)


def _filled(text: str | None, field: Pattern, args: Sequence[ast.expr], value_of: ValueOf) -> str | None:
    """Its fields in their order, each once."""
    if text is None:
        return None
    fields = [*field.finditer(text)]
    rest = field.sub("", text)
    if len(fields) != len(args) or len(fields) > _MOST or "{" in rest or "}" in rest or "%" in rest:
        return None
    if any((item.groupdict().get("place") or str(place)) != str(place) for place, item in enumerate(fields)):
        return None
    given = [_spelled(_given(node, value_of), item["width"]) for node, item in zip(args, fields, strict=True)]
    between = re.split("\0", field.sub("\0", text))
    return _joined([part for pair in zip(between, [*given, ""], strict=True) for part in pair])


def _spelled(text: str | None, width: str | None) -> str | None:
    """With zeros before a number of that width."""
    if text is None or not width:
        return text
    return text.zfill(int(width)) if width.startswith("0") else text.rjust(int(width))


def _joined(parts: Sequence[str | None]) -> str | None:
    return "".join(item for item in parts if item is not None) if None not in parts else None
