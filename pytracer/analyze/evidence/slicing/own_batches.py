"""Batches that the program makes by a rule of its own: one ends by what is in it, and not by a number of items.

Ranks with as many items have different numbers of such batches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._text import capital, shortened
from pytracer.analyze.evidence.slicing.handed_batches import is_handed_on
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container, set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.constants import ORDERS, is_none
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in

_LOADERS = ("DataLoader", "StatefulDataLoader")
_PASSES_ON = ("enumerate", "tqdm", "track", "iter")
_COUNTERS = ("range", "trange", "count")
_SAME_ITEMS = ("tqdm", "track", "iter", "list", "tuple", "reversed", "sorted")
_OF_ALL = ("max", "min", "sum")
_EVEN_OUT = (
    "so that ranks with as many items can have other numbers of batches: padding the parts or DistributedSampler does "
    "not even that out. Make the batches of all items alike on all ranks and deal these out, as many to each, or end "
    "all at the smallest number of batches (all_reduce() it with MIN)"
)
_MOST = 6
_TEXT = 60


class OwnBatches(msgspec.Struct, frozen=True):
    """`line`: of the `if` that ends a batch, with its test."""

    file: str | None
    line: int
    test: str

    def rule(self, here: str | None) -> str:
        """`` line 37 (`if batch and frames + durations[i] > most:`) ends a batch by what is in it ``."""
        return f"{line_in(self.file, self.line, here)} (`if {self.test}:`) ends a batch by what is in it"

    def advice(self, here: str | None) -> str:
        """What it means for the ranks, and what to do; without an end, for what else helps."""
        return f"{capital(self.rule(here))}, {_EVEN_OUT}"


def own_batches(slice_: Slice, depth: int, loop: Loop) -> OwnBatches | None:
    """Of a loop around a frame's line; None where it goes through something else, or what it is is not known."""
    spot = slice_.spot(depth)
    if spot is None or isinstance(loop, ast.While):
        return None
    node, at = loop.iter, structs.replace(spot, line=loop.lineno)
    for _ in range(_MOST):
        made = slice_.made(node, at, calls=False)
        call, at = made.node, made.spot
        if not isinstance(call, ast.Call):
            return None
        given = _passed_on(call)
        if given is None:
            return _made_by(slice_, call, at)
        node = given
    return None


def _passed_on(call: ast.Call) -> ast.expr | None:
    """What a loader takes its batches from, or what `enumerate()` and the like go through.

    The items of a data set are batches only where the loader makes none of them.
    """
    first = call.args[0] if call.args else None
    if called_name(call) not in _LOADERS:
        return first if called_name(call) in _PASSES_ON else None
    dealt, size = keyword_value(call, "batch_sampler"), keyword_value(call, "batch_size")
    if dealt is not None or size is None or not is_none(size) or keyword_value(call, "sampler") is not None:
        return dealt
    return first or keyword_value(call, "dataset")


def _made_by(slice_: Slice, call: ast.Call, spot: Spot) -> OwnBatches | None:
    """Of a generator of the program, or of a class with methods of which one makes batches, and hands them on."""
    found = slice_.defined(call.func, spot) or slice_.function(call, spot)
    if found is None:
        return None
    owner, at = found
    functions = owner.body if isinstance(owner, ast.ClassDef) else [owner]
    rules = [rule for item in functions if isinstance(item, ast.FunctionDef) for rule in _rules(item)]
    if len(rules) != 1 or not is_handed_on(owner, rules[0].function, rules[0].batches, rules[0].batch):
        return None
    return OwnBatches(at.file, rules[0].test.lineno, shortened(ast.unparse(rules[0].test.test), _TEXT))


class _Rule(msgspec.Struct, frozen=True):
    """`batches`: the list that it puts each `batch` into; None where it yields each."""

    function: ast.FunctionDef
    test: ast.If
    batches: str | None
    batch: str


def _rules(function: ast.FunctionDef) -> Iterator[_Rule]:
    """Each `if` of a loop that gives a list away and begins a new one, by what the loop's items are."""
    for loop in own_nodes(function):
        if not isinstance(loop, ast.For):
            continue
        for item in _inside(loop):
            given = _given_away(item) if isinstance(item, ast.If) else None
            if isinstance(item, ast.If) and given is not None and _Items(loop, given[0]).decide(item.test):
                yield _Rule(function, item, given[1], given[0])


def _inside(loop: ast.For) -> Iterator[ast.AST]:
    """Without what is in loops inside: these have items of their own."""
    waiting: list[ast.AST] = [*loop.body]
    while waiting:
        item = waiting.pop()
        yield item
        if not isinstance(item, ast.For):
            waiting += ast.iter_child_nodes(item)


