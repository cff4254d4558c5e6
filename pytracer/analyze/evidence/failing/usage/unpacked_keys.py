"""A text where a tensor is wanted, which is a key: unpacking a dict gives its keys."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes

_TEXT = Pattern(r"argument '\w+'(?: \(position \d+\))? must be Tensor, not str\b")
_ATTRIBUTE = Pattern(
    r"'str' object has no attribute "
    r"'(?:shape|size|dim|view|reshape|mean|sum|max|argmax|squeeze|unsqueeze|detach|backward|to|cpu|permute|softmax)'"
)
_OTHERS = (ast.Tuple, ast.List, ast.Constant)
_OF_TEXTS = Pattern(
    r"r?split\w*|r?partition|groups?|next|readlines?|communicate|pop|popitem|input|zip|map|sorted|items"
)


def unpacked_keys(at: FailingLine) -> str | None:
    """`_, pooled = self.bert(...)`."""
    for name in _read(at):
        if not (at.value(name) or "").startswith("str of "):
            continue
        found = _unpacked(at, name)
        if found is None:
            continue
        line, call = found
        function, target = source(call.func), called_name(call) or ""
        own = [item for tree in at.files.values() if (item := function_named(tree, target)) is not None]
        returned = [item.value for item in own_nodes(own[0]) if isinstance(item, ast.Return)] if len(own) == 1 else None
        if returned is not None and (not returned or any(isinstance(item, _OTHERS) for item in returned)):
            continue
        is_one = "is" if returned is not None and all(_is_dict(item) for item in returned) else "may be"
        return (
            f"`{name}` is a text, and {is_one} a key of what `{function}()` returned at "
            f"{at.here(line)}: unpacking a dict "
            "gives its keys, and a ModelOutput of transformers is one. Take the field by its name from the result, or "
            "ask for a tuple (there `return_dict=False`, `.to_tuple()`)."
        )
    return None


def _read(at: FailingLine) -> list[str]:
    """Names that the failing expression passes, or whose attribute it takes."""
    if at.kind == "AttributeError" and _ATTRIBUTE.search(at.message) and at.own:
        node = at.only(ast.Attribute)
        return [node.value.id] if node is not None and isinstance(node.value, ast.Name) else []
    call = at.only(ast.Call) if at.kind == "TypeError" and _TEXT.search(at.message) else None
    given = passed_values(call) if call is not None else []
    return [item.id for item in given if isinstance(item, ast.Name)]


def _unpacked(at: FailingLine, name: str) -> tuple[int, ast.Call] | None:
    """The only line that can have bound it, where that unpacks the result of a call that may return a dict."""
    lines = reaching(at.scope, name, at.line)
    if lines is None or len(lines) != 1:
        return None
    (line,) = lines
    for item in own_nodes(at.scope):
        if not isinstance(item, ast.Assign) or item.lineno != line or len(item.targets) != 1:
            continue
        target, call = item.targets[0], item.value
        if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(call, ast.Call):
            continue
        whole = all(isinstance(part, ast.Name) for part in target.elts)
        known = imported_as(at.tree, call.func) is not None or _OF_TEXTS.fullmatch(called_name(call) or "_")
        return (line, call) if whole and not known and isinstance(call.func, (ast.Name, ast.Attribute)) else None
    return None


def _is_dict(node: ast.expr | None) -> bool:
    return isinstance(node, (ast.Dict, ast.DictComp)) or (isinstance(node, ast.Call) and called_name(node) == "dict")
