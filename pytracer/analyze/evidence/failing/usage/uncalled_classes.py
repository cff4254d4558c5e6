"""A class that is called with tensors where an object of it was meant: `criterion = nn.CrossEntropyLoss`."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine

_MODULES, _MAKES = "/torch/nn/modules/", "__init__"


def class_with_tensors(at: FailingLine) -> str | None:
    """The line that makes a module of torch's with tensors as its settings."""
    call = at.only(ast.Call)
    if at.own or call is None or not _is_made(at) or not any(at.shape(item) is not None for item in call.args):
        return None
    given = ", ".join(source(item) for item in call.args)
    if _is_class(call.func):
        return (
            f"`{short(source(call))}` makes an object with the tensors as its settings: make it without them, and call "
            f"that: `{source(call.func)}()({given})`."
        )
    made = at.made(call.func, calls=False)
    if made is None or not _is_class(made.node):
        return None
    name, kind = source(call.func), source(made.node)
    return (
        f"`{name}` ({at.shown(made)}) is the class {kind}, and no object of it: line {at.line} makes one with the "
        f"tensors as its settings. Write `{kind}()` there, and `{name}({given})` calls it."
    )


def _is_made(at: FailingLine) -> bool:
    """Whether the frame below the program's line is a constructor of such a module."""
    own = next((n for n, frame in enumerate(at.stack) if frame is at.frame), 0)
    inner = at.stack[own - 1] if own else None
    return inner is not None and _MODULES in (inner.file or "") and (inner.function or "").endswith(_MAKES)


def _is_class(node: ast.AST | None) -> bool:
    """By its name: `nn.CrossEntropyLoss`."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name[:1].isupper() and not name.isupper()
