"""What is empty or 0 at the failing line, and which line emptied it, filtered it, or should have filled it."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.name_origins import EMPTY_MESSAGE
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import whole_number
from pytracer.analyze.evidence.failing.usage.emptied import (
    counted_in,
    emptied_by,
    is_empty,
    never_filled,
    only_binding,
)
from pytracer.analyze.evidence.failing.usage.empty_data import empty_data
from pytracer.analyze.evidence.failing.usage.empty_shares import empty_share
from pytracer.analyze.evidence.failing.usage.missed_lines import missed, never_counted
from pytracer.analyze.evidence.failing.usage.zero_divisors import rounded_down, zero_item, zero_sum
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import argument_at
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_SPAN = Pattern(r" u?int\d+, (-?\d+)\.\.(-?\d+)$")
_TAKES = {"pop", "popleft", "popitem"}
_HANDLE = "Handle the empty case before this line, or find what should have been there."


def nothing_there(at: FailingLine) -> str | None:
    """An index, reduction, division or pop that met nothing."""
    if at.kind == "ZeroDivisionError":
        return _zero(at) if at.own else None
    if not EMPTY_MESSAGE.search(at.message) and at.kind != "IndexError":
        return None
    node = at.node
    if node is None:
        return None
    taken = _used_up(at)
    if taken is not None:
        return taken
    if "num_samples=0" in at.message:
        return _empty_dataset(at, node)
    if at.kind == "IndexError" and at.own and not EMPTY_MESSAGE.search(at.message):
        node = getattr(at.only(ast.Subscript), "value", None)
        if node is None:
            return None
    names = [name for name in names_in(node) if is_empty(at.value(name))]
    if not names:
        return _selects_nothing(at, node)
    if len(names) != 1:
        return None
    share = empty_share(at, names[0])
    if share is not None:
        return share
    why = emptied_by(at, at.scope, names[0], at.line)
    several = any(line < at.line for line, _ in lines_that_bind(at.scope, names[0]))
    several = several and only_binding(at, at.scope, names[0], at.line) is None
    made = f": {why}" if why else at.came(names[0]) if not several else ""
    return f"`{names[0]}` is empty{made}. {_HANDLE}"


def _selects_nothing(at: FailingLine, node: ast.AST) -> str | None:
    """`values[groups == g]`, where no element of `groups` can be that number."""
    for item in nodes_of(node):
        test = item.slice if isinstance(item, ast.Subscript) else None
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
            continue
        span, number = _SPAN.search(at.value(test.left) or ""), whole_number(at, test.comparators[0])
        if span is None or number is None or int(span[1]) <= number <= int(span[2]):
            continue
        asked, held = source(test.comparators[0]), source(test.left)
        came = at.came(test.comparators[0])
        return (
            f"`{source(item)}` is empty, as `{held}`{at.came(held)} is {span[1]} to {span[2]}, and `{asked}`{came} is "
            f"{number}. Ask for the numbers that there are (they may begin at 1), or handle one that nothing has."
        )
    return None


def _empty_dataset(at: FailingLine, node: ast.AST) -> str | None:
    """Of the loader that a line makes: by what the dataset's length counts."""
    spot = at.slice.spot(0)
    for call in (item for item in nodes_of(node) if isinstance(item, ast.Call)):
        given = argument_at(call, 0, "dataset", "data_source")
        why = empty_data(at, given, spot) if given is not None and spot is not None else None
        if given is not None and why is not None:
            same = why.startswith(f"`{source(given)}`")
            return f"{'' if same else f'`{source(given)}` is empty: '}{why}. Print len() of it before line {at.line}."
    return None


def _used_up(at: FailingLine) -> str | None:
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    takes = [item for item in calls if isinstance(item.func, ast.Attribute) and item.func.attr in _TAKES]
    if at.kind not in ("IndexError", "KeyError") or len(takes) != 1 or "empty" not in at.message:
        return None
    call = takes[0]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call
    name = variable(owner)
    if name is None:
        return None
    filled = at.came(name)
    return (
        f"Each `{source(call)}` takes one away, and `{name}`{filled} is used up or was never filled. Fill it again "
        "before, take by index or itertools.cycle() instead, or stop when it is empty."
    )


def _zero(at: FailingLine) -> str | None:
    """The divisor: a count that was never raised, or the length of something empty."""
    operations = (ast.Div, ast.FloorDiv, ast.Mod)
    node = at.node
    divisions = [
        item
        for item in (nodes_of(node) if node is not None else ())
        if isinstance(item, ast.BinOp) and isinstance(item.op, operations)
    ]
    divisor = divisions[0].right if divisions and (isinstance(node, ast.BinOp) or len(divisions) == 1) else None
    if divisor is None and isinstance(at.statement, ast.AugAssign) and isinstance(at.statement.op, operations):
        divisor = at.statement.value
    if divisor is None:
        return None
    counted = counted_in(divisor)
    if counted is not None:
        name = variable(counted)
        why = emptied_by(at, at.scope, name, at.line) if name is not None else None
        spot = at.slice.spot(0)
        why = why or (empty_data(at, counted, spot) if spot is not None else None)
        made = f": {why}" if why else at.came(name)
        dropped = why is not None and why.endswith("drop_last=True drops them")
        handle = "Make that loader with drop_last=False, or with smaller batches." if dropped else _HANDLE
        return f"`{source(counted)}` has no elements, so its length is 0{made}. {handle}"
    name = variable(divisor)
    if name is None:
        return zero_sum(at, divisor) or zero_item(at, divisor)
    if at.value(name) not in ("0", "0.0", None):
        return None
    rounded = rounded_down(at, name)
    if rounded is not None:
        return rounded
    bound = only_binding(at, at.scope, name, at.line)
    fills = [item for item in lines_that_fill(at.scope, name) if item != at.line]
    if bound is not None and isinstance(bound[1], ast.Call) and counted_in(bound[1]) is not None and not fills:
        counted = counted_in(bound[1])
        inner = variable(counted) if counted is not None else None
        why = emptied_by(at, at.scope, inner, bound[0]) if inner is not None else None
        return f"`{name}` is 0, the length of `{inner}` ({at.here(bound[0])}){f': {why}' if why else ''}. {_HANDLE}"
    why = never_counted(at, name)
    if why is not None:
        return f"`{name}` is 0 where line {at.line} divides by it: {why}. Handle the case of nothing counted there."
    if bound is None or len(fills) != 1:
        made = at.came(name) if not fills else ""
        return (
            f"`{name}`{made} is 0 where line {at.line} divides by it: correct it there, or handle 0 here."
            if made
            else None
        )
    spot = at.slice.spot(0)
    skipped = missed(at, spot, fills[0]) if spot is not None else None
    added = _added_nothing(at, fills[0]) or (skipped.words if skipped is not None else None)
    if skipped is not None and skipped.advice is not None and added == skipped.words:
        return f"`{name}` is still 0: {added}. {skipped.advice}"
    why = added or never_filled(at, at.scope, name, bound[0], fills[0], "raises")
    return f"`{name}` is still 0: {why}. Handle the empty case (return before, or `max({name}, 1)`)."


def _added_nothing(at: FailingLine, fill: int) -> str | None:
    """The line that counts ran, with something empty."""
    node = next((item for item in own_nodes(at.scope) if isinstance(item, ast.AugAssign) and item.lineno == fill), None)
    names = [name for name in names_in(node.value) if is_empty(at.value(name))] if node is not None else []
    if not names:
        return None
    why = emptied_by(at, at.scope, names[0], fill)
    return f"{at.here(fill)} adds nothing, as `{names[0]}` is empty{f': {why}' if why else ''}"
