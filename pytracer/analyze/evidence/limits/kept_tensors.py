"""Lines that keep tensors which another process sent: each holds a file descriptor for as long as it lives.

From the source alone: what the failing line receives is followed into the functions that it is passed to, and to each
list, dict or attribute that keeps it as it is, or a view of it. What is computed from it, or copied, holds none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.ends.growing_containers import only_grows, stored
from pytracer.analyze.evidence.ends.keeping_lines import held_by
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import indexed, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, spans
from pytracer.analyze.naming import line_in

_VIEWS = ("asarray", "as_tensor", "from_numpy", "list", "tuple", "zip")
_DEVICES = ("to", "cuda", "cpu")
_SHARES = ("share_memory", "share_memory_")
_LOOPS = (ast.For, ast.AsyncFor)
_DEEPEST, _MOST, _QUOTED = 3, 3, 50


class KeptTensor(msgspec.Struct, frozen=True):
    """`place`: the line that keeps `value`; `copied`: the same as a copy, None where it may have several tensors.

    `container`: what it is kept in, where that has a name.
    """

    place: str
    value: str
    copied: str | None
    container: str | None = None


class _Region(msgspec.Struct, frozen=True):
    """Statements that run for each that is received, and the names by which they have it."""

    spot: Spot
    body: Sequence[ast.stmt]
    names: frozenset[str]
    new: frozenset[str] = frozenset()  # parameters that are made for each


def kept_words(kept: Sequence[KeptTensor], size: str = "") -> str:
    """For the headline, after what is in use. `size`: of what they are kept in, with the space before."""
    if not kept:
        return ""
    values = list_words(list(dict.fromkeys(f"`{item.value}`" for item in kept)))
    places = list(dict.fromkeys(item.place for item in kept))
    named = list(dict.fromkeys(f"`{item.container}`" for item in kept if item.container is not None))
    into = f" in {list_words(named)}{size}" if named and len(places) == len(named) else ""
    return f"; {_lines(places)} {'keep' if len(places) > 1 else 'keeps'} {values}{into} in each round"


def _lines(places: Sequence[str]) -> str:
    """`lines 40 and 41`."""
    if len(places) > 1 and all(item.startswith("line ") for item in places):
        return f"lines {list_words([item.removeprefix('line ') for item in places])}"
    return list_words(list(places))


def copy_words(kept: Sequence[KeptTensor]) -> str:
    """What to write at these lines, where descriptors are short."""
    return (
        f"{copies_words(kept)}. A tensor that another process sent holds a descriptor for as long as it, a view or a "
        "NumPy array of it lives. Or call torch.multiprocessing.set_sharing_strategy('file_system') at the start of "
        "all processes."
    )


def copies_words(kept: Sequence[KeptTensor]) -> str:
    """``Keep a copy: `batch[0].clone()` at line 2``."""
    said = [
        f"`{item.copied}`" if item.copied is not None else f"`clone()` of each tensor in `{item.value}`"
        for item in kept
    ]
    copies = list_words([f"{text} at {item.place}" for text, item in zip(said, kept, strict=True)])
    which = "Keep copies of all that are tensors" if len(kept) > 1 else "Keep a copy"
    return f"{which}: {copies}"


def kept_tensors(slice_: Slice) -> list[KeptTensor]:
    """Of what the innermost line of the program receives; nothing where it keeps none, or not for long."""
    spot = slice_.spot(0)
    if spot is None:
        return []
    first = _received(spot)
    if first is None:
        return [*_at_once(spot)][:_MOST]
    found: dict[tuple[str | None, int, str], KeptTensor] = {}
    waiting = [(first, 0)]
    while waiting:
        region, depth = waiting.pop(0)
        region = _with_aliases(region)
        for node, container, value in _stores(region):
            place = line_in(region.spot.file, node.lineno, spot.file)
            for part in _kept_parts(value, region.names):
                text = shortened(ast.unparse(part), _QUOTED)
                kept = KeptTensor(place, text, _copied(part), ast.unparse(container))
                found.setdefault((region.spot.file, node.lineno, text), kept)
        if depth < _DEEPEST:
            waiting += [(inner, depth + 1) for inner in _called(slice_, region)]
    return list(found.values()) if len(found) <= _MOST else []


def _received(spot: Spot) -> _Region | None:
    """What a loop takes, or a line of a loop binds."""
    for item in own_nodes(spot.scope):
        if isinstance(item, _LOOPS) and item.lineno <= spot.line < item.body[0].lineno:
            target = item.target
            counted = isinstance(item.iter, ast.Call) and called_name(item.iter) == "enumerate"
            if counted and isinstance(target, ast.Tuple) and len(target.elts) > 1:
                target = target.elts[1]
            return _Region(spot, item.body, _names(target))
        if isinstance(item, ast.Assign) and spans(item, spot.line) and isinstance(item.value, (ast.Call, ast.Await)):
            if any(isinstance(part, ast.Attribute) and part.attr in _SHARES for part in nodes_of(item.value)):
                return None  # the program's own, which other processes are to see
            loops = loops_around(spot.tree, spot.line)
            names = frozenset(name for target in item.targets for name in _names(target))
            return _Region(spot, loops[-1].body, names) if loops else None
    return None


def _at_once(spot: Spot) -> Iterator[KeptTensor]:
    """`[batch["id"] for batch in loader]` at the line."""
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.ListComp, ast.SetComp)) and spans(item, spot.line):
            names = _names(item.generators[0].target)
            for part in _kept_parts(item.elt, names):
                yield KeptTensor(f"line {item.lineno}", shortened(ast.unparse(part), _QUOTED), _copied(part))


def _names(target: ast.AST) -> frozenset[str]:
    return frozenset(item.id for item in nodes_of(target) if isinstance(item, ast.Name))


def _nodes(region: _Region) -> Iterator[ast.AST]:
    for statement in region.body:
        yield statement
        yield from own_nodes(statement)


def _with_aliases(region: _Region) -> _Region:
    """Also the names of parts and views: `x, y = batch`, `ids = batch["id"].numpy()`, `for clip in clips:`."""
    names = set(region.names)
    for item in [*_nodes(region)] * 2:
        if isinstance(item, ast.Assign) and _is_held(item.value, frozenset(names)):
            for target in item.targets:
                if isinstance(target, (ast.Name, ast.Tuple, ast.List)):
                    names |= _names(target)
        elif isinstance(item, _LOOPS):
            names |= _item_names(item, frozenset(names))
    return structs.replace(region, names=frozenset(names))


def _item_names(loop: ast.For | ast.AsyncFor, names: frozenset[str]) -> frozenset[str]:
    """The names that a loop over what is held gives its items; behind zip() and enumerate() those alone."""
    pairs, found = [(loop.target, loop.iter)], set[str]()
    while pairs:
        target, value = pairs.pop()
        called = called_name(value) if isinstance(value, ast.Call) else None
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        given = value.args if isinstance(value, ast.Call) else []
        plain = not any(isinstance(item, ast.Starred) for item in (*parts, *given))
        if plain and called == "zip" and len(parts) == len(given):
            pairs += zip(parts, given, strict=True)
        elif plain and called == "enumerate" and len(parts) == 2:
            pairs += [(parts[1], given[0])] if given else []
        elif _is_held(value, names):
            found |= _names(target)
    return frozenset(found)


def _is_held(value: ast.expr, names: frozenset[str]) -> bool:
    return any(True for _ in _kept_parts(value, names))


def _kept_parts(value: ast.expr, names: frozenset[str]) -> Iterator[ast.expr]:
    """The parts of a value that are what was received, or views of it."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
        for item in value.values if isinstance(value, ast.Dict) else value.elts:
            yield from _kept_parts(item, names)
    elif isinstance(value, ast.Call) and (called_name(value) in _VIEWS or _makes_object(value)):
        for item in passed_values(value):
            if called_name(value) in _VIEWS and _is_held(item, names):
                yield value
                return
            yield from _kept_parts(item, names)
    elif not _is_moved(value) and any(name in names for name, _ in held_by(value)):
        yield value


