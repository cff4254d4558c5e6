"""The call by which a line of Python ends its process, what was printed just before, and the handlers that it passes.

SystemExit is no Exception (CPython, Objects/exceptions.c), so `except Exception` around the call does not catch it;
os._exit() raises nothing at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital, shortened
from pytracer.analyze.evidence.ends.silent_prints import silent_print
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body, statement_at
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_EXITS = ("exit", "quit", "_exit", "abort", "SystemExit")
_SAYS = ("print", "error", "exception", "critical", "fatal", "warning", "echo")
_QUIET = ("info", "debug")  # logging shows neither without a level that the program sets
_CATCH_ALL = ("BaseException", "SystemExit")
_LONGEST = 60


class PassedHandler(msgspec.Struct, frozen=True):
    """`except Exception` around the call, which does not catch it."""

    file: str | None
    line: int
    text: str


def exit_call(snapshot: Snapshot, at: PythonFrame | None) -> str | None:
    """`sys.exit(1)`, where the line has one such call."""
    tree = syntax_tree(snapshot, at)
    statement = statement_at(tree, at.line) if tree is not None and at is not None and at.line is not None else None
    calls = [item for item in nodes_of(statement) if isinstance(item, ast.Call)] if statement is not None else []
    found = [item for item in calls if called_name(item) in _EXITS]
    return shortened(ast.unparse(found[0]), _LONGEST) if len(found) == 1 else None


def printed_before(snapshot: Snapshot, at: PythonFrame) -> str | None:
    """`` Line 20 printed or logged `f'...'` just before: look for that in the output, it may name the input. ``"""
    call = _call_before(snapshot, at)
    if call is None or called_name(call) not in _SAYS or not call.args:
        return None
    silent = silent_print(snapshot, at, call)
    if silent is not None:
        return silent
    said = shortened(ast.unparse(call.args[0]), _LONGEST)
    place = line_in(at.file, call.lineno, at.file)
    return f"{capital(place)} printed or logged `{said}` just before: look for that in the job's output."


def printed_in_vain(snapshot: Snapshot, at: PythonFrame) -> str | None:
    """The same, only where that does not appear in the output."""
    call = _call_before(snapshot, at)
    return silent_print(snapshot, at, call) if call is not None else None


def may_have_printed(snapshot: Snapshot, at: PythonFrame) -> bool:
    """Whether a call just before may have printed why: one of a function of the program's, or a method of its object.

    A method of another object, such as `results.put(x)` or `log.info(x)`, is no sign of that.
    """
    call = _call_before(snapshot, at)
    if call is None:
        return False
    own = isinstance(call.func, ast.Name) or (variable(call.func) or "").startswith("self.")
    return own and called_name(call) not in _QUIET


def passed_handler(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> PassedHandler | None:
    """The innermost `except Exception` around the lines of a stack; None where another one may catch SystemExit.

    Of a handler for some errors only nobody expects that.
    """
    found: list[PassedHandler] = []
    for frame in stack:
        tree = syntax_tree(snapshot, frame) if not is_library_file(frame.file) else None
        for handler in _handlers_around(tree, frame.line) if tree is not None and frame.line is not None else ():
            kinds = {*_kinds(handler)}
            if not kinds or kinds & {*_CATCH_ALL}:
                return None
            if "Exception" in kinds and handler.type is not None:
                found.append(PassedHandler(frame.file, handler.lineno, f"except {ast.unparse(handler.type)}"))
    return found[0] if found else None


def _handlers_around(tree: ast.Module, line: int) -> Iterator[ast.ExceptHandler]:
    """Of the `try` statements whose body has the line."""
    for item in own_nodes(scope_of(tree, line)):
        if isinstance(item, ast.Try) and spans_body(item.body, line):
            yield from item.handlers


def _kinds(handler: ast.ExceptHandler) -> Iterator[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    yield from (ast.unparse(item).rpartition(".")[2] for item in kinds if item is not None)


def _call_before(snapshot: Snapshot, at: PythonFrame) -> ast.Call | None:
    """Of the statement before the line, in its block."""
    tree = syntax_tree(snapshot, at)
    if tree is None or at.line is None:
        return None
    scope = scope_of(tree, at.line)
    inner = statement_at(tree, at.line)
    bodies = [body for item in [scope, *own_nodes(scope)] for body in _bodies(item) if inner in body]
    before = [item for item in bodies[0] if item.lineno < at.line] if len(bodies) == 1 else []
    call = before[-1].value if before and isinstance(before[-1], ast.Expr) else None
    return call if isinstance(call, ast.Call) else None


def _bodies(item: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements of a statement or function."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(item, name, None)
        if isinstance(block, list):
            yield block
