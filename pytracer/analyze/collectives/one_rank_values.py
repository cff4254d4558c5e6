"""A value that only one rank has as it is meant to be, and by which each rank decides whether to call a collective.

reduce() and gather() leave their result on one rank; what stands below `if rank == 0:` is computed there alone. The
value is followed back from the condition, through the functions of the program, up to what made it so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.one_rank_calls import Shared, hands_on, items_of, root_of, shared_by, shared_by_name
from pytracer.analyze.collectives.one_rank_lines import (
    is_nothing,
    is_unchanged,
    on_two_sides,
    one_rank_branch,
    statement_at,
)
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank, is_rank, one_rank_words
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.round_counters import round_counter
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters
from pytracer.analyze.evidence.syntax.sharing import is_of_tensor
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_MOST = 60
_OPTIONS = Pattern(
    r"^(?:self\.)?_?(?:args|cfg|conf|config|opts?|options|settings|hparams|flags|params)\b", re.IGNORECASE
)
_INSTEAD = {"reduce": "all_reduce", "gather": "all_gather", "gather_object": "all_gather_object"}
_PLAIN = frozenset({"float", "int", "bool", "abs", "round", "min", "max", "sum", "len", "sorted", "list", "tuple"})
_OF_VALUES = frozenset(
    {"item", "mean", "sum", "min", "max", "cpu", "cuda", "to", "detach", "clone", "float", "double", "numpy", "tolist"}
    | {"isnan", "isfinite", "isinf", "any", "all", "abs", "sqrt", "exp", "round", "get", "squeeze", "view", "reshape"}
)
_OF_NUMBERS = ("torch", "np", "numpy", "math", "statistics")
_Kind = Literal["reduced", "computed"]
_Key = int | str | None


class OneRankValue(msgspec.Struct, frozen=True):
    """`name`: what the condition asks; `rank`: who has it, `rank 0`; `place`: the line that leaves it there."""

    name: str
    place: str
    text: str
    rank: str
    kind: _Kind
    instead: str | None = None

    @property
    def subject(self) -> str:
        """For a headline, behind the name: `` differs between ranks, as line 64 leaves the result on rank 0 only ``."""
        return self.differs()

    def differs(self, values: str = "") -> str:
        """As `subject`, with what it was on the ranks."""
        if self.kind == "computed":
            return f"differs between ranks{values}, as {self.place} (`{self.text}`) sets it on {self.rank} only"
        return f"differs between ranks{values}, as {self.place} (`{self.text}`) leaves the result on {self.rank} only"

    @property
    def advice(self) -> str:
        """What to change."""
        if self.kind == "computed":
            return (
                f"{self.place} (`{self.text}`) sets `{self.name}` on {self.rank} only: broadcast it before that "
                "condition (broadcast_object_list(), or broadcast() of a tensor), so that all ranks take the same way."
            )
        return (
            f"{self.place} (`{self.text}`) leaves the result on {self.rank} only, and each rank decides by its own "
            f"`{self.name}`: call {self.instead}() there, or broadcast what {self.rank} decides, so that all "
            "ranks take the same way."
        )


class _Found(msgspec.Struct, frozen=True):
    node: ast.AST
    spot: Spot
    rank: str
    kind: _Kind
    call: str | None = None


def one_rank_value(
    snapshot: Snapshot, frames: Sequence[PythonFrame], depth: int, line: int, test: ast.expr
) -> OneRankValue | None:
    """The first value of a condition that one rank alone has; None where none is, or what makes it is not known.

    Args:
        snapshot: Of a rank.
        frames: Those of the program, the innermost first.
        depth: The frame of the condition among them.
        line: Of the condition.
        test: The condition.
    """
    slice_ = Slice(snapshot, frames)
    spot = slice_.spot(depth)
    if spot is None or any(is_for_one_rank(item) is not None for item in nodes_of(test) if isinstance(item, ast.expr)):
        return None
    around = (item for item, is_around in deciding_ifs(spot.tree, line) if is_around)
    if any(is_for_one_rank(item.test) is not None for item in around):
        return None  # the others never ask
    for name, asked in _asked(test).items():
        found = _Walk(slice_).of_value(asked, structs.replace(spot, line=line))
        if not isinstance(found, _Found):
            continue
        if _others_differ(slice_, test, name, structs.replace(spot, line=line)):
            return None
        at = getattr(found.node, "lineno", found.spot.line)
        place = line_in(found.spot.file, at, spot.file)
        instead = _INSTEAD.get(found.call or "")
        return OneRankValue(name, place, source(found.node), found.rank, found.kind, instead)
    return None


def _asked(test: ast.expr) -> dict[str, ast.expr]:
    """`loss`, `metrics['loss']`: what a condition asks for, by the text of it."""
    items = [
        item for item in nodes_of(test) if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant)
    ]
    items = [item for item in items if variable(item.value) is not None]
    inside = {id(part) for item in items for part in nodes_of(item)}
    names = [
        item for item in nodes_of(test) if isinstance(item, ast.expr) and variable(item) and id(item) not in inside
    ]
    return {ast.unparse(item): item for item in (*items, *names)}


def _others_differ(slice_: Slice, test: ast.expr, name: str, spot: Spot) -> bool:
    """Whether another term of `a and b` asks for what need not be alike on all ranks, and may have decided instead."""
    terms = [*_terms(test)]
    beside = {text for term in terms if name in (asked := _asked(term)) for text in asked}
    others = {text: item for term in terms for text, item in _asked(term).items() if text not in beside}
    return any(
        _Walk(slice_).of_value(item, spot) is None and not _is_alike(slice_, item, spot) for item in others.values()
    )


def _terms(test: ast.expr) -> Iterator[ast.expr]:
    inner = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if not isinstance(inner, ast.BoolOp):
        yield test
        return
    for item in inner.values:
        yield from _terms(item)


def _is_alike(slice_: Slice, node: ast.expr, spot: Spot) -> bool:
    """A number that is written out, an option, or the number of a loop's round."""
    counters = {held.id for loop in loops_around(spot.tree, spot.line) if (held := round_counter(loop)) is not None}
    made = slice_.made(node, spot, calls=True).node
    parts = [item for item in nodes_of(made) if isinstance(item, (ast.Name, ast.Call))]
    return all(
        isinstance(item, ast.Name)
        and (item.id in counters or item.id.isupper() or _OPTIONS.search(ast.unparse(made)) is not None)
        for item in parts
    ) and not any(is_rank(item) for item in nodes_of(made))


