"""Ids that a line has numbered anew and throws away, where the old ones are passed on as indices.

`nodes, _ = torch.unique(ids, return_inverse=True)`, and functions of the program that do the same: whoever then makes
a matrix of `ids` has indices beyond the size that `nodes` has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.elements import way_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import is_true
from pytracer.analyze.evidence.syntax.names import is_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, qualified_name

_LONGEST = 60
_SHORT = 40
_ORDINALS = ("first", "second", "third", "fourth")
_JOINS = frozenset({"stack", "cat", "concatenate", "vstack", "array"})
_MOST_JOINS = 2
_LOOKS_UP = frozenset({"searchsorted", "bucketize"})


class DiscardedIds(msgspec.Struct, frozen=True):
    """`name`: what is passed on. `position`: of the value that is thrown away. `by`: the line that numbers anew."""

    name: str
    file: str | None
    line: int
    text: str
    function: str
    position: int
    by: tuple[int, str] | None
    instead: str

    @property
    def advice(self) -> str:
        """A sentence with a blank behind."""
        by = f" (line {self.by[0]}: `{self.by[1]}`)" if self.by is not None else ""
        return (
            f"See first line {self.line} in {self.function} (`{self.text}`): it throws away the "
            f"{_ORDINALS[self.position]} value, `{self.name}` numbered anew{by}, and `{self.name}` itself is passed "
            f"on. `{self.instead}` passes the new numbers. "
        )


def discarded_ids(back: Slice, indices: Sequence[str], spot: Spot) -> DiscardedIds | None:
    """Of the variables that indices are made of, on their way there; None where nothing of them was thrown away."""
    for text in indices:
        for node in nodes_of(ast.parse(text, mode="eval")):
            for name, at in _ways(back, node, spot):
                found = next(_discarded(back, name, at), None)
                if found is not None:
                    return found
    return None


def _ways(back: Slice, node: ast.AST, spot: Spot, depth: int = 0) -> Iterator[tuple[str, Spot]]:
    """The variables that hand an index on, also those that `torch.stack([rows, columns])` joins."""
    way = [*way_of(back, node, spot)] if isinstance(node, ast.Name) else []
    yield from ((item.id, at) for item, at in way if isinstance(item, ast.Name))
    last, at = way[-1] if way else (None, spot)
    joins = isinstance(last, ast.Call) and called_name(last) in _JOINS and depth < _MOST_JOINS
    for part in nodes_of(last.args[0]) if joins and isinstance(last, ast.Call) and last.args else ():
        yield from _ways(back, part, at, depth + 1)


def _discarded(back: Slice, name: str, spot: Spot) -> Iterator[DiscardedIds]:
    """The lines of its function, between the one that binds it and the one that reads it."""
    if isinstance(spot.scope, (ast.Module, ast.Lambda)):
        return
    first = max((line for line in places_that_bind(spot.scope, name) if line < spot.line), default=0)
    for item in own_nodes(spot.scope):
        if not isinstance(item, ast.Assign) or not first < item.lineno < spot.line or len(item.targets) != 1:
            continue
        target, call = item.targets[0], item.value
        if not isinstance(target, ast.Tuple) or not isinstance(call, ast.Call):
            continue
        for position, part in enumerate(target.elts[: len(_ORDINALS)]):
            if not isinstance(part, ast.Name) or not _is_unread(spot.scope, part):
                continue
            is_new, by = _numbers_anew(back, call, name, position, spot)
            if is_new:
                yield DiscardedIds(
                    name,
                    spot.file,
                    item.lineno,
                    shortened(ast.unparse(item), _LONGEST),
                    qualified_name(spot.tree, spot.scope),
                    position,
                    by,
                    _instead(item, target, position, name),
                )


def _is_unread(scope: ast.AST, target: ast.Name) -> bool:
    return not any(
        isinstance(item, ast.Name) and item.id == target.id and isinstance(item.ctx, ast.Load)
        for item in nodes_of(scope)
    )


def _numbers_anew(
    back: Slice, call: ast.Call, name: str, position: int, spot: Spot
) -> tuple[bool, tuple[int, str] | None]:
    """Whether that value of a call is the variable's ids by another numbering; and the line, of a program's function.

    torch.unique(x, return_inverse=True) has them second, numpy.unique() as well without return_index.
    """
    if called_name(call) == "unique" and position == 1:
        first = call.args[0] if call.args else None
        inverse, index = keyword_value(call, "return_inverse"), keyword_value(call, "return_index")
        return index is None and is_true(inverse) and isinstance(first, ast.Name) and first.id == name, None
    found = back.function(call, spot)
    if found is None:
        return False, None
    function = found[0]
    given = [item for item in parameters(function) if is_name(argument_of(call, function, item), name)]
    returns = [item.value for item in own_nodes(function) if isinstance(item, ast.Return)]
    value = returns[0] if len(returns) == 1 else None
    if len(given) != 1 or not isinstance(value, ast.Tuple) or position >= len(value.elts):
        return False, None
    part, line = value.elts[position], value.lineno
    bound = last_binding(function, part.id, line) if isinstance(part, ast.Name) else (line, part, None)
    if bound is None or not isinstance(bound[1], ast.expr) or not _looks_up(bound[1], given[0]):
        return False, None
    text = f"{part.id} = {ast.unparse(bound[1])}" if isinstance(part, ast.Name) else ast.unparse(part)
    return True, (bound[0], shortened(text, _SHORT))


def _looks_up(value: ast.expr, name: str) -> bool:
    """`table[ids]`, `torch.searchsorted(known, ids)`, `[table[item] for item in ids]`."""
    loops = [part for item in nodes_of(value) if isinstance(item, ast.ListComp) for part in item.generators]
    names = {name} | {
        item.target.id for item in loops if isinstance(item.target, ast.Name) and is_name(item.iter, name)
    }
    return any(
        (isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Name) and item.slice.id in names)
        or (
            isinstance(item, ast.Call)
            and called_name(item) in _LOOKS_UP
            and any(is_name(part, name) for part in item.args)
        )
        for item in nodes_of(value)
    )


def _instead(item: ast.Assign, target: ast.Tuple, position: int, name: str) -> str:
    parts = [name if n == position else ast.unparse(part) for n, part in enumerate(target.elts)]
    return shortened(f"{', '.join(parts)} = {ast.unparse(item.value)}", _LONGEST)
