"""Why a value that all ranks must pass alike differs: followed back on one rank, and compared with another one's.

The way back is by syntax, as far as one line can have made the value (`evidence/slicing/`); from a loop it
goes on to what the loop goes through, from an expression to the one variable in it that was recorded as different.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.matching import state_of
from pytracer.analyze.collectives.standing_line import line_of_end
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

_HOPS = 8
_LOOPS = (ast.For, ast.AsyncFor)
RANK = Pattern(r"\b\w*rank\w*\b|\bis_(?:\w+_)?(?:main|master|first|last|chief)\w*|\bmain_process\b", re.IGNORECASE)
_READERS = ("len", "print", "int", "float", "list", "min", "max", "sum", "sorted", "argmin", "argmax")
_OBJECTS = ("scatter_object_list", "gather_object")  # which broadcast and gather sizes first
_PLACES = {"src": 1, "dst": 1, "tag": 3}


class Differing(msgspec.Struct, frozen=True):
    """A variable, and what it was on the two ranks. `line`: where it was read."""

    text: str
    values: tuple[str, str]
    spot: Spot


class RankValue(msgspec.Struct, frozen=True):
    """What is known of it.

    `head`: the expression that was passed, at `at`. `last`: the variable furthest back that was recorded as different.
    `made`: the expression that it comes from. `branch`: a statement that sets it, and the `if` on the rank around.
    `entry`: a statement that fills only the rank's own entry of a variable, and that variable.
    """

    head: ast.expr
    at: Spot
    last: Differing | None
    made: Made | None
    branch: tuple[ast.stmt, ast.If, Spot] | None = None
    entry: tuple[ast.stmt, str] | None = None


class Compared:
    """Two ranks, and the lines of the program that led each to its call."""

    def __init__(self, mine: ProcessView, my_call: Collective, theirs: ProcessView, their_call: Collective) -> None:
        self.frames = way_to(mine, my_call)[::-1]
        self.slice = Slice(mine.process.snapshot, self.frames)
        both = (line_of_call(mine, my_call), line_of_call(theirs, their_call))
        self._lines = (both[0], both[1]) if both[0] is not None and both[1] is not None else None

    def spot(self) -> Spot | None:
        """Of the call."""
        return self.slice.spot(0)

    def pair(self, node: ast.AST, spot: Spot) -> tuple[str, str] | None:
        """What an expression was on both."""
        if self._lines is None or spot.depth is None or spot.depth >= len(self.frames):
            return None
        mine, theirs = self._lines
        frame = self.frames[spot.depth]
        same = (n for n, item in enumerate(theirs.frames) if (item.file, item.function) == (frame.file, frame.function))
        depth = next(same, 0 if spot.depth == 0 else None)
        if depth is None or not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        own, other = mine.value_at(node, spot), theirs.value_at(node, structs.replace(spot, depth=depth))
        return (own, other) if own is not None and other is not None else None

    def pair_of_object(self, node: ast.expr, spot: Spot) -> tuple[str, str] | None:
        """What an attribute of `self` was on both: on the other rank of whatever method of that class it is in."""
        owner = class_around(spot.tree, spot.scope)
        if self._lines is None or owner is None or spot.depth is None or spot.depth >= len(self.frames):
            return None
        mine, theirs = self._lines
        found = {
            value
            for depth, frame in enumerate(theirs.frames)
            if frame.file == spot.file and (frame.function or "").startswith(f"{owner.name}.")
            if (value := theirs.values_at(depth).get(ast.unparse(node))) is not None
        }
        own = mine.value_at(node, spot)
        return (own, found.pop()) if own is not None and len(found) == 1 else None

    def follow(self, node: ast.expr, spot: Spot) -> RankValue | None:
        """Back from an expression; None where it was the same on both."""
        head, at, last = node, spot, None
        current: ast.AST = node
        for _ in range(_HOPS):
            branch = _set_by_rank(self.slice, current, spot)
            if branch is not None:
                return RankValue(head, at, last, None, branch)
            if _is_overwritten(self.slice, current, spot):
                break
            made = self.slice.made(current, spot, calls=True)
            for item, place in (*made.through, (made.node, made.spot)):
                pair = self.pair(item, place)
                if pair is not None and pair[0] == pair[1]:
                    return None
                if pair is not None:
                    last = Differing(ast.unparse(item), pair, place)
                branch = _set_by_rank(self.slice, item, place)
                if branch is not None:
                    return RankValue(head, at, last, None, branch)
            current, spot = made.node, made.spot
            step = _outer(current, spot) or _loop(current, spot) or self._part(current, spot)
            if step is None:
                break
            current, spot = step
        return RankValue(head, at, last, Made(current, spot), None, _own_entry(current, spot))

    def _part(self, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """The one variable inside that is known to differ; of a sum with a constant the other side."""
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            return node.left, spot
        inside = [item for item in variables_in(node) if item is not node]
        found = {ast.unparse(item): item for item in inside if self._differs(item, spot)}
        return (next(iter(found.values())), spot) if len(found) == 1 else None

    def _differs(self, node: ast.AST, spot: Spot) -> bool:
        made = self.slice.made(node, spot, calls=True)
        pairs = (self.pair(item, place) for item, place in ((node, spot), *made.through, (made.node, made.spot)))
        return any(pair is not None and pair[0] != pair[1] for pair in pairs)


def line_of_call(view: ProcessView, call: Collective) -> FailingLine | None:
    """With the variables of when the call failed, or of when the rank was asked to end while it stood in it.

    None of a call that was neither, and where they are not recorded.
    """
    if view.raised:
        return line_of_end(view) if state_of(view.process, call) == "failed" else None
    line, at = line_of_end(view), place_of(call)
    return line if line is not None and at in line.frames else None


def passed_argument(compared: Compared, names: tuple[str, ...], op: str) -> tuple[ast.expr, Spot] | None:
    """What the program's line passes for a root or a tag: of its only call with that name."""
    spot = compared.spot()
    if spot is None:
        return None
    calls = [
        item
        for item in calls_on(spot.tree, spot.line)
        if (called_name(item) or "").lstrip("i").startswith(op) or called_name(item) in _OBJECTS
    ]
    if len(calls) != 1:
        return None
    (call,) = calls
    given = keyword_value(call, *names)
    if given is not None:
        return given, spot
    third = (called_name(call) or "").startswith(("gather", "scatter"))
    place = 2 if third else _PLACES[names[0]]
    whole = place < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args)
    return (call.args[place], spot) if whole else None


