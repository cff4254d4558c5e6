"""The text or number that an expression has by the source alone: a constant, a default, or an option of the command."""

from __future__ import annotations

import ast
from collections.abc import Callable

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import contradicts
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_PARSES = ("parse_args", "parse_known_args", "parse_intermixed_args")
_CHANGES_OPTIONS = ("setattr", "set_defaults", "update")  # of a namespace, or of vars() of one
_CHANGES: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "casefold": str.casefold,
    "strip": str.strip,
}


def given_text(at: FailingLine, node: ast.expr, spot: Spot) -> tuple[str, str] | None:
    """The text, and where it is from: `line 12`, or `--arch`; None where it is not known, or the record denies it.

    Args:
        at: The failing line.
        node: The expression.
        spot: Where it is read.
    """
    changed = _changed(node)
    if changed is not None:
        inner = given_text(at, changed[1], spot)
        return (_CHANGES[changed[0]](inner[0]), inner[1]) if inner is not None else None
    made = at.slice.made(node, spot, calls=True)
    if not made.through:
        return None
    found = _value(at, made)
    recorded = at.value_at(node, spot)
    if found is None or (recorded is not None and contradicts(recorded, found[0])):
        return None
    return found


def _changed(node: ast.AST) -> tuple[str, ast.expr] | None:
    """`name` of `name.lower()`."""
    func = node.func if isinstance(node, ast.Call) and not node.args and not node.keywords else None
    return (func.attr, func.value) if isinstance(func, ast.Attribute) and func.attr in _CHANGES else None


def _value(at: FailingLine, made: Made) -> tuple[str, str] | None:
    if isinstance(made.node, ast.Constant):
        value = made.node.value
        return (value, at.place(made.spot, made.line)) if isinstance(value, str) else None
    if _changed(made.node) is not None and isinstance(made.node, ast.expr):
        return given_text(at, made.node, made.spot)
    if isinstance(made.node, ast.Call) and called_name(made.node) == "add_argument":
        return _of_option(at, made.node, made)
    return None


def _of_option(at: FailingLine, call: ast.Call, made: Made) -> tuple[str, str] | None:
    flags = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    if not flags or not all(item.startswith("-") for item in flags) or keyword_value(call, "action", "nargs", "type"):
        return None
    words = _words(at, made.spot.tree)
    if words is None:
        return None
    given = None
    for place, word in enumerate(words):
        flag, is_set, value = word.partition("=")
        if flag in flags:  # of several, the last one counts
            given = (value if is_set else words[place + 1] if place + 1 < len(words) else "", flag)
        elif len(flag) > 2 and any(item.startswith(flag) for item in flags):  # argparse takes the begin of one, too
            return None
    if given is not None:
        return given if given[0] else None
    default = keyword_value(call, "default")
    text = default.value if isinstance(default, ast.Constant) else None
    return (text, f"the default at {at.place(made.spot, made.line)}") if isinstance(text, str) else None


def _words(at: FailingLine, tree: ast.Module) -> list[str] | None:
    """What the only parse_args() reads: the command line, or a list that is written out; None where more may set it."""
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)]
    parsed = [item for item in calls if called_name(item) in _PARSES]
    if len(parsed) != 1 or any(called_name(item) in _CHANGES_OPTIONS for item in calls):
        return None
    given = passed_values(parsed[0])
    if not given:
        return [*at.snapshot.argv]
    whole = isinstance(given[0], ast.List) and all(isinstance(item, ast.Constant) for item in given[0].elts)
    listed = given[0].elts if isinstance(given[0], ast.List) and whole else None
    return [str(item.value) for item in listed if isinstance(item, ast.Constant)] if listed is not None else None