def _makes_object(call: ast.Call) -> bool:
    """`Entry(id=...)`, by its name."""
    name = called_name(call) or ""
    return isinstance(call.func, ast.Name) and name[:1].isupper()


def _is_moved(value: ast.expr) -> bool:
    """To another device, where that is a copy."""
    calls = (item for item in nodes_of(value) if isinstance(item, ast.Call))
    return any(called_name(item) in _DEVICES for item in calls)


def _copied(value: ast.expr) -> str | None:
    """None of what may have several tensors."""
    text = ast.unparse(value)
    if isinstance(value, ast.Call) and called_name(value) == "asarray":
        return f"np.array({', '.join(ast.unparse(item) for item in value.args)})"
    if isinstance(value, ast.Call) and called_name(value) == "numpy":
        return f"{text}.copy()"
    if isinstance(value, ast.Call) and called_name(value) in _VIEWS:
        return None
    return f"{text}.clone()" if isinstance(value, (ast.Subscript, ast.Attribute, ast.Call)) else None


def _stores(region: _Region) -> Iterator[tuple[ast.stmt, ast.expr, ast.expr]]:
    """Statements that put it into what only grows, with that and with what they put there."""
    for node in _nodes(region):
        pair = stored(node) if isinstance(node, ast.stmt) else None
        if pair is None or not isinstance(node, ast.stmt):
            continue
        container, value = pair
        if isinstance(node, ast.AugAssign) and not isinstance(value, (ast.List, ast.Tuple)):
            continue
        if variable(indexed(container)) in region.new or not _is_held(value, region.names):
            continue
        if only_grows(region.spot.tree, region.spot.scope, container, node):
            yield node, container, value


def _called(slice_: Slice, region: _Region) -> Iterator[_Region]:
    """The program's functions that it is passed to, of objects that live on."""
    bound = _bound(region)
    for call in _nodes(region):
        if not isinstance(call, ast.Call) or not any(_is_held(item, region.names) for item in _given(call)):
            continue
        found = slice_.function(call, structs.replace(region.spot, line=call.lineno))
        owner = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if found is None or owner in bound:
            continue
        function, at = found
        passed = {name: argument_of(call, function, name) for name in parameters(function)}
        names = frozenset(name for name, value in passed.items() if value is not None and _is_held(value, region.names))
        new = frozenset(name for name, value in passed.items() if value is not None and _is_new(value, bound))
        spot = structs.replace(at, scope=function, line=function.lineno, depth=None, call=(call, region.spot))
        if names:
            yield _Region(spot, function.body, names, new)


def _bound(region: _Region) -> frozenset[str]:
    """What is made in each round."""
    assigned = [item for item in _nodes(region) if isinstance(item, ast.Assign)]
    return frozenset(name for item in assigned for target in item.targets for name in _names(target))


def _is_new(value: ast.expr, bound: frozenset[str]) -> bool:
    """Whether a container that is passed is of this round alone."""
    name = variable(value)
    return name is None or name in bound


def _given(call: ast.Call) -> list[ast.expr]:
    return passed_values(call)
