"""The number of a sample that a loader gave, looked up as a key: of a dict that no longer has all numbers."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.data.counted_lengths import is_asked_by_loader
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.emptied import counted_by_len
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import class_around

_DICT = Pattern(r"(?:dict|OrderedDict|defaultdict) of ([1-9]\d*)$")
_NUMBER = Pattern(r"\d+$")


def numbered_key(at: FailingLine) -> str | None:
    """Where `__len__` counts that dict: a loader asks for 0 to its length less 1, whatever its keys are."""
    node, key = at.only(ast.Subscript), at.message.strip()
    if at.kind != "KeyError" or not at.own or node is None or not _NUMBER.match(key):
        return None
    table, owner = variable(node.value), class_around(at.tree, at.scope)
    count = _count(at, table)
    if table is None or owner is None or count is None or int(key) >= count:
        return None
    if not is_asked_by_loader(at, node.slice) or counted_by_len(owner) != table:
        return None
    index = source(node.slice)
    return (
        f"`{table}`{at.came(table)} is a dict of {count} items, `__len__()` counts it, and so the loader asks for the "
        f"numbers 0 to {count - 1}: {key} is not among its keys, which have gaps (a filter) or are other ids. Keep a "
        f"list of what is left, or of the keys (`{table}[self.ids[{index}]]` with `self.ids = list({table})`)."
    )


def _count(at: FailingLine, table: str | None) -> int | None:
    found = _DICT.match(at.value(table) or "") if table is not None else None
    if found is not None:
        return int(found[1])
    known = next((item for item in at.near if item.of == table), None)
    return known.count if known is not None else None
