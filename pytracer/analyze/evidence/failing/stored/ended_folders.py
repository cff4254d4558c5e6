"""A temporary folder or file that is gone since the block or the object that held it has ended, by its random name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    is_method,
    parents_of,
    qualified_name,
    scope_of,
    spans,
)

_MAKERS = {"TemporaryDirectory": ("folder", 0), "NamedTemporaryFile": ("file", 4)}  # where `suffix` and `prefix` stand
_PLAIN_MAKERS = ("mkdtemp", "mkstemp", "mktemp")
_ENDS = {"folder": ("cleanup",), "file": ("close", "unlink")}
_FILLS = frozenset({"dump", "save", "savez", "savez_compressed", "savetxt", "copyfileobj"})  # and do not keep it
_RANDOM = "[a-z0-9_]{8}"  # CPython, Lib/tempfile.py
_PARENT = Pattern(r"^Parent directory .* does not exist")


class _Ended(msgspec.Struct, frozen=True):
    """`how`: why it is gone, at the end of a sentence. `instead`: what to do."""

    call: ast.Call
    spot: Spot
    how: str
    instead: str

    @property
    def what(self) -> str:
        return _MAKERS[called_name(self.call) or ""][0]


def ended_folder(at: FailingLine) -> str | None:
    """What to change."""
    found = _ended(at)
    return f"{capital(_words(at, found))}. {found.instead}" if found is not None else None


def ended_folder_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _ended(at)
    return _words(at, found) if found is not None else None


def _words(at: FailingLine, found: _Ended) -> str:
    made = at.place(found.spot, found.call.lineno)
    return f"the temporary {found.what} of {made} (`{source(found.call)}`) is removed {found.how}"


def _ended(at: FailingLine) -> _Ended | None:
    """By the only line whose folders have such a name."""
    part = at.values.get("file missing part")
    if part is None or (at.kind != "FileNotFoundError" and not _PARENT.search(at.message)):
        return None
    calls = [
        (call, Spot(file, tree, scope_of(tree, call.lineno), call.lineno))
        for file, tree in at.files.items()
        for call in nodes_of(tree)
        if isinstance(call, ast.Call) and called_name(call) in (*_MAKERS, *_PLAIN_MAKERS)
    ]
    if any(
        called_name(call) in _PLAIN_MAKERS for call, _ in calls
    ):  # of which another line removes what has such names
        return None
    fits = [(call, spot) for call, spot in calls if _has_name(at, call, spot, part)]
    return _end_of(at, *fits[0]) if len(fits) == 1 else None


def _has_name(at: FailingLine, call: ast.Call, spot: Spot, part: str) -> bool:
    place = _MAKERS[called_name(call) or ""][1]
    ends = []
    for n, (name, default) in enumerate((("suffix", ""), ("prefix", "tmp"))):
        given = argument_at(call, place + n, name)
        made = at.slice.made(given, spot, calls=True).node if given is not None else ast.Constant(default)
        if not isinstance(made, ast.Constant) or not isinstance(made.value, str):
            return False
        ends.append(made.value)
    deleted = keyword_value(call, "delete")
    if keyword_value(call, "delete_on_close") is not None:  # then close() alone does not remove it
        return False
    kept = deleted is not None and not (isinstance(deleted, ast.Constant) and deleted.value is True)
    return not kept and re.fullmatch(re.escape(ends[1]) + _RANDOM + re.escape(ends[0]), part) is not None


def _end_of(at: FailingLine, call: ast.Call, spot: Spot) -> _Ended | None:
    parents = parents_of(spot.tree)
    parent = parents.get(call)
    if isinstance(parent, ast.Attribute) and parent.attr == "name":
        if called_name(call) == "NamedTemporaryFile":  # only a new name was asked for, and a line is to write it
            return None
        return _Ended(call, spot, "at once, as nothing keeps the object", _keep(at, call, spot, None))
    if isinstance(parent, ast.withitem):
        return _of_block(at, call, spot, parents.get(parent))
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    name = variable(targets[0]) if len(targets) == 1 else None
    if name is None:
        return None
    closed = [*_closes(spot, name, _ENDS[_MAKERS[called_name(call) or ""][0]])]
    if len(closed) == 1 and not _is_running(at, spot, closed[0].lineno):
        place = at.place(spot, closed[0].lineno)
        how = f"by {place} (`{source(closed[0])}`)"
        return _Ended(call, spot, how, f"Call that when nothing reads its files any more, as line {at.line} does.")
    if closed or "." in name or isinstance(spot.scope, (ast.Module, ast.Lambda)) or not _only_named(spot, name):
        return None
    if _is_running(at, spot, None):
        return None
    how = f"when {qualified_name(spot.tree, spot.scope)}() returns: `{name}` alone keeps it"
    return _Ended(call, spot, how, _keep(at, call, spot, name))


def _of_block(at: FailingLine, call: ast.Call, spot: Spot, block: ast.AST | None) -> _Ended | None:
    if not isinstance(block, ast.With):
        return None
    if any(isinstance(item, (ast.Yield, ast.YieldFrom)) for part in block.body for item in nodes_of(part)):
        return None  # it ends with the block of its caller
    inside = (at.slice.spot(depth) for depth in range(len(at.frames)))
    if any(item is not None and item.tree is spot.tree and spans(block, item.line) for item in inside):
        return None  # or at its first line, which ends it: what was moved away cannot be removed
    last = at.place(spot, block.body[-1].end_lineno or block.body[-1].lineno)
    how = f"at the end of its `with` block ({last})"
    begins = at.place(spot, block.lineno)
    return _Ended(
        call,
        spot,
        how,
        f"Move what reads it, as line {at.line} does, into the block that begins at {begins}, or copy what is to stay "
        "to a folder of the program's own before the block ends.",
    )


def _keep(at: FailingLine, call: ast.Call, spot: Spot, name: str | None) -> str:
    line, text = at.place(spot, call.lineno), f"{called_name(call)}(...)"
    if is_method(spot.tree, spot.scope):
        kept = f"self.{name or 'folder'} = {text}"
        return f"Keep the object as long as its files are read: write `{kept}` at {line}."
    return (
        f"Keep the object as long as its files are read: return it with the paths, or make it where line {at.line} is "
        f"called from and pass its `.name`; {line} drops it."
    )


def _closes(spot: Spot, name: str, ends: tuple[str, ...]) -> Iterator[ast.Call]:
    """The calls that end it: of an attribute in its class, of a variable in its function."""
    owner: ast.AST | None = class_around(spot.tree, spot.scope) if "." in name else spot.scope
    for item in nodes_of(owner) if owner is not None else ():
        called = item.func if isinstance(item, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in ends and variable(called.value) == name:
            yield item  # type: ignore[misc]


def _only_named(spot: Spot, name: str) -> bool:
    """Whether the object is asked for its name and for nothing that can keep it."""
    parents = parents_of(spot.tree)
    uses = [item for item in nodes_of(spot.scope) if isinstance(item, ast.Name) and item.id == name]
    above = [parents.get(item) for item in uses if isinstance(item.ctx, ast.Load)]
    asked = [item for item in above if isinstance(item, ast.Attribute)]
    fills = [item for item in above if isinstance(item, ast.Call) and called_name(item) in _FILLS]
    bound = len(uses) - len(above) == 1
    return bound and any(item.attr == "name" for item in asked) and len(asked) + len(fills) == len(above)


def _is_running(at: FailingLine, spot: Spot, line: int | None) -> bool:
    """Whether a frame of the stack is in that function, and has not passed the line."""
    inside = (at.slice.spot(depth) for depth in range(len(at.frames)))
    own = [item for item in inside if item is not None and item.scope is spot.scope]
    if line is None or scope_of(spot.tree, line) is not spot.scope:
        return bool(own) and line is None
    return any(item.line <= line for item in own)
