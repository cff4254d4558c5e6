"""Batches that the program makes by a rule of its own: one ends by what is in it, and not by a number of items.

Ranks with as many items have different numbers of such batches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._text import capital, shortened
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container, set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in

_LOADERS = ("DataLoader", "StatefulDataLoader")
_PASSES_ON = ("enumerate", "tqdm", "track", "iter", "islice", "prepare", "prepare_data_loader")
_COUNTERS = ("range", "trange", "enumerate")
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
    """What a loader takes its batches from, or what `enumerate()` and the like go through."""
    first = call.args[0] if call.args else None
    if called_name(call) in _LOADERS:
        return keyword_value(call, "batch_sampler") or first or keyword_value(call, "dataset")
    return first if called_name(call) in _PASSES_ON else None


def _made_by(slice_: Slice, call: ast.Call, spot: Spot) -> OwnBatches | None:
    """Of a generator of the program, or of a class with methods of which one makes batches."""
    found = slice_.defined(call.func, spot) or slice_.function(call, spot)
    if found is None:
        return None
    owner, at = found
    functions = owner.body if isinstance(owner, ast.ClassDef) else [owner]
    rules = [rule for item in functions if isinstance(item, ast.FunctionDef) for rule in _rules(item)]
    if len(rules) != 1:
        return None
    return OwnBatches(at.file, rules[0].lineno, shortened(ast.unparse(rules[0].test), _TEXT))


def _rules(function: ast.FunctionDef) -> Iterator[ast.If]:
    """Each `if` of a loop that gives a list away and begins a new one, by what the loop's items are."""
    for loop in own_nodes(function):
        if not isinstance(loop, ast.For):
            continue
        for item in _inside(loop):
            name = _given_away(item) if isinstance(item, ast.If) else None
            if isinstance(item, ast.If) and name is not None and _asks_items(item.test, loop, name):
                yield item


def _inside(loop: ast.For) -> Iterator[ast.AST]:
    """Without what is in loops inside: these have items of their own."""
    waiting: list[ast.AST] = [*loop.body]
    while waiting:
        item = waiting.pop()
        yield item
        if not isinstance(item, ast.For):
            waiting += ast.iter_child_nodes(item)


def _given_away(test: ast.If) -> str | None:
    """`batch` of `yield batch; batch = []`, or of `batches.append(batch); batch = []`."""
    given = {name for item in test.body for part in nodes_of(item) if (name := _gives(part)) is not None}
    for item in test.body:
        for target, value in set_by(item):
            name = variable(target)
            if name in given and value is not None and (is_empty_container(value) or isinstance(value, ast.List)):
                return name
    return None


def _gives(node: ast.AST) -> str | None:
    value: ast.expr | None = None
    if isinstance(node, ast.Yield):
        value = node.value
    elif isinstance(node, ast.Call) and called_name(node) == "append" and node.args:
        value = node.args[0]
    if isinstance(value, ast.Call) and called_name(value) in ("list", "tuple") and value.args:
        value = value.args[0]
    return variable(value) if value is not None else None


def _asks_items(test: ast.expr, loop: ast.For, batch: str) -> bool:
    """Whether it asks for something of the items, and not for how many there are."""
    targets = {item.id for item in nodes_of(loop.target) if isinstance(item, ast.Name)}
    numbers = _numbers(loop)
    known = targets - numbers
    parts = [item for statement in loop.body for item in nodes_of(statement)]
    for _ in range(_MOST):
        new = {
            name
            for item in parts
            if isinstance(item, ast.stmt)
            for target, value in _sets(item)
            if value is not None and (name := variable(target)) is not None and _reads(value, known, numbers, batch)
        }
        if new <= known:
            break
        known |= new
    return _reads(test, known - {batch}, numbers, batch)


def _sets(item: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(item, ast.AugAssign):
        yield item.target, item.value
    yield from set_by(item)


def _numbers(loop: ast.For) -> set[str]:
    """What counts the rounds: `i` of `for i in range(n)`, and of `for i, x in enumerate(rows)`."""
    name = called_name(loop.iter) if isinstance(loop.iter, ast.Call) else None
    if name not in _COUNTERS:
        return set()
    counts = loop.target.elts[0] if name == "enumerate" and isinstance(loop.target, ast.Tuple) else loop.target
    return {counts.id} if isinstance(counts, ast.Name) else set()


def _reads(node: ast.AST, known: set[str], numbers: set[str], batch: str) -> bool:
    """Whether an expression has something of the items: `lengths[i]`, `total`, `max(batch)`; not `len(batch)`."""
    if isinstance(node, ast.Call) and called_name(node) == "len":
        return bool(node.args) and variable(node.args[0]) != batch and _reads(node.args[0], known, numbers, batch)
    if isinstance(node, ast.Subscript) and _names(node.slice) & numbers:
        return True
    if isinstance(node, ast.Call) and any(_names(item) & (numbers | {batch}) for item in node.args):
        return True
    if variable(node) in known:
        return True
    return any(_reads(item, known, numbers, batch) for item in ast.iter_child_nodes(node))


def _names(node: ast.AST) -> set[str]:
    return {item.id for item in nodes_of(node) if isinstance(item, ast.Name)}
