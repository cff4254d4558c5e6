"""The calls of a program that lead to one of its lines, from the top of its first file, and which of two came first.

By syntax alone: what a thread, a process or a caller of unknown order runs is "not known", never "before".
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from pytracer.analyze.evidence.slicing.bindings import is_demonstration
from pytracer.analyze.evidence.slicing.callers import ProgramCall, calls_of, mentions, only_function
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    classes_below,
    own_nodes,
    scope_of,
    spans,
    withs_around,
)
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_DEEPEST, _MOST = 8, 24
# Methods of files and containers: a call of one on an object that is not known need not be of the program's class.
_COMMON = frozenset(
    name for kind in (io.TextIOWrapper, io.BufferedRandom, dict, list, set, str) for name in dir(kind)
) | {"save", "load", "run", "put", "step", "train", "eval", "backward"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Step(msgspec.Struct, frozen=True):
    """A place that the process went through; the next one of its chain is in the function that is called there.

    `call`: None of a frame of the stack. `given`: the call as if the function were called here, where it is handed on.
    """

    file: str
    tree: ast.Module
    scope: Scope
    line: int
    call: ast.Call | None = None
    given: ast.Call | None = None

    @property
    def later(self) -> bool:
        """Whether the function is handed to a thread or a process, and may run whenever."""
        return self.given is not self.call


Chain = tuple[Step, ...]


class Chains:
    """Of one program; each chain begins with the outermost call."""

    def __init__(self, files: Mapping[str, ast.Module], back: Slice, first: str | None) -> None:
        self._files, self._back, self._first = files, back, first

    def to(self, file: str, call: ast.Call) -> list[Chain] | None:
        """All that lead to a call; None where that is not known."""
        return self._to(ProgramCall(file, self._files[file], call), None, _DEEPEST)

    def _to(self, item: ProgramCall, function: _Function | None, hops: int) -> list[Chain] | None:
        scope, given = scope_of(item.tree, item.call.lineno), item.call
        if item.passed is not None and function is not None:
            given = ast.Call(ast.Name(function.name, ast.Load()), [*item.passed], [])
            given = ast.fix_missing_locations(ast.copy_location(given, item.call))
        own = Step(item.file, item.tree, scope, item.call.lineno, item.call, given)
        if isinstance(scope, ast.Module):
            below = item.file != self._first and is_demonstration(item.tree, item.call.lineno)
            return [] if below else [(own,)]
        callers = self._callers(item.file, scope) if hops and not isinstance(scope, ast.Lambda) else None
        if callers is None or isinstance(scope, ast.Lambda):
            return None
        found: list[Chain] = []
        for outer in callers:
            above = self._to(outer, scope, hops - 1)
            if above is None or len(found) + len(above) > _MOST:
                return None
            found += [(*chain, own) for chain in above]
        return found

    def _callers(self, file: str, function: _Function) -> list[ProgramCall] | None:
        owner = class_around(self._files[file], function)
        if function.name == "__init__" and owner is not None:
            return self._constructions(owner)
        if function.name == "__call__" and owner is not None:
            return self._called_objects(owner)
        known = only_function(self._files, function.name)
        if function.name.startswith("__") or function.name == "forward" or known is None or known[1] is not function:
            return None
        found = []
        for item in calls_of(self._files, file, function):
            if scope_of(item.tree, item.call.lineno) is function:
                continue  # it calls itself
            own = self._is_own(item, function, owner)
            if own is None:
                return None
            found += [item] if own else []
        handed = sum(item.passed is not None for item in found)
        return None if self._kept_count(function, owner) > handed else found

    def _kept_count(self, function: _Function, owner: ast.ClassDef | None) -> int:
        """How often it is named otherwise than to call it: whoever has it then may call it whenever."""
        called = {
            id(item.func) for tree in self._files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)
        }
        return sum(
            id(node) not in called and isinstance(node.ctx, ast.Load) and self._means(file, tree, node, owner)
            for file, tree, node in mentions(self._files, function.name)
        )

    def _means(self, file: str, tree: ast.Module, node: ast.Name | ast.Attribute, owner: ast.ClassDef | None) -> bool:
        """Not a variable of another function, nor an attribute of objects of another class."""
        spot = Spot(file, tree, scope_of(tree, node.lineno), node.lineno)
        if isinstance(node, ast.Name):
            local = not isinstance(spot.scope, ast.Module) and places_that_bind(spot.scope, node.id)
            return owner is None and not local
        if owner is None:
            return True
        kin = [owner, *classes_below(self._files.values(), owner)]
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return class_around(tree, spot.scope) in kin
        made = self._back.class_of(node.value, spot)
        return made is None or made[0] in kin

    def _constructions(self, owner: ast.ClassDef) -> list[ProgramCall] | None:
        below = classes_below(self._files.values(), owner)
        if any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for item in below for part in item.body):
            return None
        names = {owner.name, *(item.name for item in below)}
        return [
            ProgramCall(file, tree, item)
            for file, tree in self._files.items()
            for item in nodes_of(tree)
            if isinstance(item, ast.Call) and called_name(item) in names
        ]

    def _called_objects(self, owner: ast.ClassDef) -> list[ProgramCall] | None:
        """Calls of the objects of a class; None where one may be called that is handed on, or kept in something."""
        made = self._constructions(owner)
        if not made or classes_below(self._files.values(), owner):
            return None
        found: list[ProgramCall] = []
        for item in made:
            name = _bound_to(item)
            uses = [*self._uses_of(item, name)] if name is not None else []
            calls = [part for part in uses if isinstance(part, ast.Call)]
            if name is None or not calls or len(calls) < len(uses):
                return None
            found += [ProgramCall(item.file, item.tree, call) for call in calls]
        return found

    def _uses_of(self, item: ProgramCall, name: str) -> Iterator[ast.AST]:
        """A call of what is kept in a variable of a function, as it is; any other use but of an attribute as itself."""
        scope = scope_of(item.tree, item.call.lineno)
        attributes = {id(part.value) for part in own_nodes(scope) if isinstance(part, ast.Attribute)}
        calls = {id(part.func): part for part in own_nodes(scope) if isinstance(part, ast.Call)}
        for part in nodes_of(scope):
            is_name = isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load)
            if is_name and id(part) not in attributes:
                yield calls.get(id(part), part)

    def _is_own(self, item: ProgramCall, function: _Function, owner: ast.ClassDef | None) -> bool | None:
        """Whether it calls that method; None where its object is not known, and others have such a method."""
        func = item.call.func
        if owner is None or item.passed is not None:
            return True
        if not isinstance(func, ast.Attribute):
            return False
        kin = [owner, *classes_below(self._files.values(), owner)]
        spot = Spot(item.file, item.tree, scope_of(item.tree, item.call.lineno), item.call.lineno)
        if isinstance(func.value, ast.Name) and func.value.id == "self":
            return class_around(spot.tree, spot.scope) in kin
        if isinstance(func.value, ast.Name) and any(func.value.id == one.name for one in kin):
            return True
        made = self._back.class_of(func.value, spot)
        if made is not None and isinstance(made[0], ast.ClassDef):
            return made[0] in kin
        if _is_entered(spot, func.value) or self._is_of_library(func.value, spot):
            return False
        return None if function.name in _COMMON else True

    def _is_of_library(self, node: ast.expr, spot: Spot) -> bool:
        base = self._back.made(node, spot, calls=True).node
        name = called_name(base) if isinstance(base, ast.Call) else None
        return name is not None and not any(
            isinstance(item, (ast.FunctionDef, ast.ClassDef)) and item.name == name
            for tree in self._files.values()
            for item in nodes_of(tree)
        )


def _bound_to(item: ProgramCall) -> str | None:
    """The variable of a function that has the object alone: bound once, and by a line of its own."""
    scope = scope_of(item.tree, item.call.lineno)
    if isinstance(scope, (ast.Module, ast.Lambda)):
        return None
    for part in own_nodes(scope):
        if isinstance(part, ast.Assign) and part.value is item.call and len(part.targets) == 1:
            target = part.targets[0]
            single = isinstance(target, ast.Name) and len(places_that_bind(scope, target.id)) == 1
            return target.id if single and isinstance(target, ast.Name) else None
    return None


def _is_entered(spot: Spot, node: ast.expr) -> bool:
    """`f` of `with open(path) as f`."""
    entered = (part.optional_vars for item in withs_around(spot.tree, spot.line) for part in item.items)
    return isinstance(node, ast.Name) and any(isinstance(item, ast.Name) and item.id == node.id for item in entered)


def spot_of(chain: Sequence[Step]) -> Spot | None:
    """The place of its last step, from which values are followed through the calls of this chain."""
    spot: Spot | None = None
    for before, step in pairwise((None, *chain)):
        if step is None:
            continue
        called = (before.given, spot) if before is not None and before.given is not None and spot is not None else None
        spot = Spot(step.file, step.tree, step.scope, step.line, call=called)
    return spot


def chain_of(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> Chain:
    """Of the frames of a stack, the innermost first, without those that have the function of the one around them."""
    return tuple(_steps(snapshot, frames))


def _steps(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> Iterator[Step]:
    before: Scope | None = None
    for frame in reversed(frames):
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None or frame.file is None:
            return
        scope = scope_of(tree, frame.line)
        if scope is not before:
            yield Step(frame.file, tree, scope, frame.line)
        before = scope


def may_follow(later: Chain, earlier: Chain, *, loops: bool = True) -> bool | None:
    """Whether the end of one may be reached after that of another; None where their order is not known.

    `loops`: also in a later round of a loop that has both.
    """
    for place, (after, before) in enumerate(zip(later, earlier, strict=False)):
        if after.file != before.file or after.scope is not before.scope:
            return None
        if loops and _share_loop(after, before):
            return True
        if _is_same(after, before, later[place + 1 :], earlier[place + 1 :]):
            continue
        if after.call is not None and _has(after.call, before.call):
            return True  # what a call is given is made before it
        if before.call is not None and _has(before.call, after.call):
            return False
        if after.line == before.line:
            return None
        if after.line > before.line:
            return not _exclude(after, before)
        return None if after.later else False
    return False


def parted(one: Chain, other: Chain) -> int:
    """How many of the outermost steps are the same calls."""
    same = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours.call is not theirs.call:
            break
        same += 1
    return same


def _is_same(after: Step, before: Step, inner: Chain, others: Chain) -> bool:
    if after.call is not None and before.call is not None:
        return after.call is before.call
    call = after.call or before.call
    line = before.line if after.call is not None else after.line
    return call is not None and spans(call, line) and bool(inner and others) and inner[0].scope is others[0].scope


def _share_loop(after: Step, before: Step) -> bool:
    for item in own_nodes(after.scope):
        if isinstance(item, COMPREHENSIONS) and _has(item, after.call) and _has(item, before.call):
            return True
        if not isinstance(item, LOOPS) or not spans(item, after.line) or not spans(item, before.line):
            continue
        # What a `for` iterates over is made once; a frame at its head takes the next element.
        at_head = isinstance(item, ast.For) and after.line == item.lineno and after.call is not None
        once = isinstance(item, ast.For) and before.line == item.lineno and before.call is not None
        if not at_head and not (once and after.call is before.call):
            return True
    return False


def _has(item: ast.AST, call: ast.Call | None) -> bool:
    return call is not None and any(part is call for part in nodes_of(item))


def _exclude(after: Step, before: Step) -> bool:
    """Whether they are in two arms of one `if`."""
    for item in own_nodes(after.scope):
        if isinstance(item, ast.If) and item.orelse and item.body[-1].end_lineno is not None:
            end = item.body[-1].end_lineno
            if item.lineno < before.line <= end < after.line <= (item.end_lineno or 0):
                return True
    return False