def is_shared(slice_: Slice, name: str, spot: Spot) -> bool:
    """Whether what a variable is at a place came from a collective of all ranks, as far as that is known."""
    return _Walk(slice_).of_name(name, spot) == "shared"


def is_shared_value(slice_: Slice, node: ast.AST, spot: Spot) -> bool:
    """As is_shared(), of an expression."""
    return _Walk(slice_).of_value(node, spot) == "shared"


class _Walk:
    """One search. Where one way gives all ranks the same, nothing is said of the others; nor of what is not known."""

    def __init__(self, slice_: Slice) -> None:
        self._slice = slice_
        self._seen: set[tuple[int, str, int, _Key]] = set()

    def of_name(self, name: str, spot: Spot, key: _Key = None) -> _Found | Shared | None:
        """By the last line above that binds or communicates it. `key`: of its item that is asked for."""
        seen = (id(spot.scope), name, spot.line, key)
        if seen in self._seen or len(self._seen) > _MOST:
            return None
        self._seen.add(seen)
        bound = [item for item in bindings_of(spot.scope, name) if item[0] < spot.line]
        ways = reaching(spot.scope, name, spot.line) if not isinstance(spot.scope, ast.Lambda) else None
        if ways is not None:
            bound = [item for item in bound if item[0] in ways]
        shared = self._last_collective(name, spot, min((item[0] for item in bound), default=0))
        if shared is not None:
            return shared
        for line, value, index in reversed(bound):
            branch = one_rank_branch(spot, line)
            if branch is not None:
                if not is_nothing(value) and any(
                    on_two_sides(spot, line, at) and not is_nothing(it) for at, it, _ in bound
                ):
                    return None  # both have a value of their own: which one is meant is not known
                node = statement_at(spot, line) or value
                return _Found(node, structs.replace(spot, line=line), branch, "computed") if node else None
            part = index if index is not None else key
            found = self.of_value(value, structs.replace(spot, line=line), part) if value is not None else None
            if found is not None:
                return found
        if not bound and name in parameters(spot.scope):
            given = self._slice.argument(name, spot)
            return self.of_value(given[0], given[1]) if given is not None else None
        return None

    def of_value(self, node: ast.AST, spot: Spot, key: _Key = None) -> _Found | Shared | None:
        """Of an expression, or of an item of it: by its variables, and by what functions of the program return."""
        item = _item(node, key)
        if item is not None:
            return self.of_value(item, spot)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and key is None:
            name = variable(node.value)
            constant = node.slice.value
            if name is not None and isinstance(constant, (int, str)):
                return self.of_name(name, spot, constant)
        if isinstance(node, ast.IfExp) and is_for_one_rank(node.test) is not None:
            alone = any(is_nothing(item) or is_unchanged(item, spot) for item in (node.body, node.orelse))
            return _Found(node, spot, one_rank_words(node.test), "computed") if alone else None
        if isinstance(node, ast.Call):
            return self._of_call(node, spot, key)
        name = variable(node)
        if name is not None:
            return self.of_name(name, spot, key)
        return self._of_parts([item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)], spot)

    def _of_parts(self, nodes: Sequence[ast.expr], spot: Spot) -> _Found | Shared | None:
        """The first that one rank alone has; else whether one is shared."""
        found = [self.of_value(item, spot) for item in nodes]
        return next((item for item in found if isinstance(item, _Found)), next((item for item in found if item), None))

    def _of_call(self, call: ast.Call, spot: Spot, key: _Key = None) -> _Found | Shared | None:
        own = self._slice.function(call, spot)
        if own is None:
            return self._of_library(call, spot)
        function, at = own
        ways: list[_Found | Shared | None] = []
        returns = [item for item in own_nodes(function) if isinstance(item, ast.Return) and item.value is not None]
        spots = [
            structs.replace(at, scope=function, line=item.lineno, depth=None, call=(call, spot)) for item in returns
        ]
        branches = [one_rank_branch(inside, item.lineno) for item, inside in zip(returns, spots, strict=True)]
        for item, inside, branch in zip(returns, spots, branches, strict=True):
            if branch is None:
                ways.append(self.of_value(item.value, inside, key) if item.value is not None else None)
            elif all(
                other == branch or is_nothing(item.value) or is_nothing(beside.value)
                for beside, other in zip(returns, branches, strict=True)
            ):
                ways.append(_Found(item, inside, branch, "computed"))
            else:
                return None  # the others return a value of their own: it may have come from that rank
        if "shared" in ways:
            return "shared"
        return next((item for item in ways if item is not None), None)

    def _of_library(self, call: ast.Call, spot: Spot) -> _Found | Shared | None:
        """What only computes passes on what it is given; of other functions nothing is known."""
        name = called_name(call) or ""
        if not isinstance(call.func, ast.Attribute):
            return self._of_parts(call.args, spot) if name in _PLAIN else shared_by_name(name)
        if ast.unparse(call.func).partition(".")[0] in _OF_NUMBERS:
            return self._of_parts(call.args, spot)
        of_tensor = name in _OF_VALUES or is_of_tensor(call)
        return self._of_parts([call.func.value], spot) if of_tensor else shared_by_name(name)

    def _last_collective(self, name: str, spot: Spot, since: int) -> _Found | Shared | None:
        """What the last call that shares a variable between its binding and a line left, and where."""
        calls = [
            item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and since <= item.lineno < spot.line
        ]
        for call in sorted(calls, key=lambda item: (-item.lineno, -item.col_offset)):
            names = [name, *items_of(spot.scope, name, call)]
            found = (shared_by(call, item, spot.tree) or self._shared_inside(call, item, spot) for item in names)
            result = next((item for item in found if item is not None), None)
            if one_rank_branch(spot, call.lineno) is not None:  # each has a line of its own for it
                if result in ("all", "shared") or hands_on(call, name):
                    return "shared"
                continue
            if result == "one":
                return _Found(
                    call, structs.replace(spot, line=call.lineno), root_of(call), "reduced", called_name(call)
                )
            if result is not None:
                return result if isinstance(result, _Found) else "shared"
        return None

    def _shared_inside(self, call: ast.Call, name: str, spot: Spot) -> _Found | Shared | None:
        """Of a function of the program that is given the variable: what it does with its parameter."""
        given = passed_values(call)
        if not any(variable(item) == name for item in given):
            return None
        own = self._slice.function(call, spot)
        if own is None:
            return shared_by_name(called_name(call) or "")
        function, at = own
        for parameter in parameters(function):
            passed = argument_of(call, function, parameter)
            if passed is not None and variable(passed) == name:
                inside = structs.replace(
                    at, scope=function, line=(function.end_lineno or 0) + 1, depth=None, call=(call, spot)
                )
                return self._last_collective(parameter, inside, 0)
        return None


def _item(node: ast.AST, key: _Key) -> ast.AST | None:
    """Of a tuple, list or dict that is written out: one of what it has."""
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(key, int) and key < len(node.elts):
        return None if any(isinstance(item, ast.Starred) for item in node.elts) else node.elts[key]
    if isinstance(node, ast.Dict):
        items = zip(node.keys, node.values, strict=True)
        found = [value for name, value in items if isinstance(name, ast.Constant) and name.value == key]
        return found[0] if len(found) == 1 and key is not None else None
    return None
