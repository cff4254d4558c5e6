"""A class in place of an object of it: a method of it that misses `self`, and the line that does not make one."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine

_NO_SELF = Pattern(r"(\w+)\(\) missing \d+ required positional arguments?: 'self'")


def class_as_object(at: FailingLine) -> str | None:
    """`self.optimizer.zero_grad()`, where that is `OPTIMIZERS[name]`, which nobody called."""
    found, call = _NO_SELF.search(at.message), at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if at.kind != "TypeError" or found is None or call is None or owner is None:
        return None
    if not isinstance(call.func, ast.Attribute) or call.func.attr != found[1]:
        return None
    made = at.made(owner, calls=False)
    text = source(owner)
    if made is None or isinstance(made.node, ast.Call) or made.line == at.line:
        return f"`{text}` is a class, and no object of it: make one (`{text}(...)`), and call `.{found[1]}()` of that."
    return (
        f"`{text}` ({at.shown(made)}) is a class, and no object of it: make one where that is set "
        f"(`{source(made.node)}(...)`), and `.{found[1]}()` has its `self`."
    )
