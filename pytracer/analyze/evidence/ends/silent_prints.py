"""A message that a rank printed before it ended itself, and that nobody saw: the program replaces print() there.

`builtins.print = quiet` below `if rank != 0:`, or by a function that prints only where a flag of rank 0 holds.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.processes.made_by_one import rank_of
from pytracer.analyze.evidence.slicing.callers import calls_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank
from pytracer.analyze.evidence.syntax.replaced_attributes import ReplacedAttribute, replaced_attributes
from pytracer.analyze.evidence.syntax.scopes import is_main_part, is_parameter, own_nodes, scope_of
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_OF_PRINT = {"sep", "end", "flush"}
_Function = ast.FunctionDef | ast.Lambda


class _Quiet(msgspec.Struct, frozen=True):
    """`file`, `line`: of the replacement. `test`: where the new function prints, if it does; `force`: its word."""

    file: str
    line: int
    test: ast.expr | None = None
    force: str | None = None


def silent_print(snapshot: Snapshot, frame: PythonFrame, call: ast.Call) -> str | None:
    """Why a call of print() at a frame shows nothing on its rank, and what to do; None where it may have shown."""
    at = failing_line(snapshot, ExceptionReport(type="SystemExit", message=""), [frame])
    if at is None or not isinstance(call.func, ast.Name) or call.func.id != "print" or not call.args:
        return None
    rank = rank_of(at)
    if rank in (None, 0) or any(item.arg not in _OF_PRINT for item in call.keywords) or _is_another(at):
        return None
    found = [item for file, tree in at.files.items() for item in _replaced(at, file, tree)]
    if len(found) != 1:
        return None
    quiet = found[0]
    place = at.in_file(quiet.file, quiet.line)
    by = "one that prints nothing on this rank"
    if quiet.test is not None:
        by = f"one that prints only where `{source(quiet.test)}` holds ({at.in_file(quiet.file, quiet.test.lineno)})"
    out = f"pass {quiet.force}=True there" if quiet.force is not None else "write it to sys.stderr there"
    return (
        f"{capital(at.here(call.lineno))}'s message (`{source(call.args[0])}`) probably does not appear on rank "
        f"{rank}, as {place} replaces print() by {by}: {out}."
    )


def _is_another(at: FailingLine) -> bool:
    """Whether `print` may be something else at the line: its function or its module binds or imports that name."""
    spot = at.slice.spot(0)
    for scope in (spot.scope, spot.tree) if spot is not None else ():
        for item in own_nodes(scope):
            named = isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and item.name == "print"
            stored = isinstance(item, ast.Name) and item.id == "print" and isinstance(item.ctx, ast.Store)
            taken = isinstance(item, ast.alias) and (item.asname or item.name) in ("print", "*")
            if named or stored or taken:
                return True
    return spot is None


def _replaced(at: FailingLine, file: str, tree: ast.Module) -> Iterator[_Quiet]:
    """Each replacement of print(); one that is not known to be quiet on this rank counts for two."""
    for item in replaced_attributes(tree):
        if item.name != "builtins.print":
            continue
        if any(is_for_one_rank(test.test) is True for test, around in deciding_ifs(tree, item.line) if around):
            continue  # the other rank's
        quiet = _quiet(at, file, tree, item)
        yield from [quiet] if quiet is not None else [_Quiet(file, item.line)] * 2


def _quiet(at: FailingLine, file: str, tree: ast.Module, item: ReplacedAttribute) -> _Quiet | None:
    function = _function(tree, item)
    if function is None:
        return None
    if _does_nothing(function):
        around = [test.test for test, holds in deciding_ifs(tree, item.line) if holds]
        spared = len(around) == 1 and is_for_one_rank(around[0]) is False and not _is_of_host(at, around[0])
        return _Quiet(file, item.line) if spared and _is_always_called(at, file, tree, item) else None
    tests = [part for part in own_nodes(function) if isinstance(part, ast.If)]
    if not _is_always_called(at, file, tree, item) or deciding_ifs(tree, item.line):
        return None
    if len(tests) != 1 or any(_prints_outside(part, tests[0]) for part in own_nodes(function)):
        return None
    test = tests[0].test
    ways = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    flags = [way for way in ways if is_for_one_rank(way) is True and _is_so(at, file, tree, item, way)]
    words = dict(_words(function))
    forced = [words.get(way.id) for way in ways if isinstance(way, ast.Name) and way not in flags]
    if len(flags) != 1 or len(forced) + 1 != len(ways) or None in forced:
        return None
    return _Quiet(file, item.line, test, forced[0] if forced else None)


def _function(tree: ast.Module, item: ReplacedAttribute) -> _Function | None:
    if isinstance(item.value, ast.Lambda):
        return item.value
    if not isinstance(item.value, ast.Name):
        return None
    scopes: Sequence[ast.AST] = [scope_of(tree, item.line), tree]
    for scope in scopes:
        found = [
            part
            for part in nodes_of(scope)
            if isinstance(part, ast.FunctionDef) and part.name == item.value.id and part is not scope
        ]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _does_nothing(function: _Function) -> bool:
    if isinstance(function, ast.Lambda):
        return isinstance(function.body, ast.Constant)
    return all(
        isinstance(item, ast.Pass)
        or (isinstance(item, ast.Return) and (item.value is None or isinstance(item.value, ast.Constant)))
        or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
        for item in function.body
    )


def _is_of_host(at: FailingLine, test: ast.expr) -> bool:
    """Whether it asks for the rank on its host, which is 0 here, or is not known."""
    return "local" in ast.unparse(test).lower() and at.snapshot.environment.get("LOCAL_RANK") in (None, "0")


def _is_always_called(at: FailingLine, file: str, tree: ast.Module, item: ReplacedAttribute) -> bool:
    """Whether the function that replaces it is called without a condition; so is the main part of a file."""
    around = scope_of(tree, item.line)
    if not isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    calls = [*calls_of(at.files, file, around)]
    return bool(calls) and not any(
        isinstance(part, ast.If) and any(call.call in nodes_of(inside) for inside in (*part.body, *part.orelse))
        for call in calls
        for part in nodes_of(call.tree)
        if not is_main_part(part)
    )


def _prints_outside(part: ast.AST, test: ast.If) -> bool:
    """A call that stands alone, other than below the condition."""
    return (
        isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Call)
        and not any(part in nodes_of(item) for item in test.body)
    )


def _is_so(at: FailingLine, file: str, tree: ast.Module, item: ReplacedAttribute, flag: ast.expr) -> bool:
    """Of a flag that the function around is given: whether its calls give it that of one rank."""
    around = scope_of(tree, item.line)
    if not isinstance(flag, ast.Name) or not isinstance(around, ast.FunctionDef) or not is_parameter(around, flag.id):
        return True
    given = [found.argument(around, flag.id) for found in calls_of(at.files, file, around)]
    known = [value for value in given if value is not None and is_for_one_rank(value) and not _is_of_host(at, value)]
    return bool(given) and len(known) == len(given)


def _words(function: _Function) -> Iterator[tuple[str, str]]:
    """`force`, of `force = kwargs.pop("force", False)`, and of a parameter with that default."""
    stored = Counter(
        item.id for item in own_nodes(function) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
    )
    for item in own_nodes(function):
        if (
            isinstance(item, ast.Assign)
            and isinstance(item.value, ast.Call)
            and called_name(item.value) in ("pop", "get")
        ):
            key, name = item.value.args[0] if item.value.args else None, item.targets[0]
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(name, ast.Name):
                yield from [(name.id, key.value)] if stored[name.id] == 1 else []
    for part, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if isinstance(default, ast.Constant) and not default.value and not stored[part.arg]:
            yield part.arg, part.arg