def _given_away(test: ast.If) -> tuple[str, str | None] | None:
    """`batch` of `yield batch; batch = []`, and of `batches.append(batch); batch = []` also `batches`."""
    given = dict(
        found for item in test.body if isinstance(item, ast.Expr) and (found := _gives(item.value)) is not None
    )
    for item in test.body:
        for target, value in set_by(item):
            name = variable(target)
            if name in given and value is not None and (is_empty_container(value) or isinstance(value, ast.List)):
                return name, given[name]
    return None


def _gives(node: ast.expr) -> tuple[str, str | None] | None:
    value: ast.expr | None = None
    batches: str | None = None
    if isinstance(node, ast.Yield):
        value = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        batches = variable(node.func.value)
        value = node.args[0] if node.args and batches is not None else None
    if isinstance(value, ast.Call) and called_name(value) in ("list", "tuple") and value.args:
        value = value.args[0]
    name = variable(value) if value is not None else None
    return (name, batches) if name is not None else None


class _Items:
    """What a loop knows of its items: not how many there were.

    `_items`: variables of one, or of what was computed from it; `_numbers`: those that count the rounds.
    """

    def __init__(self, loop: ast.For, batch: str) -> None:
        self._batch = batch
        self._numbers = set(_counters(loop.target, loop.iter))
        self._items = {item.id for item in nodes_of(loop.target) if isinstance(item, ast.Name)} - self._numbers
        parts = [item for statement in loop.body for item in nodes_of(statement) if isinstance(item, ast.stmt)]
        for _ in range(_MOST):
            new = {
                name
                for item in parts
                for target, value in _sets(item)
                if value is not None and (name := variable(target)) is not None and self._measures(value)
            }
            if new <= self._items:
                break
            self._items |= new - {batch}

    def decide(self, test: ast.expr) -> bool:
        """Whether a test compares something of them: `total + lengths[i] > most`."""
        compared = [item for item in nodes_of(test) if isinstance(item, ast.Compare)]
        return any(
            isinstance(item.ops[0], ORDERS) and any(map(self._measures, (item.left, *item.comparators)))
            for item in compared
        )

    def _measures(self, node: ast.AST) -> bool:
        """`lengths[i]`, `row.length`, `len(row)`, `total`, `max(map(len, batch))`; not `len(batch)`."""
        if variable(node) is not None and variable(node) in self._items:
            return True
        if isinstance(node, ast.Subscript):
            return bool(bare_names(node.slice) & (self._items | self._numbers)) or self._measures(node.value)
        if isinstance(node, ast.Attribute):
            return self._measures(node.value)
        if isinstance(node, ast.Call):
            return self._is_measured_by(node)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.IfExp)):
            return any(map(self._measures, ast.iter_child_nodes(node)))
        return False

    def _is_measured_by(self, call: ast.Call) -> bool:
        if called_name(call) in _OF_ALL and any(map(self._is_of_each, call.args)):
            return True
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        return any(map(self._measures, (*owner, *passed_values(call))))

    def _is_of_each(self, node: ast.expr) -> bool:
        """`batch`, `map(len, batch)`, `(lengths[i] for i in batch)`; not `(1 for _ in batch)`."""
        if variable(node) == self._batch:
            return True
        if isinstance(node, ast.Call) and called_name(node) == "map":
            return any(self._batch in bare_names(item) for item in node.args[1:])
        if not isinstance(node, (ast.GeneratorExp, ast.ListComp)) or len(node.generators) != 1:
            return False
        names = bare_names(node.generators[0].target)
        over = bare_names(node.generators[0].iter) & {self._batch, *self._items}
        return bool(over) and bool(names & bare_names(node.elt))


def _sets(item: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(item, ast.AugAssign):
        yield item.target, item.value
    yield from set_by(item)


def _counters(target: ast.expr, over: ast.expr) -> Iterator[str]:
    """What counts the rounds: `i` of `for i in range(n)`, and of `for i, x in tqdm(enumerate(rows))`."""
    if not isinstance(over, ast.Call):
        return
    name, parts = called_name(over), target.elts if isinstance(target, ast.Tuple) else []
    if name in _SAME_ITEMS and over.args:
        yield from _counters(target, over.args[0])
    elif name in _COUNTERS and isinstance(target, ast.Name):
        yield target.id
    elif name == "enumerate" and len(parts) == 2 and over.args:
        yield from bare_names(parts[0])
        yield from _counters(parts[1], over.args[0])
    elif name == "zip":
        for part, item in zip(parts, over.args, strict=False):
            yield from _counters(part, item)
