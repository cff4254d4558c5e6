"""A message that a rank printed before it ended itself, and that nobody saw: the program replaces print() there.

`builtins.print = quiet` below `if rank != 0:`, or by a function that prints only where a flag of rank 0 holds.
"""

from __future__ import annotations

import ast
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
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes, scope_of
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
    if rank in (None, 0) or any(item.arg not in _OF_PRINT for item in call.keywords):
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
        f"{capital(at.here(call.lineno))}'s message (`{source(call.args[0])}`) does not appear on rank {rank}, as "
        f"{place} replaces print() by {by}: {out}."
    )


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
        spared = any(_spares_first(test.test) for test, around in deciding_ifs(tree, item.line) if around)
        return _Quiet(file, item.line) if spared else None
    tests = [part for part in own_nodes(function) if isinstance(part, ast.If)]
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


def _spares_first(test: ast.expr) -> bool:
    """`rank != 0`, also with other conditions."""
    ways = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return any(is_for_one_rank(way) is False for way in ways)


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
    return bool(given) and all(value is not None and is_for_one_rank(value) is True for value in given)


def _words(function: _Function) -> Iterator[tuple[str, str]]:
    """`force`, of `force = kwargs.pop("force", False)`, and of a parameter with that default."""
    for item in own_nodes(function):
        if (
            isinstance(item, ast.Assign)
            and isinstance(item.value, ast.Call)
            and called_name(item.value) in ("pop", "get")
        ):
            key = item.value.args[0] if item.value.args else None
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(item.targets[0], ast.Name):
                yield item.targets[0].id, key.value
    for part, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if isinstance(default, ast.Constant) and not default.value:
            yield part.arg, part.arg
