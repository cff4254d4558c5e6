"""Why a line of a loop ran in no round, where recorded values show it: a test that skipped it, or a loader of nothing.

Only asked where it is known that the line did not run: what it sets is not set, what it counts is still 0.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.empty_data import without_batch
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.guards import stands_in
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import outcome
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, spans

_MOST = 2
_LEAVES = (ast.Continue, ast.Break)
DROPS_ALL = "Leave drop_last out for it, or use smaller batches."

_ENDS_ROUND = (ast.Continue, ast.Break, ast.Return, ast.Try)


class Missed(msgspec.Struct, frozen=True):
    """`words`: `` `step < start` (line 9) skipped it in the last round (`step` is 3) ``. `advice`: where one fits."""

    words: str
    advice: str | None = None


def missed(at: FailingLine, spot: Spot, line: int, *, unset: bool = False) -> Missed | None:
    """None where nothing recorded shows it.

    Args:
        at: The failing line.
        spot: The frame of the stack whose function has the line.
        line: That ran in no round.
        unset: What it sets is not set: it did not run at all, and so none of the lines beside it in its branch.
    """
    loops = [item for item in loops_of(spot.scope) if item.lineno < line <= (item.end_lineno or 0)]
    inner = max(loops, key=lambda item: item.lineno, default=None)
    if isinstance(inner, (ast.For, ast.AsyncFor)):
        nothing = _nothing_given(at, spot, inner)
        if nothing is not None:
            return nothing
    first = inner.lineno if inner is not None else 0
    if isinstance(inner, (ast.For, ast.AsyncFor)) and not _had_a_round(at, spot, inner):
        return None
    tests = [item for item in own_nodes(spot.scope) if isinstance(item, ast.If) and first < item.lineno < line]
    left = inner is not None and _may_be_left(spot, inner)
    for item in sorted(tests, key=lambda one: one.lineno):
        held = outcome(item.test, lambda node: at.value_at(node, spot))
        of_other = any(loop is not inner and first < loop.lineno and spans(loop, item.lineno) for loop in _loops(spot))
        if of_other or _changed_since(spot, item, line if unset else 0):
            continue
        never = _never_held(at, spot, inner, item, line) if unset and not left else None
        if never is not None:
            return never
        if held is None:
            continue
        skips = held and not spans(item, line) and isinstance(item.body[-1], ast.Continue)
        inside = spans(item, line)
        orelse = inside and bool(item.orelse) and item.orelse[0].lineno <= line
        if not skips and not (inside and held == orelse):
            continue
        does = "skipped it" if skips or held else "did not hold"
        when = " in the last round" if inner is not None else ""
        test = f"`{source(item.test)}` ({at.place(spot, item.lineno)})"
        return Missed(f"{test} {does}{when}{_values(at, spot, item.test)}")
    return _always_skipped(at, spot, inner, line) if unset and not left else None


def _loops(spot: Spot) -> list[ast.stmt]:
    return [*loops_of(spot.scope)]


def _had_a_round(at: FailingLine, spot: Spot, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a variable that the loop sets is recorded, and no other line may have set it."""
    names = [item.id for item in nodes_of(loop.target) if isinstance(item, ast.Name)]
    held = at.values_at(spot.depth or 0)
    return any(name in held and len(lines_that_bind(spot.scope, name)) == 1 for name in names)


def _never_held(at: FailingLine, spot: Spot, loop: ast.stmt | None, test: ast.If, line: int) -> Missed | None:
    """Of a loop that had rounds, each of which came to the test, and whose branch has the line."""
    body = loop.body if isinstance(loop, (ast.For, ast.AsyncFor)) else []
    leaves = [item for part in body if part.lineno < test.lineno for item in nodes_of(part)]
    if test not in body or not stands_in(test.body, line) or any(isinstance(item, _LEAVES) for item in leaves):
        return None
    words = f"`{source(test.test)}` ({at.place(spot, test.lineno)}) held in no round{_values(at, spot, test.test)}"
    return Missed(words)


def _may_be_left(spot: Spot, loop: ast.stmt) -> bool:
    """Whether an exception that is caught behind the loop can have ended it."""
    for item in own_nodes(spot.scope):
        if not isinstance(item, (ast.Try, ast.With, ast.AsyncWith)) or not spans(item, loop.lineno):
            continue
        heads = [] if isinstance(item, ast.Try) else item.items
        catches = bool(item.handlers) if isinstance(item, ast.Try) else any("suppress" in ast.unparse(h) for h in heads)
        if catches and not spans(item, spot.line):
            return True
    return False


