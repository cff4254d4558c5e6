"""A key of a store that a rank waits for in vain: no line of the program sets one of that form, but a similar one."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.own_keys import key_forms
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.own_values import STORE_SETS
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_TIMEOUT = Pattern(r"(?:wait timeout after \d+ ?ms, keys: |Timeout waiting for key: ?)/?([^\s,]+)")
_WAITS = ("wait", "get", "multi_get")
_UNKNOWN = "{}"
_ALIKE = 0.75
_PAIR = 2  # a key and its value


def unset_key(at: FailingLine) -> str | None:
    """The line that sets a similar key, where every key that the program sets has a known form, and none is this."""
    found = _TIMEOUT.search(at.message)
    here = at.slice.spot(0)
    waits = [item for item in calls_on(at.tree, at.line) if called_name(item) in _WAITS and item.args]
    if found is None or here is None or len(waits) != 1:
        return None
    key, asked = found[1].rstrip("."), [*key_forms(at.slice, waits[0].args[0], here)]
    sets = [*_sets(at)]
    if not sets or any(form == _UNKNOWN or _fits(form, key) for _, _, form in sets):
        return None
    alike = {form: max((_likeness(form, item) for item in [*asked, key]), default=0.0) for *_, form in sets}
    file, node, form = max(sets, key=lambda item: alike[item[2]])
    if alike[form] < _ALIKE or _is_read(at, form):
        return None
    return (
        f"Line {at.line} waits for the key `{key}`, and {at.in_file(file, node.lineno)} sets `{_written(node, form)}`: "
        "no line of the program sets a key of the first form. Write both alike, if no other program is to set it."
    )


def _sets(at: FailingLine) -> Iterator[tuple[str, ast.expr, str]]:
    """What the program sets: the file, the key as it is written, and its form."""
    for file, tree in at.files.items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            given = passed_values(call)
            if called_name(call) not in STORE_SETS or len(given) < _PAIR or not isinstance(call.func, ast.Attribute):
                continue
            spot = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
            for form in key_forms(at.slice, given[0], spot):
                yield file, given[0], form


def _is_read(at: FailingLine, form: str) -> bool:
    """Whether a line waits for a key of that form, too: then it is another key, and no slip."""
    for file, tree in at.files.items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call) and item.args):
            if called_name(call) in _WAITS and isinstance(call.func, ast.Attribute):
                spot = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
                if form in key_forms(at.slice, call.args[0], spot):
                    return True
    return False


def _fits(form: str, key: str) -> bool:
    """Whether a key may be of that form, perhaps behind the prefix of a store."""
    return re.search("(?:^|/)" + ".*".join(map(re.escape, form.split(_UNKNOWN))) + "$", key) is not None


def _likeness(form: str, other: str) -> float:
    return difflib.SequenceMatcher(None, form, other).ratio()


def _written(node: ast.expr, form: str) -> str:
    """The text of a key without its quotes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(item.value) if isinstance(item, ast.Constant) else f"{{{source(getattr(item, 'value', item))}}}"
            for item in node.values
        )
    return form if _UNKNOWN not in form else source(node)