# ---- the way back


def _outer(node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
    """A parameter of a function that is not on the stack, which the file calls once; `parameter["key"]`, `.key`."""
    name = node.value if isinstance(node, (ast.Subscript, ast.Attribute)) else node
    function = spot.scope
    if not isinstance(name, ast.Name) or not isinstance(function, ast.FunctionDef) or function not in spot.tree.body:
        return None
    if spot.depth is not None or spot.call is not None or lines_that_bind(function, name.id):
        return None
    calls = [
        item for item in nodes_of(spot.tree) if isinstance(item, ast.Call) and variable(item.func) == function.name
    ]
    value = argument_of(calls[0], function, name.id) if len(calls) == 1 else None
    if value is None:
        return None
    at = Spot(spot.file, spot.tree, scope_of(spot.tree, calls[0].lineno), calls[0].lineno)
    if isinstance(node, ast.Attribute):
        return ast.fix_missing_locations(ast.copy_location(ast.Attribute(value, node.attr, ast.Load()), value)), at
    if not isinstance(node, ast.Subscript):
        return value, at
    item = ast.copy_location(ast.Subscript(value, node.slice, ast.Load()), value)
    return ast.fix_missing_locations(item), at


def _loop(node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
    """What the loop around goes through that gives a variable."""
    if not isinstance(node, ast.Name):
        return None
    above = [line for line, _ in lines_that_bind(spot.scope, node.id) if line < spot.line]
    for item in own_nodes(spot.scope):
        if not isinstance(item, _LOOPS) or not item.lineno < spot.line <= (item.end_lineno or 0):
            continue
        if item.lineno == max(above, default=None) and variable(item.target) == node.id:
            return item.iter, structs.replace(spot, line=item.lineno)
    return None


def variables_in(node: ast.AST) -> Iterator[ast.AST]:
    """The largest names, attributes and items inside, without what is only called."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        yield node
    children = [*ast.iter_child_nodes(node)]
    if isinstance(node, ast.Call):
        children = [*passed_values(node)]
        children += [node.func.value] if isinstance(node.func, ast.Attribute) else []
    for item in children:
        yield from variables_in(item)


# ---- what sets it


def _set_by_rank(slice_: Slice, node: ast.AST, spot: Spot) -> tuple[ast.stmt, ast.If, Spot] | None:
    """A statement below an `if` on the rank that sets a variable, attribute or item."""
    for statement, place in _writes(slice_, node, spot):
        for item, around in deciding_ifs(place.tree, statement.lineno):
            if around and RANK.search(ast.unparse(item.test)):
                return statement, item, place
    return None


def _is_overwritten(slice_: Slice, node: ast.AST, spot: Spot) -> bool:
    """Whether an item of a dict, or an attribute, may be another than the one that it was made with."""
    held = isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and variable(node) is None)
    return held and any(True for _ in _writes(slice_, node, spot))


def _writes(slice_: Slice, node: ast.AST, spot: Spot) -> Iterator[tuple[ast.stmt, Spot]]:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        made = slice_.made(node.value, spot, calls=True)
        for item, place in ((node.value, spot), *made.through):
            name = variable(item)
            for statement in _statements(place, name) if name is not None else ():
                if _sets_item(statement, name or "", node.slice.value):
                    yield statement, place
        return
    if isinstance(node, ast.Attribute) and variable(node) is None:  # cfg.sync
        made = slice_.made(node.value, spot, calls=True)
        for item, place in ((node.value, spot), *made.through):
            owner = variable(item)
            for statement in _statements(place, owner) if owner is not None else ():
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                if any(_is_attribute(part, owner or "", node.attr) for part in targets):
                    yield statement, place
        return
    name = variable(node)
    for statement in _statements(spot, name) if name is not None else ():
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        local = not (name or "").startswith("self.")
        if any(variable(item) == name for item in targets) and (not local or statement.lineno < spot.line):
            yield statement, spot


def _is_attribute(node: ast.AST, owner: str, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name and variable(node.value) == owner


def _statements(spot: Spot, name: str) -> Iterator[ast.Assign | ast.Expr]:
    for scope in _scopes(spot, name):
        yield from (item for item in own_nodes(scope) if isinstance(item, (ast.Assign, ast.Expr)))


def _scopes(spot: Spot, name: str) -> list[ast.AST]:
    """Where a variable may be set: its function; of an attribute all methods."""
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    if owner is None:
        return [spot.scope]
    return [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _sets_item(statement: ast.stmt, name: str, key: object) -> bool:
    """`name["key"] = ...`, `name.update(key=...)`."""
    if isinstance(statement, ast.Assign):
        return any(
            isinstance(item, ast.Subscript)
            and variable(item.value) == name
            and isinstance(item.slice, ast.Constant)
            and item.slice.value == key
            for item in statement.targets
        )
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "update":
        return False
    tables = [item for item in call.args if isinstance(item, ast.Dict)]
    keys = {part.value for item in tables for part in item.keys if isinstance(part, ast.Constant)}
    named = {item.arg for item in call.keywords}
    return variable(call.func.value) == name and (key in keys or key in named or None in named)


def _own_entry(node: ast.AST, spot: Spot) -> tuple[ast.stmt, str] | None:
    """`self.errors[self.rank] = error`, of what an expression reads, if nothing else fills that variable or gets it."""
    for name in sorted({name for item in variables_in(node) if (name := variable(item)) is not None}):
        scopes = _scopes(spot, name)
        nodes = [item for scope in scopes for item in own_nodes(scope)]
        given = (item for item in nodes if isinstance(item, ast.Call) and called_name(item) not in _READERS)
        if any(variable(part) == name for item in given for part in item.args):
            continue  # of what a function or a collective may have filled
        lines = {line for scope in scopes for line in lines_that_fill(scope, name)}
        for item in (item for item in nodes if isinstance(item, ast.Assign) and lines == {item.lineno}):
            target = item.targets[0]
            own = isinstance(target, ast.Subscript) and variable(target.value) == name
            if own and isinstance(target, ast.Subscript) and _is_rank(target.slice, spot.tree, item.lineno):
                return item, name
    return None


def _is_rank(node: ast.AST, tree: ast.Module, line: int) -> bool:
    """Of its own, not that of a loop over all ranks."""
    name = variable(node)
    if name is None or re.fullmatch(r"(?:self\.)?_?(?:\w+_)?rank", name) is None:
        return False
    return all(value is not None for _, value in lines_that_bind(scope_of(tree, line), name))
