"""Sets that an optimizer's parameters are listed from: a set has no order that another run, or model, would repeat.

torch refuses a set in a group, and takes `list(decayed)`, `[table[name] for name in decay]` and what a loop over one
fills. A set that is only asked for a parameter (`if p not in plain`) orders nothing, nor does one in `sorted(decay)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_DEEPEST = 8
_SETS = frozenset({"set", "frozenset"})
_COMBINE = frozenset({"union", "difference", "intersection", "symmetric_difference"})
_SET_OPERATORS = (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)
_KEEP_ORDER = frozenset({"list", "tuple", "iter", "reversed", "enumerate", "filter", "map", "chain"})
_LISTS = frozenset({"list", "tuple"})
_FILLS = frozenset({"append", "extend", "insert"})
_GROUP = "params"


class ParameterSet(msgspec.Struct, frozen=True):
    """`made`: the expression that makes the set; `read`: the one that lists what is in it, or the loop over it."""

    made: Made
    read: Made


def parameter_sets(back: Slice, call: ast.Call, spot: Spot) -> list[ParameterSet]:
    """By their lines, each once.

    Args:
        back: Of the process.
        call: That makes the optimizer.
        spot: Where it is.
    """
    given = [*call.args[:1], *(item.value for item in call.keywords if item.arg == _GROUP)]
    found = {
        (item.made.spot.file, item.made.line, ast.unparse(item.made.node)): item
        for node in given
        for item in _Walk(back).through(node, spot, None, _DEEPEST)
    }
    return [found[key] for key in sorted(found, key=lambda key: (key[0] or "", key[1]))]


class _Walk:
    """Back from a list of parameters, or of groups of them, by what gives it its order."""

    def __init__(self, back: Slice) -> None:
        self._back = back
        self._seen: set[tuple[int, int]] = set()  # lines that fill a list, in the call of their function
        self._known: dict[tuple[int, int, str, int, int], bool] = {}

    def through(self, node: ast.AST, spot: Spot, read: Made | None, depth: int) -> Iterator[ParameterSet]:
        """`read`: the comprehension, `map()` or loop that goes through it, if there is one."""
        made = self._back.made(node, spot, calls=True)
        if depth == 0 or any(_is_sorted(item, at) for item, at in (*made.through, (made.node, made.spot))):
            return
        if self._is_set(made.node, made.spot, depth):
            lists = (Made(*item) for item in made.through[::-1] if _is_list_of(item[0]))
            yield ParameterSet(self._maker(made), read or next(lists, Made(node, spot)))
            return
        inner, at = made.node, made.spot
        if is_empty_container(inner) and made.through:
            yield from self._filled(made, depth - 1)
        for part in _ordering(inner):
            own = Made(inner, at) if _goes_through(inner) else None
            yield from self.through(part, at, read or own, depth - 1)

    def _filled(self, made: Made, depth: int) -> Iterator[ParameterSet]:
        """What the lines that fill an empty list put there, and the loops around them go through."""
        name = variable(made.through[-1][0])
        scope, called = made.spot.scope, id(made.spot.call[0]) if made.spot.call is not None else 0
        loops = [item for item in own_nodes(scope) if isinstance(item, (ast.For, ast.AsyncFor))]
        for item in own_nodes(scope):
            value = _filling(item, name) if name is not None else None
            if value is None or not isinstance(item, (ast.Expr, ast.AugAssign)):
                continue
            if (id(item), called) in self._seen:
                continue  # of lists that fill each other
            self._seen.add((id(item), called))
            at = structs.replace(made.spot, line=item.lineno)
            one = isinstance(item, ast.Expr) and called_name(item.value) != "extend"  # type: ignore[arg-type]
            yield from self.through(ast.List([value]) if one else value, at, None, depth)
            for loop in loops:
                if spans(loop, item.lineno):
                    start = structs.replace(at, line=loop.lineno)
                    yield from self.through(loop.iter, start, Made(loop, start), depth)

    def _is_set(self, node: ast.AST, spot: Spot, depth: int) -> bool:
        if isinstance(node, ast.Set):
            whole = all(isinstance(item, ast.Constant) and isinstance(item.value, int) for item in node.elts)
            return not whole and (len(node.elts) > 1 or any(isinstance(item, ast.Starred) for item in node.elts))
        if isinstance(node, ast.SetComp):
            return not _counts(node)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in _SETS:
                return not any(isinstance(item, ast.Call) and called_name(item) == "range" for item in node.args)
            owner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in _COMBINE else None
            return owner is not None and self._comes_from_set(owner, spot, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, _SET_OPERATORS):
            sides = (node.left, node.right)
            return all(map(_is_keys, sides)) or any(self._comes_from_set(item, spot, depth) for item in sides)
        return isinstance(node, ast.Name) and self._is_only_set(node.id, spot, depth)

    def _comes_from_set(self, node: ast.AST, spot: Spot, depth: int) -> bool:
        made = self._back.made(node, spot, calls=True)
        kept = any(_is_list_of(item) for item, _ in made.through)
        return depth > 0 and not kept and self._is_set(made.node, made.spot, depth - 1)

    def _is_only_set(self, name: str, spot: Spot, depth: int) -> bool:
        """Whether each line that binds it makes a set, or changes one: `seen |= other`; asked once at each line."""
        key = (id(spot.scope), id(spot.call[0]) if spot.call is not None else 0, name, spot.line, depth)
        if key not in self._known:
            self._known[key] = self._binds_only_sets(name, spot, depth)
        return self._known[key]

    def _binds_only_sets(self, name: str, spot: Spot, depth: int) -> bool:
        bound = [item for item in bindings_of(spot.scope, name) if item[0] < spot.line]
        values = [(line, value) for line, value, _ in bound if value is not None]
        changes = [line for line, value, _ in bound if value is None]
        own = [item for item in own_nodes(spot.scope) if isinstance(item, ast.AugAssign) and item.lineno in changes]
        return bool(values) and len(own) == len(changes) and depth > 0 and all(
            self._is_set(value, structs.replace(spot, line=line), depth - 1) for line, value in values
        )  # fmt: skip

    def _maker(self, made: Made) -> Made:
        """Of a variable that several lines bind, what the first one gives it."""
        name = variable(made.node)
        found = [item for item in bindings_of(made.spot.scope, name) if item[1] is not None] if name else []
        return Made(found[0][1] or made.node, made.spot, made.through) if found else made


def _is_sorted(node: ast.AST, spot: Spot) -> bool:
    """Whether a line sorts the list that a variable holds: `params.sort(key=...)`."""
    name = variable(node)
    calls = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and called_name(item) == "sort")
    owners = (item.func.value for item in calls if isinstance(item.func, ast.Attribute))
    return name is not None and any(variable(item) == name for item in owners)


def _is_list_of(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LISTS


def _goes_through(node: ast.AST) -> bool:
    """Whether it makes something else of each item, or leaves some out."""
    if isinstance(node, ast.Call):
        return called_name(node) in ("map", "filter", "enumerate")
    return isinstance(node, (ast.ListComp, ast.GeneratorExp))


def _ordering(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that its order, or that of the groups in it, comes from."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield from (item.iter for item in node.generators)
        yield from _of_group(node.elt)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            yield from [item.value] if isinstance(item, ast.Starred) else _of_group(item)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Call) and called_name(node) in _KEEP_ORDER:
        yield from node.args[1:] if called_name(node) in ("filter", "map") else node.args


def _of_group(node: ast.AST) -> Iterator[ast.AST]:
    """`x` of `{"params": x, "lr": 1}` and of `dict(params=x)`."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == _GROUP:
                yield value
    elif isinstance(node, ast.Call) and called_name(node) == "dict":
        yield from (item.value for item in node.keywords if item.arg == _GROUP)


def _filling(node: ast.AST, name: str) -> ast.expr | None:
    """`x` of `rows.append(x)`, `rows.extend(x)` and `rows += x`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.value if variable(node.target) == name else None
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
        return None
    return call.args[-1] if call.func.attr in _FILLS and variable(call.func.value) == name else None


def _is_keys(node: ast.expr) -> bool:
    """`table.keys()`: a set by any of these operators."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def _counts(node: ast.SetComp) -> bool:
    """Whether it holds numbers that count something, whose order never differs: `{n for n, p in enumerate(x)}`."""
    for part in node.generators:
        called = called_name(part.iter) if isinstance(part.iter, ast.Call) else None
        first = part.target.elts[0] if isinstance(part.target, ast.Tuple) and part.target.elts else part.target
        if called in ("range", "enumerate") and ast.unparse(first) == ast.unparse(node.elt):
            return True
    return not any(isinstance(item, (ast.Name, ast.Attribute)) for item in nodes_of(node.elt))
