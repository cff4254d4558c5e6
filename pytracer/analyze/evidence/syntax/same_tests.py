"""A loop that asks the same in each pass: of a list that nothing fills, or with a step that was halved down to 0."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import PURE, is_among, is_own, names_read, touched
from pytracer.analyze.evidence.syntax.endless import only_exit
from pytracer.analyze.evidence.syntax.names import is_name
from pytracer.analyze.evidence.syntax.nan_tests import nan_test
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf, number
from pytracer.analyze.evidence.syntax.scopes import Scope
from pytracer.analyze.evidence.syntax.standing_steps import standing_steps
from pytracer.analyze.evidence.syntax.unbounded import (
    LONGEST,
    EndlessLoop,
    Reason,
    body_of,
    is_unbounded,
    leaves,
    short_text,
    yields,
)

_EMPTY = ("list", "dict", "set", "deque")
_SHRINKS = (ast.Mult, ast.Div)


def unmoved(scope: Scope, loop: EndlessLoop, value_of: ValueOf) -> Reason | None:
    """Why no pass of the loop changes what decides whether it goes on; None where one may.

    By the numbers that its steps leave as they are, by one that is nan, or by what nothing changes.

    Args:
        scope: The function.
        loop: The loop, wherever in it the function was.
        value_of: The recorded value of a variable of the function.
    """
    found = standing_steps(scope, loop, value_of) or nan_test(scope, loop, value_of)
    test = _test(loop)
    if found is not None or test is None or yields(body_of(loop)):
        return found
    return _never_filled(scope, loop, test, value_of) or _spent(scope, loop, test, value_of)


def _test(loop: EndlessLoop) -> ast.expr | None:
    """The condition alone on which it ends."""
    if not isinstance(loop, ast.While):
        return None
    if not is_unbounded(loop):
        return loop.test if not leaves(loop) else None
    only = only_exit(loop)
    return only.test if only is not None else None


def _never_filled(scope: Scope, loop: EndlessLoop, test: ast.expr, value_of: ValueOf) -> Reason | None:
    """`while len(images) < n`, where the only other mention of `images` in the function is `images = []`."""
    for name in (item.id for item in nodes_of(test) if isinstance(item, ast.Name)):
        made = _made_empty(scope, name)
        if made is None or _others_change(scope, loop, test, name, value_of):
            continue
        text = short_text(test)
        return Reason(
            f"nothing in the function puts anything into `{name}` (line {made.lineno}, `{short_text(made)}`), so what "
            f"`{text}` asks never changes",
            f"Add each result to `{name}` in the loop of line {loop.lineno}: `{name}.append(...)`. Or let it count by "
            "something that a pass changes.",
            sure=True,
            spins=True,
        )
    return None


def _made_empty(scope: Scope, name: str) -> ast.Assign | None:
    """The only statement that binds a variable, to an empty container, where nothing else but a test mentions it."""
    if not is_own(scope, name):
        return None
    mentions = [item for item in nodes_of(scope) if isinstance(item, ast.Name) and item.id == name]
    bound = [item for item in nodes_of(scope) if any(is_name(target, name) for target, _ in set_by(item))]
    if len(bound) != 1 or not isinstance(bound[0], ast.Assign) or not _is_empty(bound[0].value):
        return None
    asked = {id(part) for item in nodes_of(scope) for part in _only_read(item, name)}
    loads = [item for item in mentions if isinstance(item.ctx, ast.Load)]
    stores = [item for item in mentions if not isinstance(item.ctx, ast.Load)]
    return bound[0] if len(stores) == 1 and loads and all(id(item) in asked for item in loads) else None


def _only_read(node: ast.AST, name: str) -> Iterator[ast.AST]:
    """The variable in `len(images)` and `print(images)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PURE:
        yield from (item for item in node.args if is_name(item, name))


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, (ast.List, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Call) and called_name(value) in _EMPTY and not value.args


def _others_change(scope: Scope, loop: EndlessLoop, test: ast.expr, name: str, value_of: ValueOf) -> bool:
    """Whether a pass, or another thread, may change anything else that the condition reads.

    A number that is passed stays as it is; a flag of an object, or of the module, is there for others to set.
    """
    calls = [item for item in nodes_of(test) if isinstance(item, ast.Call) and called_name(item) not in PURE]
    bound, passed = touched(body_of(loop), passed=False), touched(body_of(loop))
    for other in names_read(test):
        known = number(ast.parse(other, mode="eval").body, value_of) is not None
        if other != name and (is_among(other, bound if known else passed) or not (known or is_own(scope, other))):
            return True
    return bool(calls)


def _spent(scope: Scope, loop: EndlessLoop, test: ast.expr, value_of: ValueOf) -> Reason | None:
    """`while loss(w - step * g) >= value: step *= 0.5`, where `step` has come to 0."""
    steps = [item for item in body_of(loop) if isinstance(item, ast.AugAssign) and isinstance(item.op, _SHRINKS)]
    for step in steps:
        name = step.target.id if isinstance(step.target, ast.Name) else None
        if name is None or name not in names_read(test) or not is_own(scope, name):
            continue
        if number(step.target, value_of) != 0 or number(step.value, value_of) in (0, None):
            continue
        rest = [item for item in body_of(loop) if item is not step and item is not step.target]
        others = [other for other in names_read(test) if other != name]
        if any(is_among(other, touched(rest, passed=False)) for other in names_read(test)):
            continue
        asks = f" with {list_words([f'`{other}`' for other in others[:3]])} as before" if others else ""
        return Reason(
            f"line {step.lineno} (`{shortened(ast.unparse(step), LONGEST)}`) has made `{name}` so small that it is 0, "
            f"and each pass asks `{short_text(test)}` again{asks}",
            f"Bound the passes of line {loop.lineno}, as by `for _ in range(40):` with `break`, and let a pass that "
            f"finds nothing end the work: with `{name}` near 0 there was no change for which "
            f"`{short_text(test)}` is false.",
            sure=True,
            spins=True,
        )
    return None
