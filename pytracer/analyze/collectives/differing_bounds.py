"""A loop that one rank left because it has fewer rounds there: `for epoch in range(start, epochs)`, `while n < total`.

What the variables of its head were is recorded where both ranks raised. Why one differs is followed back in the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._text import count_words
from pytracer.analyze.collectives.rank_value_words import value_words
from pytracer.analyze.collectives.rank_values import Compared
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.failing.expressions import computed, short, whole
from pytracer.analyze.evidence.slicing.by_rank import size_source
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, without_wrappers
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.naming import line_in

_RANGES = ("range", "trange")
_WRAPPERS = ("tqdm", "track", "enumerate", "iter", "list")
_READ = (ast.Name, ast.Attribute)
_DECIDE = "Let one rank decide and broadcast it (broadcast_object_list())."


class DifferingBound(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to do."""

    subject: str
    advice: str


class EqualHeads(msgspec.Struct, frozen=True):
    """Variables in heads of loops that were one number on both ranks; files and lines of loops with as many rounds."""

    names: frozenset[str] = frozenset()
    loops: frozenset[tuple[str | None, int]] = frozenset()


def differing_bound(inside: Side, outside: Side, at: int, loop: Loop) -> DifferingBound | None:
    """None unless one variable alone of the loop's head was recorded as different, and explains who left it.

    Args:
        inside: The rank that is still in the loop.
        outside: The one behind it.
        at: The position of their function in their ways.
        loop: The loop.
    """
    compared = Compared(inside.view, inside.call, outside.view, outside.call)
    head = _Head(compared, loop, len(inside.way) - 1 - at)
    differ = [(node, pair) for node, pair in head.values() if pair[0] != pair[1]]
    rounds = head.rounds()
    fewer = isinstance(loop, ast.While) if rounds is None else rounds[1] < rounds[0]
    if len(differ) != 1 or head.spot is None or not fewer:
        return None
    ((node, pair),) = differ
    sides = sorted(zip((inside, outside), pair, rounds or pair, strict=True), key=lambda side: side[0].number)
    (one, value, many), (other, other_value, others) = sides
    name, text = ast.unparse(node), quoted(inside.view.process.snapshot, inside.way[at], loop.lineno)
    here = f"the loop of line {loop.lineno} ({text})"
    if rounds is not None:
        said = f"{here} has {count_words(many, 'round')} on {one.name} and {others} on {other.name}, as `{name}` is "
        said += f"{value} and {other_value} there"
    else:
        said = f"`{name}` of {here} is {value} on {one.name} and {other_value} on {other.name}"
    source = size_source(compared.slice, node, head.spot)
    if _binds(loop, name):
        if source is None:
            return None  # it may count rounds that called no collective
        said += " after as many collectives"
    if source is not None:
        said += f": it depends on the rank at {line_in(source.spot.file, source.line, head.spot.file)} "
        said += f"(`{short(ast.unparse(source.node))}`)"
    found = compared.follow(node, head.spot)
    made = value_words(compared, found, (inside.number, outside.number), None) if found is not None else _DECIDE
    return DifferingBound(said, f"Give all ranks the same `{name}` before line {loop.lineno} ({text}). {made}")


def equal_heads(one: Side, other: Side) -> EqualHeads:
    """Of the loops around the lines that led to the first rank's call."""
    compared = Compared(one.view, one.call, other.view, other.call)
    names: set[str] = set()
    loops: set[tuple[str | None, int]] = set()
    for depth in range(len(one.way)):
        spot = compared.slice.spot(depth)
        for loop in loops_around(spot.tree, spot.line) if spot is not None else ():
            head = _Head(compared, loop, depth)
            names |= {ast.unparse(node) for node, pair in head.values() if pair[0] == pair[1]}
            rounds = head.rounds()
            if spot is not None and rounds is not None and rounds[0] == rounds[1]:
                loops.add((spot.file, loop.lineno))
    return EqualHeads(frozenset(names), frozenset(loops))


class _Head:
    """The head of a loop, on two ranks: `spot` is its line in the function of a depth of the first."""

    def __init__(self, compared: Compared, loop: Loop, depth: int) -> None:
        spot = compared.slice.spot(depth)
        self.spot = structs.replace(spot, line=loop.lineno) if spot is not None else None
        self._compared = compared
        self._loop = loop
        self._bounds = _bounds(loop)

    def values(self) -> Iterator[tuple[ast.expr, tuple[int, int]]]:
        """Each variable of the bounds with its two numbers; of a `while` also what counts its rounds."""
        seen = set()
        for node in (part for item in self._bounds for part in _variables(item)):
            pair = self._pair(node)
            if pair is not None and ast.unparse(node) not in seen:
                seen.add(ast.unparse(node))
                yield node, pair

    def rounds(self) -> tuple[int, int] | None:
        """How many a `for` has on each, where all is known."""
        if isinstance(self._loop, ast.While) or not self._bounds:
            return None
        found = []
        for rank in (0, 1):
            numbers = [self._number(item, rank) for item in self._bounds]
            known = [item for item in numbers if item is not None]
            if len(known) < len(numbers) or 0 in known[2:]:
                return None
            found.append(len(range(*known)))
        return found[0], found[1]

    def _number(self, node: ast.expr, rank: int) -> int | None:
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left, rank), self._number(node.right, rank)
            return computed(node.op, left, right) if left is not None and right is not None else None
        pair = self._pair(node) if isinstance(node, _READ) else None
        return pair[rank] if pair is not None else whole(node)

    def _pair(self, node: ast.expr) -> tuple[int, int] | None:
        """What a variable was; None where something may have changed it since the loop read it."""
        spot, loop = self.spot, self._loop
        pair = self._compared.pair(node, spot) if spot is not None else None
        if spot is None or pair is None:
            return None
        name = ast.unparse(node)
        counts = isinstance(loop, ast.While) and _binds(loop, name)
        after = (line > loop.lineno and not (counts and line <= (loop.end_lineno or 0)) for line in _bound(spot, name))
        numbers = [int(text) for text in pair if text.lstrip("-").isdigit()]
        return (numbers[0], numbers[1]) if len(numbers) == len(pair) and not any(after) else None


def _bound(spot: Spot, name: str) -> list[int]:
    return places_that_bind(spot.scope, name)


def _binds(loop: Loop, name: str) -> bool:
    return bool(places_that_bind(loop, name))


def _bounds(loop: Loop) -> list[ast.expr]:
    """What `range()` is given; of a `while` what its condition compares."""
    if isinstance(loop, ast.While):
        tests = loop.test.values if isinstance(loop.test, ast.BoolOp) else [loop.test]
        return [part for item in tests if isinstance(item, ast.Compare) for part in (item.left, *item.comparators)]
    head = without_wrappers(loop.iter, _WRAPPERS)
    return [*head.args] if isinstance(head, ast.Call) and called_name(head) in _RANGES else []


def _variables(node: ast.expr) -> Iterator[ast.expr]:
    """`epochs`, `self.epochs` and `args.epochs`; not `args` of the last, nor what is only called."""
    if isinstance(node, _READ):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from (*_variables(node.left), *_variables(node.right))
