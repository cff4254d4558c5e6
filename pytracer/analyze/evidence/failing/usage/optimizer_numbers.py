"""A list, a dict or nothing where an optimizer compares one number: which of its options it was."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import line_text

_COMPARED = Pattern(
    r"^'[<>]=?' not supported between instances of "
    r"(?:'(?:float|int)' and '(list|tuple|dict|NoneType)'|'(list|tuple|dict|NoneType)' and '(?:float|int)')"
)
_OPTIM = "/torch/optim/"
_OPTION = Pattern(r"<=? ([a-z]\w*)\W*$|([a-z]\w*) [<>]=? [\d.]+\W*$")  # `if not 0.0 <= lr:`, `if lr < 0.0:`


def optimizer_number(at: FailingLine) -> str | None:
    """Of the check in torch's constructor, by its line."""
    found, inner = _COMPARED.match(at.message), at.stack[0]
    if at.kind != "TypeError" or found is None or at.own or _OPTIM not in (inner.file or ""):
        return None
    option = _OPTION.search(line_text(at.snapshot, inner) or "")
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    if option is None or not calls:
        return None
    name, kind = option[1] or option[2], found[1] or found[2]
    given = next((value for call in calls if (value := keyword_value(call, name)) is not None), None)
    text = source(given) if given is not None else name
    makers = [made for call in calls if (made := called_name(call) or "")[:1].isupper()]
    maker = makers[0] if makers else "the optimizer"
    if kind == "NoneType":
        return f"`{text}`{at.came(text)} is None, and {maker} takes a number for {name}: set it, or leave {name} out."
    return (
        f"`{text}`{at.came(text)} is a {kind}, and {maker} takes one number for it: pass one; or, for parts of "
        f"the model with their own, a list of groups (`[{{'params': ..., '{name}': ...}}, ...]`) in place of the "
        "parameters."
    )
