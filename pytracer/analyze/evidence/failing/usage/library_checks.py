"""A check in a library's Python code that refused an argument: which expression of the program that argument was.

The names of the check's condition are followed through the library's own frames to the line of the program; an
attribute of the object that a method was called on, to the argument of that name with which the program made it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import short_file

_MOST = 2
_TYPES = (
    "int",
    "float",
    "bool",
    "str",
    "bytes",
    "list",
    "tuple",
    "dict",
    "set",
    "complex",
    "type",
    "torch",
    "np",
    "numpy",
)


class _Refused(msgspec.Struct, frozen=True):
    """`name`: in the library; `node`: the program's expression for it, or for what `by` computes it from there."""

    name: str
    node: ast.expr
    spot: Spot
    by: str | None = None


def refused_argument(at: FailingLine) -> str | None:
    """By the `if` around the `raise` of the innermost frame, or its assert."""
    if at.own:
        return None
    call, depth = at.only(ast.Call), next((n for n, item in enumerate(at.stack) if item is at.frame), 0)
    library = Slice(at.snapshot, at.stack, (depth, call) if call is not None else None)
    spot = library.spot(0)
    test = _test_of(spot) if spot is not None else None
    if spot is None or test is None:
        return None
    names = [*_names(test)]
    found = [item for name in names if (item := _passed(at, library, spot, name)) is not None]
    if not 0 < len(found) == len(names) <= _MOST:
        return None
    place = f"{short_file(spot.file)}:{spot.line}"
    told = ", and ".join(_told(at, item) for item in found)
    end = "Correct it there" if len(found) == 1 else "Make them fit each other"
    return f"The check `{source(test)}` ({place}) refuses it, where {told}. {end}."


def _test_of(spot: Spot) -> ast.expr | None:
    """The condition that led to the raise at a line."""
    around = [item for item in own_nodes(spot.scope) if isinstance(item, (ast.Raise, ast.Assert))]
    raised = next((item for item in around if item.lineno <= spot.line <= (item.end_lineno or 0)), None)
    if isinstance(raised, ast.Assert):
        return raised.test
    tests = [
        item for item in own_nodes(spot.scope) if isinstance(item, ast.If) and any(part is raised for part in item.body)
    ]
    return tests[-1].test if raised is not None and tests else None


def _names(test: ast.expr) -> Iterator[ast.expr]:
    seen = set[str]()
    called = {id(item.func) for item in nodes_of(test) if isinstance(item, ast.Call)}
    for item in nodes_of(test):
        name = variable(item) if isinstance(item, (ast.Name, ast.Attribute)) and id(item) not in called else None
        if name is not None and name not in ("self", *seen, *_TYPES):
            seen.add(name)
            yield item  # type: ignore[misc]


def _passed(at: FailingLine, library: Slice, spot: Spot, name: ast.expr) -> _Refused | None:
    if isinstance(name, ast.Attribute):
        return _made_with(at, name.attr)
    made = library.made(name, spot, calls=False)
    for node, where in (*made.through, (made.node, made.spot)):
        own = _own(at, where) if isinstance(node, ast.expr) else None
        if own is not None and isinstance(node, ast.expr):
            return _Refused(ast.unparse(name), node, own)
    inner = [*_names(made.node)] if made.through and isinstance(made.node, ast.expr) else []
    if len(inner) == 1 and ast.dump(inner[0]) != ast.dump(name):
        found = _passed(at, library, made.spot, inner[0])
        if found is not None and found.by is None:
            return structs.replace(found, name=ast.unparse(name), by=source(made.node))
    return _same_keyword(at, name)


def _own(at: FailingLine, where: Spot) -> Spot | None:
    """The frame of the program that a spot is in."""
    places = (n for n, frame in enumerate(at.frames) if (frame.file, frame.line) == (where.file, where.line))
    return at.slice.spot(next(places, len(at.frames)))


def _same_keyword(at: FailingLine, name: ast.expr) -> _Refused | None:
    """`batch_size=` of the program's call, where the library passes it on under that name, and its value is told."""
    call, spot = at.only(ast.Call), at.slice.spot(0)
    word = variable(name)
    given = keyword_value(call, word) if call is not None and word is not None else None
    value = at.value(given) if given is not None else None
    if given is None or spot is None or value is None:
        return None
    told = re.search(rf"\b{re.escape(variable(name) or '')}[=: ]+{re.escape(value)}(?![\w.])", at.message)
    return _Refused(ast.unparse(name), given, spot) if told is not None else None


def _made_with(at: FailingLine, attribute: str) -> _Refused | None:
    """`total_steps=updates` of the object whose method the program's line calls."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    made = at.made(owner) if owner is not None else None
    if made is None or not isinstance(made.node, ast.Call) or is_library_file(made.spot.file):
        return None
    given = keyword_value(made.node, attribute)
    return _Refused(attribute, given, made.spot) if given is not None else None


def _told(at: FailingLine, item: _Refused) -> str:
    words = f"{_by(item)}{_words(at, item)}"
    same = f"`{item.name}`" == words[: len(item.name) + 2]
    return f"{words}" if same else f"`{item.name}` is {words}"


def _by(item: _Refused) -> str:
    return f"`{item.by}` of " if item.by is not None else ""


def _origin(at: FailingLine, item: _Refused) -> Made | None:
    found = at.slice.made(item.node, item.spot, calls=False)
    return found if found.through and not isinstance(found.node, (ast.Name, ast.Attribute)) else None


def _words(at: FailingLine, item: _Refused) -> str:
    """`` `lr` (line 6: `lr=-0.1`) ``, or the constant of the line."""
    text, line = source(item.node), getattr(item.node, "lineno", item.spot.line)
    if isinstance(item.node, ast.Constant):
        return f"the `{text}` of {at.place(item.spot, line)}"
    if item.spot.depth == 0:
        value = at.value(item.node)
        return f"`{text}`{f', {value}' if value is not None else ''}{whence(at, item.node)}"
    found = _origin(at, item)
    return f"`{text}` of {at.place(item.spot, line)}{f' ({at.shown(found)})' if found is not None else ''}"
