"""The operation in place that a tensor went through last, by the node that torch's message names.

What backward() of a later operation saved as its input is named by the tensor's node of now: that of the operation in
place. An operation that saves its own result keeps its name; those of the table save none.
"""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.cut_values import is_without_graph
from pytracer.analyze.evidence.syntax.scopes import scope_of

_OPERATION = Pattern(r"output 0 of (\w+?)(?:Backward\d*)?,")
_SYMBOLS = {"Mul": "*=", "Add": "+=", "Sub": "-=", "Div": "/="}
_DETACHED = Pattern(r"detach\(\)[^=]*(?: [-+*/]?= |_\()")  # `h.detach().clamp_(0)`
_MOST = 2


def last_operation(message: str) -> str | None:
    """`Mul`."""
    found = _OPERATION.search(message)
    return found[1] if found is not None and found[1] in _SYMBOLS else None


def by_operation(at: FailingLine, found: dict[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    """Of the statements that change tensors in place those with that operation: one or two, or none.

    None where another one may have left no node behind: below no_grad(), of detach().
    """
    name = last_operation(at.message)
    if name is None:
        return {}
    for (file, line), text in found.items():
        if _DETACHED.search(text) or is_without_graph(scope_of(at.trees[file], line), line):
            return {}
    few = {key: text for key, text in found.items() if f" {_SYMBOLS[name]} " in text or f".{name.lower()}_(" in text}
    return few if len(few) <= _MOST else {}
