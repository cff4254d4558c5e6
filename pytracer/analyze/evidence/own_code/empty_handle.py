"""A divisor of C that an earlier call of the library counted: `l->n`, where `l` came from `lib.list_open(path)`.

By the sources alone: the line of Python that made the handle, the variable of which the failing line used it, and what
the function counts. That the field is 0 is known by the division; which item could not be opened is not.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_divisions import plain
from pytracer.analyze.evidence.own_code.c_fields import passed_for
from pytracer.analyze.evidence.own_code.c_text import defined, without_parentheses
from pytracer.analyze.evidence.own_code.c_values import Term, member_of
from pytracer.analyze.evidence.own_code.counted_items import CountedItems, counted_items
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, without_ctype
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_SIZE = Pattern(r"\s*\.\s*(?:size|length)\s*\(\s*\)$")
_QUOTED = 60


class EmptyHandle(msgspec.Struct, frozen=True):
    """`field` (`l->n`) is 0, which `maker` counts, called at `made`; `source`: its file, `sampler.c`.

    `of`: the variable whose method was called, at `used`. `given`: what it is given for the file that it reads, which
    line `origin` writes.
    """

    field: str
    maker: str
    made: LineWords
    source: str
    items: CountedItems
    of: str | None = None
    used: LineWords | None = None
    given: str | None = None
    origin: LineWords | None = None

    @property
    def words(self) -> str:
        """``; `l->n` is 0 for `val` (line 125): list_open(), called at line 69, counts only what fopen() can open``."""
        whose = f" for `{self.of}` ({self.used})" if self.of is not None else ""
        return f"; `{self.field}` is 0{whose}: {self.maker}(), called at {self.made}, {self.items.counts}"

    @property
    def advice(self) -> str:
        """What to check of what was given, and what the function should do about it."""
        of = f" for `{self.of}`" if self.of is not None else ""
        at = f" ({self.origin})" if self.origin is not None and self.origin != self.made else ""
        what = f"what {self.made} gives to {self.maker}(){of}"
        if self.given is not None:
            what = f"the file that {self.maker}() reads{of}, `{self.given}`{at}"
        report = f"let {self.maker}() report that, and that nothing is left"
        place, items = f"{self.source}:{self.items.at}", self.items
        if items.opener is not None:
            has = "whether it has lines, and whether" if self.given is not None else "whether"
            how = "silently skips" if items.silent else "skips"
            return (
                f"Check {what}: {has} the paths in it exist, seen from where the program runs. {place} {how} what "
                f"{items.opener}() {items.fails}: {report}"
            )
        if items.test is not None:
            return f"Check {what}: nothing in it was counted at {place} (`{items.test}`): {report}"
        return f"Check {what}: the loop of {place} counted nothing in it: {report}"


def empty_handle(view: ProcessView, term: Term, text: str, source: str, arrays: PassedArrays) -> EmptyHandle | None:
    """Of what a divisor is in the end; None where it is no field of a handle, or nothing shows what is counted."""
    last = without_parentheses(term.text)
    size = _SIZE.search(last)
    member = member_of(last[: size.start()] if size is not None else last, term.body)
    given = passed_for(member, arrays) if member is not None else None
    if member is None or member.member is None or given is None:
        return None
    owner = _owner(*given, arrays)
    made = _made(*_of_owner(given[0], *owner), text, arrays) if owner is not None else None
    made = made or _made(*given, text, arrays)
    items = (
        counted_items(text, member.member, called_name(made[0]) or "", vector=size is not None)
        if made is not None
        else None
    )
    if made is None or items is None:
        return None
    call, at = made
    found = EmptyHandle(
        shortened(last, _QUOTED), called_name(call) or "", place_of(view, at.file, call.lineno), source, items
    )
    if owner is not None:
        used = place_of(view, owner[1].file, owner[1].line)
        found = msgspec.structs.replace(found, of=ast.unparse(owner[0]), used=used)
    return _with_file(view, found, call, at, arrays)


def _made(node: ast.expr, spot: Spot, text: str, arrays: PassedArrays) -> tuple[ast.Call, Spot] | None:
    """The only call of a function of the source on the way to the handle."""
    clean = plain(text)
    made = arrays.back.made(node, spot, calls=False)
    calls = {
        id(inner): (inner, at)
        for part, at in (*made.through, (made.node, made.spot))
        for inner in nodes_of(part)
        if isinstance(inner, ast.Call) and len(defined(clean, called_name(inner) or " ")) == 1
    }
    return next(iter(calls.values())) if len(calls) == 1 else None


def _owner(node: ast.expr, spot: Spot, arrays: PassedArrays) -> tuple[ast.expr, Spot] | None:
    """`val` of `val.batch(32)`, whose method passes `self.handle`."""
    scope, outer = spot.scope, arrays.back.spot(1)
    if not ast.unparse(node).startswith("self.") or not isinstance(scope, ast.FunctionDef) or outer is None:
        return None
    calls = [
        item.func.value
        for item in calls_on(outer.tree, outer.line)
        if isinstance(item.func, ast.Attribute) and item.func.attr == scope.name
    ]
    name = variable(calls[0]) if len(calls) == 1 else None
    return (calls[0], outer) if name not in (None, "self") else None


def _of_owner(node: ast.expr, owner: ast.expr, outer: Spot) -> tuple[ast.expr, Spot]:
    """`val.handle`, where the method was called."""
    attribute = node.attr if isinstance(node, ast.Attribute) else ""
    return ast.copy_location(ast.Attribute(owner, attribute, ast.Load()), owner), outer


def _with_file(view: ProcessView, found: EmptyHandle, call: ast.Call, at: Spot, arrays: PassedArrays) -> EmptyHandle:
    """What names the file that the function reads, where one expression does."""
    place = found.items.file
    if place is None or call.keywords or place >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args):
        return found
    node = _text_of(without_ctype(call.args[place]))
    made = arrays.back.made(node, at, calls=False)
    value = made.node if isinstance(made.node, ast.expr) else node
    where, line = (made.spot, made.line) if value is made.node else (at, call.lineno)
    return msgspec.structs.replace(
        found, given=shortened(ast.unparse(_text_of(value)), _QUOTED), origin=place_of(view, where.file, line)
    )


def _text_of(node: ast.expr) -> ast.expr:
    """`path` of `path.encode()`, `str(path).encode()`, `os.fsencode(path)`."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "encode":
            node = node.func.value
        elif called_name(node) in ("str", "fsencode", "fspath", "bytes") and node.args:
            node = node.args[0]
        else:
            break
    return node
