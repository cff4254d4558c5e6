"""A loop that a number keeps going which is nan: no order holds for it, so that `value >= best` is never true.

Either the loop ends only by such a comparison, or a counter that its condition reads is moved on only below one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.changes import names_read
from pytracer.analyze.evidence.syntax.constants import is_order
from pytracer.analyze.evidence.syntax.endless import only_exit
from pytracer.analyze.evidence.syntax.names import holds
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf, outcome
from pytracer.analyze.evidence.syntax.scopes import Scope
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, body_of, is_unbounded, leaves, short_text

_NAN = ("nan", "-nan")
_NAN_TEXT = Pattern(r"\bnan\b", re.IGNORECASE)


def nan_test(scope: Scope, loop: EndlessLoop, value_of: ValueOf) -> Reason | None:
    """By the recorded values; None where the comparison came out as it has to for the loop to end.

    Nor for a variable that begins as nan: the pass that sets it may be still to come.
    """
    if not isinstance(loop, ast.While):
        return None
    only = only_exit(loop)
    asked, wanted = (only.test, False) if only is not None else (loop.test, True)
    if only is None and (is_unbounded(loop) or leaves(loop)):
        return None
    own = _nan_of(asked, value_of)
    if own is not None:
        if outcome(asked, value_of) is not wanted or _begins_as_nan(scope, own):
            return None
        return Reason(
            f"`{own}` is nan, so `{short_text(asked)}` stays {'true' if wanted else 'false'} in each pass",
            _advice(own),
            sure=True,
            spins=True,
        )
    return next(_counted(scope, loop, asked, value_of), None)


def _begins_as_nan(scope: Scope, name: str) -> bool:
    """`best = float("nan")`; or what the function does not set, such as an attribute that a method sets."""
    values = [value for item in nodes_of(scope) for target, value in set_by(item) if holds(target, name)]
    return not values or any(_NAN_TEXT.search(ast.unparse(value)) for value in values if value is not None)


def _counted(scope: Scope, loop: ast.While, asked: ast.expr, value_of: ValueOf) -> Iterator[Reason]:
    """`if value >= best: waited += 1`, else `waited = 0`, of a loop that ends by `waited`."""
    for branch in (item for item in body_of(loop) if isinstance(item, ast.If)):
        name = _nan_of(branch.test, value_of)
        came = outcome(branch.test, value_of) if name is not None else None
        if name is None or came is None or _begins_as_nan(scope, name):
            continue
        taken, other = (branch.body, branch.orelse) if came else (branch.orelse, branch.body)
        for counter in names_read(asked):
            counts = [item for item in other if isinstance(item, ast.AugAssign) and holds(item.target, counter)]
            resets = [item for item in taken if isinstance(item, ast.Assign)
                      and any(holds(target, counter) for target in item.targets)]  # fmt: skip
            moved = [item for item in body_of(loop) if isinstance(item, (ast.Assign, ast.AugAssign))
                     and item not in (*counts, *resets)
                     and any(holds(part, counter) for part in _targets(item))]  # fmt: skip
            if not counts or moved:
                continue
            does = (
                f"line {resets[0].lineno} (`{short_text(resets[0])}`) sets `{counter}` anew"
                if resets
                else f"`{counter}` stays as it is"
            )
            yield Reason(
                f"`{name}` is nan, so `{short_text(branch.test)}` (line {branch.lineno}) is "
                f"{'true' if came else 'false'} in each pass, and {does}",
                _advice(name),
                sure=True,
                spins=True,
            )


def _targets(item: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    """What a statement binds."""
    return item.targets if isinstance(item, ast.Assign) else [item.target]


def _nan_of(test: ast.expr, value_of: ValueOf) -> str | None:
    """The variable of an order in it that is nan."""
    for item in nodes_of(test):
        if isinstance(item, ast.Compare) and is_order(item):
            for part in (item.left, *item.comparators):
                if isinstance(part, (ast.Name, ast.Attribute)) and value_of(part) in _NAN:
                    return ast.unparse(part)
    return None


def _advice(name: str) -> str:
    return (
        f"End the loop where `{name}` is no number: `if not math.isfinite({name}): raise ValueError(...)`. And see in "
        f"which pass it first is nan, and by what: a step that is too large, a division by 0, or such values in the "
        "data."
    )