def _always_skipped(at: FailingLine, spot: Spot, loop: ast.stmt | None, line: int) -> Missed | None:
    """Of a loop that had rounds: the one test before the line that can end a round without it."""
    body = loop.body if isinstance(loop, (ast.For, ast.AsyncFor)) else []
    place = next((number for number, part in enumerate(body) if spans(part, line)), 0)
    if not place or not isinstance(body[place], (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return None
    ways = [part for part in body[:place] if any(isinstance(item, _ENDS_ROUND) for item in nodes_of(part))]
    only = ways[0] if len(ways) == 1 else None
    if not isinstance(only, ast.If) or only.orelse or not isinstance(only.body[-1], ast.Continue):
        return None
    if sum(isinstance(item, _ENDS_ROUND) for item in nodes_of(only)) > 1:
        return None
    test = f"`{source(only.test)}` ({at.place(spot, only.lineno)})"
    values = "" if _changed_since(spot, only, 0) else _values(at, spot, only.test)
    return Missed(
        f"{test} held in each round, which skips it{values}",
        "See why it held each time: the first round is enough for that.",
    )


def _changed_since(spot: Spot, branch: ast.If, missed_line: int) -> bool:
    """Whether a variable of a test may be set or filled behind it: what is recorded is not what the test met.

    Not by the branch that would have run the line, which did not run.
    """
    test = branch.test
    names, last = set(names_in(test)), test.end_lineno or test.lineno
    if stands_in(branch.body, missed_line):
        last = branch.body[-1].end_lineno or last
    if any(line > last for name in names for line, _ in lines_that_bind(spot.scope, name)):
        return True
    sized = any(isinstance(item, ast.Call) for item in nodes_of(test)) or isinstance(test, (ast.Name, ast.UnaryOp))
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.AugAssign) and item.lineno > last and variable(item.target) in names:
            return True
        call = item.func if isinstance(item, ast.Call) and item.lineno > last else None
        if sized and isinstance(call, ast.Attribute) and variable(call.value) in names:
            return True
    return False


def _values(at: FailingLine, spot: Spot, test: ast.expr) -> str:
    told = [f"`{name}` is {value}" for name in names_in(test) if (value := at.values_at(spot.depth or 0).get(name))]
    return f" ({', '.join(told)})" if 0 < len(told) <= _MOST else ""


def _nothing_given(at: FailingLine, spot: Spot, loop: ast.For | ast.AsyncFor) -> Missed | None:
    """A loader of fewer samples than a batch, which drops the last one."""
    for part in nodes_of(loop.iter):
        few = without_batch(at.value_at(part, spot)) if isinstance(part, (ast.Name, ast.Attribute)) else None
        if few is not None:
            name = f"`{source(part)}` ({at.place(spot, loop.lineno)})"
            advice = DROPS_ALL if "drop_last" in few else None
            return Missed(f"{name} gives no batch, as {few}", advice)
    return None


def _may_be_set_back(at: FailingLine, owner: ast.ClassDef, name: str, outer: Spot, line: int) -> bool:
    """Whether a reset() of the meter may have run behind the line that counts."""
    resets = {
        method.name
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and method.name != "__init__"
        if any(holds(goal, name) for item in own_nodes(method) if isinstance(item, ast.Assign) for goal in item.targets)
    }
    first = next((item for item in owner.body if getattr(item, "name", "") == "__init__"), None)
    fine = {id(item) for item in (nodes_of(first) if first is not None else ())}
    fine |= {id(item) for item in own_nodes(outer.scope) if getattr(item, "lineno", line) < line}
    return any(
        isinstance(item, ast.Attribute) and item.attr in resets and id(item) not in fine
        for tree in at.files.values()
        for item in nodes_of(tree)
    )


def never_counted(at: FailingLine, name: str) -> str | None:
    """`self.count` of a meter, which only its update() raises: the caller's line that should have called that."""
    owner, outer = class_around(at.tree, at.scope), at.slice.spot(1)
    if owner is None or outer is None or not name.startswith("self."):
        return None
    raising = [
        (method, item)
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
        for item in own_nodes(method)
        if isinstance(item, ast.AugAssign) and isinstance(item.op, ast.Add) and variable(item.target) == name
    ]
    used = getattr(at.scope, "name", "")
    if len(raising) != 1 or raising[0][0].name == used:
        return None
    method, raised = raising[0]
    asked = [item for item in nodes_of(outer.scope) if isinstance(item, ast.Attribute) and item.attr == used]
    meters = {ast.unparse(item.value) for item in asked if spans(item, outer.line)}
    calls = [
        item
        for item in own_nodes(outer.scope)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == method.name
        if ast.unparse(item.func.value) in meters
    ]
    if len(meters) != 1 or len(calls) != 1 or _may_be_set_back(at, owner, name, outer, calls[0].lineno):
        return None
    only = f"only {owner.name}.{method.name}() ({at.here(raised.lineno)}) raises it"
    called = f"`{source(calls[0])}` ({at.place(outer, calls[0].lineno)})"
    why = missed(at, outer, calls[0].lineno)
    if why is None:
        return f"{only}, and {called} did not run, or added nothing"
    return f"{only}, and {called} did not run, as {why.words}"
