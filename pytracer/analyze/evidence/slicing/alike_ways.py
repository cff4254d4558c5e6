"""Whether all ranks come to a line, and as often: by conditions, loops and early exits around it, and all callers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import mentions, only_function
from pytracer.analyze.evidence.slicing.calls import argument_of, calls_that_lead
from pytracer.analyze.evidence.slicing.obligations import Obligation, Reached, Unproven, Value, above, function_around
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    classes_below,
    definitions,
    own_nodes,
    parameters,
    parents_of,
)

_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.DictComp)
_HARMLESS = ("torch.no_grad", "torch.inference_mode", "torch.distributed.elastic.multiprocessing.errors.record")
_SPAWNS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")


class Ways:
    """How the program comes to the lines of its files, from the stack of a failing line outward."""

    def __init__(self, at: FailingLine) -> None:
        self._at, self._files = at, at.files

    def way(self, operation: ast.Call) -> Iterator[Obligation]:
        """By the frames of the stack, with no function of a library between them."""
        stack, frames = self._at.stack, self._at.frames
        first = next(n for n, item in enumerate(stack) if item is frames[0])
        if len(stack) < first + len(frames) or any(stack[first + n] is not item for n, item in enumerate(frames)):
            raise Unproven
        inner: Spot | None = None
        for depth in range(len(frames)):
            spot = self._at.slice.spot(depth)
            if spot is None or spot.depth != depth:
                raise Unproven
            calls = [operation] if inner is None else self._leading(inner, spot)
            yield from (Reached(call, spot) for call in calls)
            inner = spot
        if inner is not None and inner.scope is not inner.tree:
            yield from self._callers(inner)

    def _leading(self, inner: Spot, spot: Spot) -> list[ast.Call]:
        function = inner.scope
        if not isinstance(function, ast.FunctionDef):
            raise Unproven
        found = [*calls_that_lead(spot.tree, spot.line, function, class_around(inner.tree, function))]
        if not found:
            raise Unproven
        return found

    def reached(self, item: Reached) -> Iterator[Obligation]:
        """What decides about it in its function, and the calls of that."""
        spot, parents = item.spot, parents_of(item.spot.tree)
        yield from self._conditions(item.node, spot)
        line = getattr(item.node, "lineno", spot.line)
        around = [part for part in above(item.node, spot.scope, parents) if isinstance(part, LOOPS)]
        for part in own_nodes(spot.scope):
            if not isinstance(part, (ast.Return, ast.Raise, ast.Continue, ast.Break)) or part is item.node:
                continue
            loops = [loop for loop in above(part, spot.scope, parents) if isinstance(loop, LOOPS)]
            if isinstance(part, (ast.Continue, ast.Break)):
                leaves = bool(loops) and loops[0] in around
            else:
                leaves = part.lineno < line or any(loop in around for loop in loops)
            if leaves:
                yield from self._conditions(part, spot)
        if isinstance(spot.scope, ast.Module):
            return
        self.check_plain(spot.scope)
        if spot.call is not None:
            yield Reached(*spot.call)
        elif spot.depth is None:
            yield from self._callers(spot)

    def _conditions(self, node: ast.AST, spot: Spot) -> Iterator[Obligation]:
        """What decides, in its function, whether it runs."""
        inner, parents = node, parents_of(spot.tree)
        for part in above(node, spot.scope, parents):
            if isinstance(part, (ast.If, ast.While, ast.IfExp)):
                yield Value(part.test, spot)
            elif isinstance(part, ast.For):
                yield Value(part.iter, spot)
            elif isinstance(part, ast.BoolOp):
                yield from (Value(item, spot) for item in part.values if item is not inner)
            elif isinstance(part, _COMPREHENSIONS):
                yield from (Value(item.iter, spot) for item in part.generators)
                yield from (Value(test, spot) for item in part.generators for test in item.ifs)
            elif (isinstance(part, ast.Try) and part.handlers and inner not in part.finalbody) or isinstance(
                part, (ast.ExceptHandler, ast.AsyncFor, ast.Match, ast.Lambda, ast.SetComp, ast.ClassDef)
            ):
                raise Unproven
            inner = part

    def check_plain(self, function: ast.AST) -> None:
        """No decorator that may choose who calls it, and no generator."""
        if not isinstance(function, ast.FunctionDef):
            raise Unproven
        tree = next((item for item in self._files.values() if function in parents_of(item)), None)
        for item in function.decorator_list:
            named = item.func if isinstance(item, ast.Call) else item
            own = isinstance(named, ast.Name) and named.id in ("staticmethod", "classmethod")
            if not own and (tree is None or imported_as(tree, named) not in _HARMLESS):
                raise Unproven
        if any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(function)):
            raise Unproven

    def _callers(self, spot: Spot) -> Iterator[Obligation]:
        self.check_plain(spot.scope)
        yield from (Reached(call, place) for call, place in self.sites(spot))

    def sites(self, spot: Spot) -> list[tuple[ast.Call, Spot]]:
        """Every call of a function, which nothing else in the program names; also spawn(), which starts it."""
        function = spot.scope
        if not isinstance(function, ast.FunctionDef):
            raise Unproven
        owner, name = class_around(spot.tree, function), function.name
        if name == "__init__" and owner is not None:
            name = owner.name
            named = sum(len(definitions(tree).get(name, ())) for tree in self._files.values())
            if named != 1 or classes_below(self._files.values(), owner):
                raise Unproven
        elif name.startswith("__") or only_function(self._files, name) is None:
            raise Unproven
        found = []
        for file, tree, item in mentions(self._files, name):
            call = parents_of(tree).get(item)
            own = isinstance(call, ast.Call) and (call.func is item or (is_spawn(tree, call) and call.args[0] is item))
            if not own or not isinstance(call, ast.Call):
                raise Unproven
            found.append((call, Spot(file, tree, function_around(tree, call), call.lineno)))
        renamed = (item for tree in self._files.values() for item in nodes_of(tree) if isinstance(item, ast.alias))
        if not found or any(item.name == name and item.asname for item in renamed):
            raise Unproven
        return found


def is_spawn(tree: ast.Module, call: ast.Call) -> bool:
    """`mp.spawn(worker, args=(config,), nprocs=2)`."""
    return imported_as(tree, call.func) in _SPAWNS and bool(call.args)


def is_spawned(given: ast.Tuple, tree: ast.Module) -> bool:
    """Whether it is the `args` of spawn(), whose processes have a copy each."""
    above = parents_of(tree).get(given)
    call = parents_of(tree).get(above) if isinstance(above, ast.keyword) else above
    return isinstance(call, ast.Call) and is_spawn(tree, call)


def uses_inside(back: Slice, call: ast.Call, item: ast.expr, spot: Spot) -> tuple[list[ast.Name], Spot] | None:
    """Where the program's own function that is called with it reads it; None where it does more than that."""
    function = back.function(call, spot)
    if function is None:
        return None
    names = [name for name in parameters(function[0]) if argument_of(call, function[0], name) is item]
    own = {id(part) for part in own_nodes(function[0])}
    uses = [part for part in nodes_of(function[0]) if isinstance(part, ast.Name) and part.id in names]
    if len(names) != 1 or not all(isinstance(part.ctx, ast.Load) and id(part) in own for part in uses):
        return None
    return uses, Spot(function[1].file, function[1].tree, function[0], END)


def spawned_value(call: ast.Call, function: ast.FunctionDef, name: str) -> ast.expr | None:
    """What spawn() gives for a parameter; the first one is the number of the process."""
    given = argument_at(call, 1, "args")
    place = parameters(function).index(name) - 1 if name in parameters(function) else -1
    items = given.elts if isinstance(given, ast.Tuple) else []
    whole = not any(isinstance(item, ast.Starred) for item in items)
    return items[place] if whole and 0 <= place < len(items) else None
