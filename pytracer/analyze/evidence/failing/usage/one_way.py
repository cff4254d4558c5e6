"""A result that a function sets only on one way: `loss` of a forward() that computes it only with labels."""

from __future__ import annotations

import ast
import difflib

import msgspec

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes

_BOTH = 2  # lines: the one that sets None, and the one below the `if`
_LIKE = 0.8


class OneWay(msgspec.Struct, frozen=True):
    """`words`: where it is set, and why not here; `subject`: the same for the headline."""

    words: str
    subject: str


def set_on_one_way(at: FailingLine, name: str) -> OneWay | None:
    """Of a variable that is None, as a function of the program left what it returns so."""
    found = at.made(name)
    if found is None or not isinstance(found.node, ast.Name) or found.spot.depth is not None:
        return None
    test = _test(found)
    if test is None:
        return None
    by = f"{getattr(found.spot.scope, 'name', 'the function')}() sets it only if `{source(test.test)}`"
    place, passed = at.place(found.spot, test.lineno), _passed(at, found, test)
    if passed is None:
        words = f"`{name}` is None: {by} ({place}), which did not hold, or gave None. Look at what decides it."
        return OneWay(words, f"`{name}` is None, as {by} ({place})")
    return OneWay(f"`{name}` is None: {by} ({place}), and {passed[1]}", f"`{name}` is None, as {by}, and {passed[0]}")


def _test(found: Made) -> ast.If | None:
    """The only `if` around the second of two lines that bind it, of which the first one binds None."""
    scope = found.spot.scope
    bound = sorted(lines_that_bind(scope, ast.unparse(found.node)), key=lambda item: item[0])
    if len(bound) != _BOTH or bound[0][1] is None or not is_none(bound[0][1]):
        return None
    line = bound[1][0]
    tests = [
        item for item in own_nodes(scope) if isinstance(item, ast.If) and item.lineno < line <= (item.end_lineno or 0)
    ]
    return tests[0] if len(tests) == 1 else None


def _passed(at: FailingLine, found: Made, test: ast.If) -> tuple[str, str] | None:
    """What the call passes for the only parameter that the condition reads: in short, and with what to do."""
    scope = found.spot.scope
    names = {part.id for part in nodes_of(test.test) if isinstance(part, ast.Name) and is_parameter(scope, part.id)}
    name = names.pop() if len(names) == 1 else None
    given = at.slice.argument(name, found.spot) if name is not None else None
    if name is None or given is None or (isinstance(given[0], ast.Constant) and not is_none(given[0])):
        return None
    value, spot = given
    if spot.scope is scope:
        short = f"the call passes no `{name}`"
        return short, f"{short}. Pass it, or compute the loss from the other outputs."
    line = at.place(spot, getattr(value, "lineno", spot.line))
    spread = _spread(value, spot)
    if spread is not None:
        return _of_spread(at, name, spread, spot)
    short = f"{line} passes `{name}={source(value)}`"
    if isinstance(value, ast.Call) and called_name(value) == "get":
        return short, f"{short}, which finds no such key: print the keys that there are, and use theirs."
    return short, f"{short}. Look at why that is so."


def _spread(value: ast.AST, spot: Spot) -> ast.expr | None:
    """`batch` of a call `f(**batch)`, by the `batch["labels"]` that no line has written."""
    inner = value.value if isinstance(value, ast.Subscript) else None
    calls = calls_on(spot.tree, spot.line)
    return next(
        (part.value for call in calls for part in call.keywords if part.arg is None and part.value is inner), None
    )


def _of_spread(at: FailingLine, name: str, spread: ast.expr, spot: Spot) -> tuple[str, str]:
    line = at.place(spot, spread.lineno)
    short = f"{line} passes no `{name}`, or None (`**{source(spread)}`)"
    made = at.slice.made(spread, spot, calls=True)
    kept = _kept_keys(made.node)
    where = f": {at.place(made.spot, made.line)} keeps only the keys that are in `{kept}`" if kept is not None else ""
    like = _like(at, name)
    named = f" The program also has '{like[0]}' ({like[1]}): give it the name '{name}'" if like is not None else ""
    first = f"{named}," if named else f" Print the keys there, pass `{name}`,"
    return short, f"{short}{where}.{first} or compute the loss from the other outputs."


def _kept_keys(node: ast.AST) -> str | None:
    """`batch` of `{k: batch[k] for k in NAMES if k in batch}`."""
    tests = [test for part in node.generators for test in part.ifs] if isinstance(node, ast.DictComp) else []
    test = tests[0] if len(tests) == 1 else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.In):
        return None
    return source(test.comparators[0])


def _like(at: FailingLine, name: str) -> tuple[str, str] | None:
    """A key of the program that is nearly the same, and the first line that has it."""
    found: dict[str, tuple[str, int]] = {}
    for file, tree in at.trees.items():
        for item in nodes_of(tree):
            keys = item.keys if isinstance(item, ast.Dict) else [item.slice] if isinstance(item, ast.Subscript) else []
            for key in keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.setdefault(key.value, (file, key.lineno))
    near = difflib.get_close_matches(name, [key for key in found if key != name], 1, _LIKE)
    return (near[0], at.in_file(*found[near[0]])) if near else None
