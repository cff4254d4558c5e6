"""Numbers that are too many for one embedding, and fit another one of the same call: the two may be exchanged."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters

_VALUES = Pattern(r", (-?\d+)\.\.(-?\d+)$")


def other_table(at: FailingLine, layer: str, high: int) -> str | None:
    """Where `self.users(user)` and `self.items(item)` fit each other's numbers, and both numbers are parameters."""
    lookups = _lookups(at)
    mine, rows = lookups.get(layer), _rows(at, layer)
    own = _highest(at, mine)
    if mine is None or rows is None or own != high:
        return None
    for table, given in lookups.items():
        there, other = _rows(at, table), _highest(at, given)
        if table == layer or there is None or other is None or given == mine:
            continue
        if other < rows <= high < there:
            return (
                f"it may be exchanged with `{given}`, as `{table}` has {there} rows and `{given}` reaches {other}. "
                f"Compare their order in the call of {_name(at)}() with its parameters, and with the data's; if it is "
                f"right, `{layer}` needs a row for each number of all data."
            )
    return None


def _lookups(at: FailingLine) -> dict[str, str]:
    """`self.users`: `user`, of what the function looks up by its own parameters."""
    given = parameters(at.scope)
    calls = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and len(item.args) == 1]
    found = {source(item.func): variable(item.args[0]) for item in calls if isinstance(item.func, ast.Attribute)}
    return {table: name for table, name in found.items() if name is not None and name in given}


def _rows(at: FailingLine, table: str) -> int | None:
    shape = at.shape(f"{table}.weight")
    return shape.sizes[0] if shape is not None and len(shape.sizes) > 1 else None


def _highest(at: FailingLine, name: str | None) -> int | None:
    found = _VALUES.search(at.values.get(name or "", ""))
    return int(found[2]) if found is not None else None


def _name(at: FailingLine) -> str:
    return getattr(at.scope, "name", "that function")
