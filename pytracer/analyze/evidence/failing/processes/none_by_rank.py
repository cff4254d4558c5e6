"""What one rank alone makes, and is None on the others, used by all of them: a logger, a writer, a progress bar.

`Logger() if rank == 0 else None`, an `if` on the rank around the only line that makes it, or a function that returns it
on one rank; also handed on to the object that keeps it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.made_by_one import rank_of
from pytracer.analyze.evidence.failing.usage.nones import none_node
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.callers import only_function
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.rank_sides import asked_rank, rank_side
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank, one_rank_number
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    is_parameter,
    own_nodes,
    scope_of,
    statement_at,
)
from pytracer.blackbox.ranks import identity_of

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEEPEST = 6
# What needs all ranks: such a line is not to be moved below a test of the rank.
_OF_ALL = Pattern(r"gather|reduce|broadcast|barrier|scatter|all_to_all|get_\w*state_dict|backward|sync")
_SHARDED = Pattern(r"FSDP|FullyShardedDataParallel|fully_shard|DTensor|distribute_\w+|deepspeed")


class _Place(msgspec.Struct, frozen=True):
    file: str
    tree: ast.Module
    scope: Scope


class _Maker(msgspec.Struct, frozen=True):
    """`line` of `file` makes it only where `test` lets one rank come, `number`. `way`: calls that hand it on."""

    file: str
    line: int
    test: ast.expr
    direct: bool
    number: int
    local: bool
    way: tuple[tuple[str, ast.Call], ...] = ()


def none_by_rank(at: FailingLine) -> str | None:
    """What to do about it."""
    found = _found(at)
    if found is None:
        return None
    node, maker = found
    name, made = source(node), _made(at, maker)
    text = f"`{name}` is None here: {made}{_handed(at, maker)}. "
    moved = _movable(at, maker)
    if moved is not None:
        file, test, line = moved
        return (
            f"{text}All ranks come here by {at.in_file(file, line)}: move that below "
            f"`if {source(test.test)}` ({at.in_file(file, test.lineno)}), or test `{name} is not None` at "
            f"{at.here(at.line)}."
        )
    owner = f"{'local ' if maker.local else ''}rank {maker.number}"
    return f"{text}Use it on {owner} only, or test `{name} is not None` before {at.here(at.line)}."


def _handed(at: FailingLine, maker: _Maker) -> str:
    """``; line 69 passes it to State()``."""
    passes = [f"{at.in_file(file, call.lineno)} passes it to {source(call.func)}()" for file, call in maker.way[:2]]
    return "".join(f"; {item}" for item in passes)


def by_rank_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    if found is None:
        return None
    node, maker = found
    ranks = "local ranks" if maker.local else "ranks"
    return f"`{source(node)}` is None on {ranks} other than {maker.number}: {_made(at, maker)}"


def _made(at: FailingLine, maker: _Maker) -> str:
    place = at.in_file(maker.file, maker.line)
    if maker.direct:
        return f"{place} makes it only `if {source(maker.test)}`"
    rank = f"{'local ' if maker.local else ''}rank {maker.number}"
    return f"{place} makes it on {rank} only (`if {source(maker.test)}` leaves out the others)"


def _found(at: FailingLine) -> tuple[ast.expr, _Maker] | None:
    node = none_node(at) if at.kind in ("AttributeError", "TypeError") and at.own else None
    file = at.frame.file
    if not isinstance(node, (ast.Name, ast.Attribute)) or file is None or file not in at.files:
        return None
    maker = _maker(at, node, _Place(file, at.tree, at.scope), _DEEPEST)
    return (node, maker) if maker is not None and _is_other(at, maker) else None


def _is_other(at: FailingLine, maker: _Maker) -> bool:
    """Whether this process is known to be another rank."""
    if not maker.local:
        return rank_of(at) not in (None, maker.number)
    identity = identity_of(at.snapshot.environment)
    return identity is not None and identity.local_rank not in (None, maker.number)


def _maker(at: FailingLine, node: ast.AST, place: _Place, depth: int) -> _Maker | None:
    """None unless all that the program has for the value is None on the ranks but one."""
    if not depth:
        return None
    if isinstance(node, ast.IfExp):
        return _of_choice(at, node, place)
    if isinstance(node, ast.Call):
        return _of_function(at, node)
    if isinstance(node, ast.Attribute):
        settings = _settings(at, node, place)
        return _of_lines(at, settings, depth) if settings is not None else None
    if not isinstance(node, ast.Name):
        return None
    if is_parameter(place.scope, node.id) and not [*bindings_of(place.scope, node.id)]:
        return _of_parameter(at, node.id, place, depth)
    own = [*_bound(place, place.scope, node.id)]
    if not own:
        scopes = [item for item in nodes_of(place.tree) if isinstance(item, _FUNCTIONS) and _is_global(item, node.id)]
        own = [item for scope in (place.tree, *scopes) for item in _bound(place, scope, node.id)]
    return _of_lines(at, own, depth)


_Lines = list[tuple[_Place, int, ast.expr | None]]


def _bound(place: _Place, scope: Scope, name: str) -> Iterator[tuple[_Place, int, ast.expr | None]]:
    for line, value, index in bindings_of(scope, name):
        if index is not None:
            whole = isinstance(value, (ast.Tuple, ast.List)) and index < len(value.elts)
            value = value.elts[index] if whole and isinstance(value, (ast.Tuple, ast.List)) else None
        yield _Place(place.file, place.tree, scope), line, value if isinstance(value, ast.expr) else None


def _is_global(scope: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    return any(isinstance(item, ast.Global) and name in item.names for item in own_nodes(scope))


def _settings(at: FailingLine, node: ast.Attribute, place: _Place) -> _Lines | None:
    """Lines that set the attribute: of the class around, else of the only one that has it; None where others do."""
    if any(_sets_outside(item, node.attr) for tree in at.files.values() for item in nodes_of(tree)):
        return None
    around = class_around(place.tree, place.scope) if variable(node) is not None else None
    own = [*_of_class(place.file, place.tree, around, node.attr)] if around is not None else []
    if own:
        return own
    found = [
        lines
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.ClassDef) and (lines := [*_of_class(file, tree, item, node.attr)])
    ]
    return found[0] if len(found) == 1 else None


def _sets_outside(node: ast.AST, name: str) -> bool:
    """`state.logger = ...`, from outside of the class."""
    if not isinstance(node, ast.Attribute) or node.attr != name or not isinstance(node.ctx, ast.Store):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == "self")


def _of_class(
    file: str, tree: ast.Module, owner: ast.ClassDef, name: str
) -> Iterator[tuple[_Place, int, ast.expr | None]]:
    for part in owner.body:
        if isinstance(part, _FUNCTIONS):
            yield from _bound(_Place(file, tree, part), part, f"self.{name}")
        elif isinstance(part, (ast.Assign, ast.AnnAssign)) and part.value is not None:
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if any(variable(target) == name for target in targets):
                yield _Place(file, tree, tree), part.lineno, part.value


def _of_lines(at: FailingLine, lines: _Lines, depth: int) -> _Maker | None:
    """One line that makes it, and at most others that set None before: those that end it leave nothing known."""
    nothing = [item for item in lines if is_none(item[2])]
    makes = [item for item in lines if not is_none(item[2])]
    if len(makes) != 1 or any(getattr(place.scope, "name", "__init__") != "__init__" for place, _, _ in nothing):
        same = len(makes) == 1 and all(place.scope is makes[0][0].scope for place, _, _ in nothing)
        if not same:
            return None
    place, line, value = makes[0]
    side = rank_side(at.files, place.file, line) if nothing else None
    if side is not None and not side.but and all(_is_first(side.branch, item, place) for item in nothing):
        number = side.number if side.number is not None else _local(side.branch.test)
        return (
            _Maker(place.file, line, side.branch.test, side.below, number, side.number is None)
            if number is not None
            else None
        )
    return _maker(at, value, place, depth - 1) if value is not None and not nothing else None


def _is_first(branch: ast.If, item: tuple[_Place, int, ast.expr | None], place: _Place) -> bool:
    """Whether a line sets None before the `if`, or on its other way; in another function, that ran before."""
    return item[0].scope is not place.scope or item[1] <= (branch.end_lineno or 0)


def _of_choice(at: FailingLine, node: ast.IfExp, place: _Place) -> _Maker | None:
    """`Logger() if rank == 0 else None`."""
    on_true = is_none(node.body)
    test = asked_rank(at.files, place.tree, node.test, node.lineno)
    one = is_for_one_rank(test)
    if on_true == is_none(node.orelse) or one is None or one is on_true:
        return None
    number = one_rank_number(test)
    local = number is None
    known = _local(test) if number is None else number
    return _Maker(place.file, node.lineno, node.test, not on_true, known, local) if known is not None else None


def _local(test: ast.expr) -> int | None:
    """0 of `local_rank == 0`."""
    numbers = {item.value for item in nodes_of(test) if isinstance(item, ast.Constant) and type(item.value) is int}
    return next(iter(numbers)) if len(numbers) == 1 else None if numbers else 0


def _of_parameter(at: FailingLine, name: str, place: _Place, depth: int) -> _Maker | None:
    """What the only call of the function, or of its class, passes."""
    scope = place.scope
    if not isinstance(scope, _FUNCTIONS):
        return None
    owner = class_around(place.tree, scope)
    called = owner.name if owner is not None and scope.name == "__init__" else scope.name
    calls = [
        (file, tree, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == called
    ]
    if len(calls) != 1:
        return None
    file, tree, call = calls[0]
    value = argument_of(call, scope, name)
    outer = _Place(file, tree, scope_of(tree, call.lineno))
    found = _maker(at, value, outer, depth - 1) if value is not None else None
    return msgspec.structs.replace(found, way=(*found.way, (file, call))) if found is not None else None


def _of_function(at: FailingLine, call: ast.Call) -> _Maker | None:
    """What the only function of that name returns on one rank, and None, or nothing, on the others."""
    own = only_function(at.files, called_name(call) or "")
    if own is None:
        return None
    file, function = own
    place = _Place(file, at.files[file], function)
    returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
    values = [item for item in returns if item.value is not None and not is_none(item.value)]
    if len(values) != 1:
        return None
    if len(returns) == 1 and isinstance(values[0].value, ast.IfExp):
        return _of_choice(at, values[0].value, place)
    side = rank_side(at.files, file, values[0].lineno, 0)
    if side is None or side.but:
        return None
    number = side.number if side.number is not None else _local(side.branch.test)
    if number is None:
        return None
    return _Maker(file, values[0].lineno, side.branch.test, side.below, number, side.number is None)


def _movable(at: FailingLine, maker: _Maker) -> tuple[str | None, ast.If, int] | None:
    """A line of the stack whose result is read only below an `if` on that rank, which comes after it."""
    if any(_SHARDED.search(ast.unparse(tree)) for tree in at.files.values()):
        return None
    for depth, frame in enumerate(at.frames):
        spot = at.slice.spot(depth)
        statement = statement_at(spot.tree, spot.line) if spot is not None else None
        if spot is None or statement is None:
            return None
        branch = _only_reader(spot.scope, statement, maker.number)
        inner = [item.scope for n in range(depth) if (item := at.slice.spot(n)) is not None]
        if branch is not None and spot.file is not None:
            if spot.file not in at.files or rank_side(at.files, spot.file, statement.lineno) is not None:
                return None
            needs_all = any(_needs_all(item) for item in (statement, *inner))
            return None if needs_all else (frame.file, branch, statement.lineno)
    return None


def _needs_all(around: ast.AST) -> bool:
    return any(isinstance(item, ast.Call) and _OF_ALL.search(called_name(item) or "") for item in nodes_of(around))


def _only_reader(scope: Scope, statement: ast.stmt, number: int) -> ast.If | None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(target, ast.Name):
        return None
    reads = [
        item.lineno
        for item in own_nodes(scope)
        if isinstance(item, ast.Name) and item.id == target.id and isinstance(item.ctx, ast.Load)
    ]
    for item in own_nodes(scope):
        if not isinstance(item, ast.If) or item.orelse or item.lineno <= statement.lineno or not reads:
            continue
        inside = all(item.lineno < line <= (item.end_lineno or 0) for line in reads)
        if inside and is_for_one_rank(item.test) and one_rank_number(item.test) == number:
            return item
    return None
