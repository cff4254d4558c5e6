"""Whether an expression of a program is made of what measures memory: used, or free.

`job.memory_info().rss`, and where a variable has that: `used`, of a sum over a dict that a loop fills. Memory of a GPU
and shared memory are no such measure, and neither is a variable that only has such a name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters

# What measures memory of a process, a group of them, or the machine: psutil, resource, /proc and cgroups.
_MEASURES = Pattern(
    r"memory_(?:full_)?info|memory_percent|(?:virtual|swap)_memory|maxrss|\b(?:rss|pss|uss|vms)\b|vmrss|meminfo|"
    r"\bstatm\b|smaps|memory\.(?:current|usage_in_bytes|peak|stat)",
    re.IGNORECASE,
)
_OF_MACHINE = Pattern(r"(?:virtual|swap)_memory|meminfo", re.IGNORECASE)
_FREE = Pattern(r"\b(?:mem)?(?:available|free)\b", re.IGNORECASE)
_TOTAL = Pattern(r"\b(?:mem)?total\b", re.IGNORECASE)
_OTHERS = Pattern(r"gpu|cuda|nvml|nvidia|vram|shared_?mem|shm", re.IGNORECASE)
_FILLS = frozenset({"append", "add", "extend", "update", "setdefault"})
# Functions whose result is made of their arguments' values.
_KEEPS = frozenset(
    {"sum", "max", "min", "int", "float", "round", "abs", "list", "tuple", "sorted", "mean", "fmean", "median"}
)
# Methods of text and arrays, and of containers.
_READS = frozenset({"read", "readline", "readlines", "read_text", "split", "splitlines", "strip", "sum", "mean", "max"})
_HANDS_ON = frozenset({"values", "get", "pop", "popleft", "copy"})
_SUBTRACTS = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)
_HOPS = 6
_Key = str | int | None
Measure = Literal["used", "free"]


class Measured:
    """Follows variables, items and functions of a file to what measures memory."""

    def __init__(self, slice_: Slice) -> None:
        self._slice = slice_
        self._seen: set[tuple[int, str, _Key]] = set()
        self._read: list[str] = []  # keys and attributes on the way, and what measures
        self._turned = False  # it is taken from something: less memory makes it more

    def measure(self, node: ast.expr, spot: Spot) -> Measure | Literal["unknown"] | None:
        """What it measures; None where that is no memory."""
        if not self._has(node, spot, _HOPS, None):
            return None
        words = " ".join(self._read)
        of_machine = _OF_MACHINE.search(words) is not None
        if self._turned or (of_machine and _TOTAL.search(words) is not None):
            return "unknown"
        return "free" if of_machine and _FREE.search(words) is not None else "used"

    def _has(self, node: ast.AST, spot: Spot, hops: int, key: _Key) -> bool:
        """`key`: the item or attribute of it that is meant."""
        return any(self._is_memory(part, spot, hops, item) for part, item in _picked(node, key))

    def _is_memory(self, node: ast.AST, spot: Spot, hops: int, key: _Key) -> bool:
        if isinstance(node, ast.BinOp) and key is None:
            self._turned |= isinstance(node.op, _SUBTRACTS) and Measured(self._slice)._has(node.right, spot, hops, None)
            return any(self._has(side, spot, hops, None) for side in (node.left, node.right))
        words = " ".join(_words(node, key))
        if _OTHERS.search(words):
            return False
        if _MEASURES.search(words):
            self._read += [words, str(key or "")]
            return True
        if hops > 0 and any(self._has(value, at, hops - 1, part) for value, at, part in self._behind(node, spot, key)):
            self._read += [words, str(key or "")]
            return True
        return False

    def _behind(self, node: ast.AST, spot: Spot, key: _Key) -> Iterator[tuple[ast.AST, Spot, _Key]]:
        for part, item in _parts(node, key):
            if isinstance(part, ast.Call):
                for value, at in self._returned(part, spot):
                    yield value, at, item
            elif part is not node and isinstance(part, ast.BinOp):
                yield part, spot, item
            name = variable(part)
            if name is None or (id(spot.scope), name, item) in self._seen:
                continue
            self._seen.add((id(spot.scope), name, item))
            given = self._slice.argument(name, spot) if name in parameters(spot.scope) else None
            if given is not None:
                yield *given, item
            owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
            for value, of_it in _put_into(owner if owner is not None else spot.scope, name, item):
                yield value, spot, of_it

    def _returned(self, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        found = self._slice.function(call, spot)
        for item in own_nodes(found[0]) if found is not None else ():
            if isinstance(item, ast.Return) and item.value is not None and found is not None:
                yield item.value, replace(found[1], scope=found[0], line=item.lineno, depth=None, call=(call, spot))


def _picked(node: ast.AST, key: _Key) -> list[tuple[ast.AST, _Key]]:
    """Of `{"rss": a, "age": b}`, `Sample(rss=a, age=b)` and `a, b` the part of that name or place.

    Each with the key that is still to be read.
    """
    if key is None:
        return [(node, None)]
    if isinstance(node, ast.Dict):
        return [(value, None) for name, value in zip(node.keys, node.values, strict=True) if _may_be(name, key)]
    if isinstance(node, (ast.Tuple, ast.List)):
        inside = isinstance(key, int) and -len(node.elts) <= key < len(node.elts)
        return [(node.elts[key], None)] if inside and isinstance(key, int) else []
    named = [item for item in node.keywords if item.arg is not None] if isinstance(node, ast.Call) else []
    return [(item.value, None) for item in named if item.arg == key] if named else [(node, key)]


def _may_be(name: ast.expr | None, key: _Key) -> bool:
    return key is None or not isinstance(name, ast.Constant) or name.value == key


def _words(node: ast.AST, key: _Key = None) -> Iterator[str]:
    """Attributes, functions and texts of what gives its value; no variables, which are followed.

    `key`: the item or attribute that is meant: then nothing of a call's arguments.
    """
    if variable(node) is not None:
        return
    if isinstance(node, ast.Attribute):
        yield from _words(node.value)
        yield f".{node.attr}"
    elif isinstance(node, ast.Call):
        yield from (node.func.id,) if isinstance(node.func, ast.Name) else _words(node.func)
        yield from (word for item in node.args if key is None for word in _of_argument(node, item))
    elif isinstance(node, ast.Subscript):
        yield from _words(node.value)
        yield from _texts(node.slice) if isinstance(node.slice, ast.Constant) else ()
    elif isinstance(node, ast.DictComp):
        yield from _words(node.value)
    elif isinstance(node, ITEM_COMPREHENSIONS):
        yield from _words(node.elt)
    elif isinstance(node, (ast.Constant, ast.JoinedStr)):
        yield from _texts(node)
    elif isinstance(node, (ast.BinOp, ast.Tuple, ast.List, ast.Dict, ast.IfExp, ast.UnaryOp)) and key is None:
        for item in _values(node):
            yield from _words(item)


def _of_argument(call: ast.Call, item: ast.expr) -> Iterator[str]:
    """Of a path also where the function is not known: `open(f"/proc/{pid}/statm")`."""
    return _words(item) if called_name(call) in _KEEPS else _texts(item)


def _texts(node: ast.AST) -> Iterator[str]:
    return (item.value for item in nodes_of(node) if isinstance(item, ast.Constant) and isinstance(item.value, str))


def _values(node: ast.AST) -> list[ast.expr]:
    """The parts that a value is made of, without what only decides or names."""
    if isinstance(node, ast.Dict):
        return node.values
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    return [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)]


def _parts(node: ast.AST, key: _Key) -> Iterator[tuple[ast.AST, _Key]]:
    """Variables and calls that its value is made of, each with the item or attribute that is read."""
    if variable(node) is not None:
        yield node, key
    elif isinstance(node, ast.Call):
        yield node, key
        if isinstance(node.func, ast.Attribute) and variable(node.func) is None:
            own = key if node.func.attr in _HANDS_ON else None if node.func.attr in _READS else node.func.attr
            yield from _parts(node.func.value, own)
        for item in node.args if called_name(node) in _KEEPS and key is None else ():
            yield from _parts(item, None)
    elif isinstance(node, ast.Attribute):
        yield from _parts(node.value, node.attr if key is None else _NOWHERE)
    elif isinstance(node, ast.Subscript):
        held = node.slice.value if isinstance(node.slice, ast.Constant) else None
        yield from _parts(node.value, held if isinstance(held, (str, int)) and key is None else key)
    elif isinstance(node, ast.DictComp):
        yield from _parts(node.value, None)
    elif isinstance(node, ITEM_COMPREHENSIONS):
        yield from _parts(node.elt, None)
        yield from (pair for item in node.generators for pair in _parts(item.iter, _of_each(node.elt, item)))
    elif isinstance(node, (ast.BinOp, ast.Tuple, ast.List, ast.Dict, ast.IfExp, ast.UnaryOp)) and key is None:
        for item in _values(node):
            yield from _parts(item, None)


_NOWHERE = ""  # no name of an item: what is read there is not followed


def _of_each(element: ast.expr, loop: ast.comprehension) -> _Key:
    """Of `x for x in rows` all of them."""
    return None if variable(element) == variable(loop.target) is not None else _NOWHERE


def _put_into(scope: ast.AST, name: str, key: _Key) -> Iterator[tuple[ast.AST, _Key]]:
    """What the variable is bound to, goes through, or is filled with; of one of its items, what may be that.

    Each with the item of it that is meant: where the variable's item is bound, all of the value.
    """
    for item in nodes_of(scope) if isinstance(scope, ast.ClassDef) else own_nodes(scope):
        for target, value in set_by(item):
            if value is not None and variable(target) == name:
                yield value, key
            elif value is not None and _is_item(target, name, key):
                yield value, None
            elif value is not None and isinstance(target, (ast.Tuple, ast.List)) and key is None:
                places = [place for place, part in enumerate(target.elts) if variable(part) == name]
                yield from ((value, place) for place in places)
        if isinstance(item, ast.AugAssign) and (variable(item.target) == name or _is_item(item.target, name, key)):
            yield item.value, None
        if isinstance(item, (ast.For, ast.AsyncFor)) and variable(item.target) == name:
            yield item.iter, key
        if isinstance(item, (ast.With, ast.AsyncWith)):
            yield from ((part.context_expr, key) for part in item.items if _names(part.optional_vars, name))
        fills = isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _FILLS
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and fills:
            yield from ((part, key) for part in item.args if variable(item.func.value) == name)


def _is_item(target: ast.expr, name: str, key: _Key) -> bool:
    """`tasks[pid]`, `sample.rss`."""
    if isinstance(target, ast.Subscript):
        return variable(target.value) == name and _may_be(target.slice, key)
    return isinstance(target, ast.Attribute) and variable(target.value) == name and key in (None, target.attr)


def _names(target: ast.expr | None, name: str) -> bool:
    return target is not None and holds(target, name)
