"""What one rank alone makes, and is None on the others, used by all of them: a logger, a writer, a progress bar.

`Logger() if rank == 0 else None`, an `if` on the rank around the only line that makes it, or a function that returns it
on one rank; also handed on to the object that keeps it. Only where nothing else of the program can have set it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.known_rank import (
    Place,
    RankTest,
    Setting,
    is_plain,
    passed,
    rank_test,
    returned,
    settings_of,
)
from pytracer.analyze.evidence.failing.processes.made_by_one import rank_of
from pytracer.analyze.evidence.failing.usage.nones import none_node
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.rank_sides import rank_side
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import rank_branch
from pytracer.analyze.evidence.syntax.scopes import definitions, own_nodes, statement_at
from pytracer.blackbox.ranks import identity_of

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEEPEST = 6
# Calls that need no other rank and change nothing: only such a line is to be moved below a test of the rank.
_READS = Pattern(r"state_dict|get_rng_state|dict|list|tuple|str|int|float|len|items|keys|values|copy|deepcopy")
_IN_PLACE = Pattern(r"log|log_\w+|add_\w+|write|writelines|print|info|debug|warning|set_\w+|update|flush|close|finish")
_PLAIN = Pattern(r"item|str|int|float|round|len|format|dict|list|tuple|join|tolist")
_OF_FILES = ("open", "print", "write", "dumps", "dump", "append", "flush")
_NEEDS_ALL = Pattern(
    r"FSDP|FullyShardedDataParallel|fully_shard|DTensor|distribute_\w+|deepspeed|ZeroRedundancy|tensor\.parallel"
)


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
    if _is_note(at, node):
        return f"{text}Use it on {owner} only, or test `{name} is not None` before {at.here(at.line)}."
    return (
        f"{text}If the other ranks need it, make it on all of them, or send it from {owner} with "
        f"broadcast_object_list() where it is plain data."
    )


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
    if any(_is_below_test(at, depth) for depth in range(len(at.frames))):
        return None
    maker = _maker(at, node, Place(file, at.tree, at.scope), _DEEPEST)
    return (node, maker) if maker is not None and _is_other(at, maker) else None


def _is_below_test(at: FailingLine, depth: int) -> bool:
    """Whether a line of the stack itself stands below a test of the rank: then that is another rank than it seems."""
    spot = at.slice.spot(depth)
    if spot is None or spot.file is None or spot.file not in at.files:
        return True
    side = rank_side(at.files, spot.file, spot.line, 0)
    return side is not None or rank_branch(spot.tree, spot.line) is not None


def _is_other(at: FailingLine, maker: _Maker) -> bool:
    """Whether this process is known to be another rank."""
    if not maker.local:
        return rank_of(at) not in (None, maker.number)
    identity = identity_of(at.snapshot.environment)
    return identity is not None and identity.local_rank not in (None, maker.number)


def _maker(at: FailingLine, node: ast.AST, place: Place, depth: int) -> _Maker | None:
    """None unless all that the program has for the value is None on the ranks but one."""
    if not depth:
        return None
    if isinstance(node, ast.IfExp):
        return _of_choice(at, node, place)
    if isinstance(node, ast.Call):
        return _of_function(at, node, place)
    settings = settings_of(at.files, node, place)
    if settings is None or not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    if isinstance(node, ast.Name) and not settings:
        given = passed(at.files, node.id, place)
        value = given[0].value if given is not None else None
        found = _maker(at, value, given[0].place, depth - 1) if given is not None and value is not None else None
        if found is None or given is None:
            return None
        return msgspec.structs.replace(found, way=(*found.way, (given[0].place.file, given[1])))
    if len(settings) == 1:
        only = settings[0]
        return _maker(at, only.value, only.place, depth - 1) if only.value is not None else None
    return _of_branch(at, node, place, settings)


def _of_branch(at: FailingLine, node: ast.Name | ast.Attribute, place: Place, settings: list[Setting]) -> _Maker | None:
    """One line below an `if` on the rank makes it; others set None before that, or on its other way."""
    makes = [item for item in settings if not is_none(item.value)]
    home = makes[0].place if len(makes) == 1 else None
    if home is None or any(item.place.scope is not home.scope for item in settings):
        return None
    body = home.scope.body if isinstance(home.scope, (*_FUNCTIONS, ast.Module)) else []
    branch = next((item for item in body if isinstance(item, ast.If) and _has(item, makes[0].line)), None)
    if branch is None or not _is_past(at, node, place, home, branch):
        return None
    below = _is_in(branch.body, makes[0].line)
    other = branch.orelse if below else branch.body
    before = body[: body.index(branch)]
    if not all(_is_in(before, item.line) or _is_in(other, item.line) for item in settings if is_none(item.value)):
        return None
    test = rank_test(at.files, branch.test, home)
    return _as_maker(home.file, makes[0].line, branch.test, test, direct=below) if _is_one(test, below) else None


def _has(branch: ast.If, line: int) -> bool:
    return _is_in(branch.body, line) or _is_in(branch.orelse, line)


def _is_in(body: list[ast.stmt], line: int) -> bool:
    """Whether one of the statements sets something at a line, below no other test."""
    return any(isinstance(item, (ast.Assign, ast.AnnAssign)) and item.lineno == line for item in body)


def _is_past(at: FailingLine, node: ast.Name | ast.Attribute, place: Place, home: Place, branch: ast.If) -> bool:
    """Whether the `if` has run where the value is read."""
    if isinstance(node, ast.Name):
        return place.scope is home.scope and node.lineno > (branch.end_lineno or 0)
    on_stack = [item.scope for depth in range(len(at.frames)) if (item := at.slice.spot(depth)) is not None]
    leaves = any(isinstance(item, ast.Return) for item in own_nodes(home.scope))
    return getattr(home.scope, "name", None) == "__init__" and not leaves and home.scope not in on_stack


def _is_one(test: RankTest | None, below: bool) -> bool:
    return test is not None and test.one is below


def _as_maker(file: str, line: int, written: ast.expr, test: RankTest | None, *, direct: bool) -> _Maker | None:
    return _Maker(file, line, written, direct, test.number, test.local) if test is not None else None


def _of_choice(at: FailingLine, node: ast.IfExp, place: Place) -> _Maker | None:
    """`Logger() if rank == 0 else None`."""
    below = is_none(node.orelse)
    test = rank_test(at.files, node.test, place)
    if below == is_none(node.body) or not _is_one(test, below):
        return None
    return _as_maker(place.file, node.lineno, node.test, test, direct=below)


def _of_function(at: FailingLine, call: ast.Call, place: Place) -> _Maker | None:
    """What the only function of that name returns on one rank, and None, or nothing, on the others."""
    whole = returned(at.files, call, place)
    if len(whole) == 1 and isinstance(whole[0].value, ast.IfExp):
        return _of_choice(at, whole[0].value, whole[0].place)
    own = called_function(at.files, place.tree, call)
    if own is None or not is_plain(own[1]):
        return None
    file, function = own
    inner = Place(file, at.files[file], function)
    returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
    values = [item for item in returns if item.value is not None and not is_none(item.value)]
    branches = [item for item in function.body if isinstance(item, ast.If)]
    if len(values) != 1 or len(branches) != 1 or branches[0].orelse:
        return None
    branch, value = branches[0], values[0]
    test = rank_test(at.files, branch.test, inner)
    if value in branch.body:
        known = _is_one(test, below=True)
    else:
        known = _is_one(test, below=False) and isinstance(branch.body[-1], ast.Return) and value in function.body
    return _as_maker(file, value.lineno, branch.test, test, direct=value in branch.body) if known else None


def _is_note(at: FailingLine, node: ast.expr) -> bool:
    """Whether the line only notes something down, by a call that may be left out: it needs no other rank."""
    call = at.statement.value if isinstance(at.statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.value is not node:
        return False
    given = [*call.args, *(item.value for item in call.keywords)]
    inner = [item for part in given for item in nodes_of(part)]
    if any(isinstance(item, (ast.Await, ast.Yield, ast.NamedExpr)) for item in inner):
        return False
    names = [called_name(item) or "" for item in inner if isinstance(item, ast.Call)]
    own = any(_named(at, item) for item in names)
    plain = not own and all(_PLAIN.fullmatch(item) for item in names)
    return plain and _IN_PLACE.fullmatch(call.func.attr) is not None and _is_alone(at, call.func.attr)


def _is_alone(at: FailingLine, name: str) -> bool:
    """Whether no method of that name in the program may need the other ranks: it calls none but what only reads."""
    named = _named(at, name)
    calls = {called_name(call) or "" for item in named for call in nodes_of(item) if isinstance(call, ast.Call)}
    return all(_PLAIN.fullmatch(item) or item in _OF_FILES for item in calls)


def _movable(at: FailingLine, maker: _Maker) -> tuple[str | None, ast.If, int] | None:
    """A line of the stack whose value is read only below the `if` on that rank that follows it, and that only reads."""
    if maker.local or any(_NEEDS_ALL.search(ast.unparse(tree)) for tree in at.files.values()):
        return None
    for depth, frame in enumerate(at.frames):
        spot = at.slice.spot(depth)
        statement = statement_at(spot.tree, spot.line) if spot is not None else None
        if spot is None or spot.file is None or statement is None:
            return None
        branch = _only_reader(spot.scope, statement) if isinstance(spot.scope, _FUNCTIONS) else None
        if branch is not None:
            test = rank_test(at.files, branch.test, Place(spot.file, spot.tree, spot.scope))
            same = test is not None and test.one and not test.local and test.number == maker.number
            return (frame.file, branch, statement.lineno) if same and _only_reads(at, statement) else None
    return None


def _only_reads(at: FailingLine, statement: ast.stmt) -> bool:
    """Whether all that a statement reaches are calls that read, and functions of the program made of such."""
    waiting: list[ast.AST] = [statement]
    seen: set[str] = set()
    while waiting:
        for item in nodes_of(waiting.pop()):
            if _changes(item) or (isinstance(item, ast.Attribute) and not all(map(is_plain, _named(at, item.attr)))):
                return False  # a property is one, too
            name = (called_name(item) or "") if isinstance(item, ast.Call) else None
            if name is None or name in seen:
                continue
            seen.add(name)
            own = _named(at, name)
            if not all(is_plain(one) for one in own) or not (own or _READS.fullmatch(name)):
                return False
            waiting += own
    return True


def _named(at: FailingLine, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    return [item for tree in at.files.values() for item in definitions(tree).get(name, ())]


def _changes(node: ast.AST) -> bool:
    """Whether it may change more than a variable of the function."""
    kinds = (ast.Await, ast.NamedExpr, ast.Global, ast.Nonlocal, ast.Delete, ast.With, ast.AsyncWith, ast.Lambda)
    stored = isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
    return stored or isinstance(node, kinds)


def _only_reader(scope: ast.FunctionDef | ast.AsyncFunctionDef, statement: ast.stmt) -> ast.If | None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(target, ast.Name):
        return None
    branch = next((after for item, after in _pairs(scope) if item is statement), None)
    if not isinstance(branch, ast.If) or branch.orelse:
        return None
    named = [item for item in nodes_of(scope) if isinstance(item, ast.Name) and item.id == target.id]
    below = {id(item) for part in branch.body for item in nodes_of(part)}
    shared = any(isinstance(item, (ast.Global, ast.Nonlocal)) for item in nodes_of(scope))
    return branch if not shared and all(item is target or id(item) in below for item in named) else None


def _pairs(scope: ast.AST) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Statements of a block that follow one another."""
    for item in (scope, *own_nodes(scope)):
        body = getattr(item, "body", None)
        for block in (body, getattr(item, "orelse", None)):
            if isinstance(block, list):
                yield from pairwise(block)
