"""A sample that lacks a key of the first one of its batch, and the condition on which the dataset sets it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer.analyze.evidence.failing.data.datasets import Getter, sample_name
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans_body

_HALVES = 2


class LackingKey(msgspec.Struct, frozen=True):
    """`words`: which sample lacks which key, and why, where the source shows it."""

    words: str
    change: str


def lacking_key(at: FailingLine, kinds: Sequence[tuple[str, str]], found: Getter | None) -> LackingKey | None:
    """Of the KeyError of torch's default_collate.

    Args:
        at: The failing line.
        kinds: The first sample, and the one that does not fit, as recorded.
        found: The method that made them.
    """
    if at.kind != "KeyError" or len(kinds) != _HALVES or not all(value.startswith("dict of") for _, value in kinds):
        return None
    key, place = at.message.strip(), kinds[1][0].removeprefix("batch[").rstrip("]")
    one, other = sample_name(at, int(place)), sample_name(at, 0).partition(" of ")[0]
    sets = _setting(found, key) if found is not None and not _takes_away(found) else []
    where = list(dict.fromkeys(at.place(found.spot, item.lineno) for item in sets)) if found is not None else []
    tests = _tests(found, sets[0]) if found is not None and len(sets) == 1 else []
    why = (
        f": {where[0]} sets it only under `{tests[0]}`"
        if tests
        else f" ({where[0]} sets it)"
        if len(where) == 1
        else ""
    )
    return LackingKey(
        f"{one} has no {key}, which {other} has{why}",
        f"The default collate_fn joins samples with the same keys: set {key} in each sample (with a tensor of the same "
        "shape, such as zeros, and a flag), leave out samples without it, or write a collate_fn.",
    )


def _setting(found: Getter, key: str) -> list[ast.stmt]:
    """Lines of the method that set a key of a dict."""
    return [
        item
        for item in own_nodes(found.method)
        if isinstance(item, ast.Assign)
        and isinstance(item.targets[0], ast.Subscript)
        and isinstance(item.targets[0].slice, ast.Constant)
        and repr(item.targets[0].slice.value) == key
    ] + [
        item
        for item in own_nodes(found.method)
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) and called_name(item.value) == "update"
        if any(repr(part.arg) == key for part in item.value.keywords)
    ]


def _takes_away(found: Getter) -> bool:
    """Whether it also takes keys out of a dict: a sample may lack one that was set."""
    return any(
        isinstance(item, ast.Delete) or (isinstance(item, ast.Call) and called_name(item) == "pop" and item.args)
        for item in own_nodes(found.method)
    )


def _tests(found: Getter, line: ast.stmt) -> list[str]:
    """Of the `if` around it, where it is in the branch of a condition that holds."""
    around = (item for item, inside in deciding_ifs(found.spot.tree, line.lineno) if inside)
    return [
        source(item.test) if spans_body(item.body, line.lineno) else f"not ({source(item.test)})" for item in around
    ]
