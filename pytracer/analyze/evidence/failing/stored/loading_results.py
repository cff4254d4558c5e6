"""What load_state_dict() returns, taken for the module."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name

_RESULT = "'_IncompatibleKeys' object"
_OF_RESULT = Pattern(r"has no attribute '\w*(?:miss|unexp|key|error|mismatch)")  # asked of the result itself


def loading_result(at: FailingLine) -> str | None:
    """`model = model.load_state_dict(state)`."""
    if not at.message.startswith(_RESULT) or _OF_RESULT.search(at.message):
        return None
    found = [made for name in at.names if (made := at.made(name)) is not None and _loads(made.node)]
    if len(found) != 1 or not isinstance(found[0].node, ast.Call):
        return (
            "load_state_dict() changes the module and returns the keys that did not fit, not the module: call it on a "
            "line of its own, and go on with the module."
        )
    call, place = found[0].node, at.place(found[0].spot, found[0].line)
    owner = source(call.func.value) if isinstance(call.func, ast.Attribute) else "the module"
    return (
        f"{capital(place)} (`{source(call)}`) is what line {at.line} has in place of the module: load_state_dict() "
        f"changes `{owner}` and returns the keys that did not fit. Call it on a line of its own, and go on with "
        f"`{owner}`."
    )


def _loads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) == "load_state_dict"
