"""torch.load() that asks for a GPU by its own map_location: it is not the file that decides."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import as_written, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_NO_DEVICE = Pattern(r"Attempting to deserialize object on (?:a )?(\w+) device")
_PLACES = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.JoinedStr)


def asked_device(at: FailingLine) -> str | None:
    """`torch.load(path, map_location=self.device)`; a function or dict of places, and None, leave it to the file."""
    found = _NO_DEVICE.search(at.message)
    given = _given(at) if found is not None else None
    if found is None or given is None or at.value(given) == "None":
        return None
    made = at.made(given) if not isinstance(given, ast.Constant) else None
    last = made.node if made is not None else given
    if isinstance(last, (ast.Dict, ast.Lambda)) or (isinstance(last, ast.Constant) and not _is_of(last, found[1])):
        return None
    if not isinstance(given, _PLACES) and not (isinstance(given, ast.Call) and called_name(given) == "device"):
        return None
    by = f" ({at.shown(made)})" if made is not None and as_written(made) != source(given) else ""
    kind = found[1].lower()
    return (
        f"Line {at.line} asks for a {found[1]} device itself, wherever the file was saved: `map_location="
        f"{source(given)}`{by}. Make that `torch.device('{kind}' if torch.{kind}.is_available() else 'cpu')`, or set "
        "it to cpu there. If a GPU should be there: look at CUDA_VISIBLE_DEVICES and torch.version.cuda."
    )


def asked_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _NO_DEVICE.search(at.message)
    given = _given(at) if found is not None else None
    if found is None or given is None:
        return None
    return f"`map_location={source(given)}` asks for a {found[1]} device, which this process does not have"


def _given(at: FailingLine) -> ast.expr | None:
    """What the only torch.load() of the line is told of the place."""
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    calls = [item for item in calls if ast.unparse(item.func) == "torch.load"]
    return argument_at(calls[0], 1, "map_location") if len(calls) == 1 else None


def _is_of(node: ast.Constant, kind: str) -> bool:
    return isinstance(node.value, int) or str(node.value).startswith(kind.lower())
