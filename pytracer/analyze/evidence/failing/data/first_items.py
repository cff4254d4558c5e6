"""next() of what has no item at all: a loader without a batch, a search that nothing passes."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.empty_data import empty_data
from pytracer.analyze.evidence.failing.usage.missed_lines import DROPS_ALL
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_KEEPS = Pattern(r"\w*(?:list|tuple|dict|Dict|set|str|range) of |\[|empty\b|'")
_OF_DICT = ("items", "keys", "values", "split", "splitlines", "readlines", "modules", "named_modules", "parameters",
            "named_parameters", "children", "named_children", "glob", "iterdir", "rglob")  # fmt: skip
_NEW = ("range", "sorted", "list", "tuple", "dict", "set")


def no_first_item(at: FailingLine) -> str | None:
    """`next(iter(loader))`, `next(x for x in rows if x.ready)`: both begin anew, so that there is none."""
    if at.kind != "StopIteration" or at.node is None:
        return None
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call) and called_name(item) == "next"]
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    inner = calls[0].args[0]
    if isinstance(inner, ast.GeneratorExp):
        return _no_match(at, inner) if at.own else None
    inner = _just_made(at, inner) or inner
    of_iter = isinstance(inner, ast.Call) and called_name(inner) == "iter" and len(inner.args) == 1
    if not of_iter or not isinstance(inner, ast.Call):
        return None
    spot, value = at.slice.spot(0), at.value(inner.args[0]) or ""
    why = empty_data(at, inner.args[0], spot) if spot is not None else None
    if why is None and not value.startswith("DataLoader") and not value.endswith(" of 0"):
        return None
    name = source(inner.args[0])
    cause = f": {why}" if why is not None else f" ({value})"
    mends = (
        DROPS_ALL if "drop_last=True drops" in cause else f"Handle that before line {at.line}, or mend what fills it."
    )
    return f"`{name}` gives nothing at all{cause}. {mends}"


def _just_made(at: FailingLine, asked: ast.expr) -> ast.Call | None:
    """`iter(loader)` of the statement right above in the same block, `batches = iter(loader)`: next() is its first."""
    name = variable(asked)
    for item in nodes_of(at.tree) if name is not None else ():
        for block in (getattr(item, part, None) for part in ("body", "orelse", "finalbody")):
            if not isinstance(block, list) or at.statement not in block[1:]:
                continue
            above = block[block.index(at.statement) - 1]
            pairs = [value for target, value in set_by(above) if variable(target) == name]
            if len(pairs) == 1 and isinstance(pairs[0], ast.Call) and called_name(pairs[0]) == "iter":
                return pairs[0]
    return None


def _no_match(at: FailingLine, search: ast.GeneratorExp) -> str | None:
    tests = " and ".join(f"`{source(test)}`" for part in search.generators for test in part.ifs)
    over = source(search.generators[0].iter)
    if len(search.generators) != 1 or not tests:
        return None
    default = "give it a default (`next(..., None)`) and handle that"
    if not _begins_anew(at, search.generators[0].iter):
        return (
            f"No item that `{over}` still had passes {tests}, so that next() has none: {default}. If `{over}` is an "
            "iterator, a file or a generator, it goes on where it was, and gives nothing twice: keep a list of it."
        )
    return (
        f"No item of `{over}` passes {tests}, so that next() has none: {default}, or print what line {at.line} looks "
        f"for and what `{over}` has."
    )


def _begins_anew(at: FailingLine, over: ast.expr) -> bool:
    """Whether each loop over it begins with its first item: of a list, a dict, a tensor; an iterator goes on."""
    if isinstance(over, ast.Call):
        owner = over.func.value if isinstance(over.func, ast.Attribute) else None
        name = called_name(over)
        return name in _OF_DICT if owner is not None else name in _NEW and isinstance(over.func, ast.Name)
    shown = isinstance(over, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp))
    return shown or _KEEPS.match(at.value(over) or "") is not None
