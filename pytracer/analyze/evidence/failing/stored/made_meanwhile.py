"""A folder that was not there when the program asked, and was there when it made it: somebody made it in between.

Or what is there is none: isdir() says so of a file, exists() of a link whose target is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans, spans_body
from pytracer.blackbox.ranks import identity_of

_MAKES = ("makedirs", "mkdir")
_ASKS = ("exists", "isdir", "is_dir")
_TELLS = ("print", "debug", "info", "warning", "warn", "log", "format", "str")


def made_meanwhile(at: FailingLine) -> str | None:
    """`if not os.path.isdir(folder): os.makedirs(folder)`, of several processes or threads."""
    call = at.only(ast.Call)
    if at.kind != "FileExistsError" or call is None or called_name(call) not in _MAKES:
        return None
    path = _path(call)
    if path is None or keyword_value(call, "exist_ok") is not None:
        return None
    asked = next(_asked(at, path), None)
    if asked is None or _is_of_another_round(at, asked):
        return None
    other = _no_folder(at, asked, path)
    if other is not None:
        return other
    between = _between(at, asked, path)
    if at.values.get("file kind") not in (None, "folder") or between is None:
        return None
    by_itself = f", if line {between.lineno} (`{short(source(between))}`) did not" if between is not True else ""
    method = isinstance(call.func, ast.Attribute) and not call.args
    how = f"{path}.mkdir(parents=True, exist_ok=True)" if method else f"os.makedirs({path}, exist_ok=True)"
    return (
        f"`{path}` was not there at line {asked.lineno} (`{short(source(asked))}`), and was at line {at.line}: "
        f"{_others(at)} made it in between{by_itself}. Write `{how}`, which needs no such test."
    )


def _others(at: FailingLine) -> str:
    if at.dataset is not None:
        return "another worker of the DataLoader"
    return "another rank" if _is_one_of_ranks(at) else "another process or thread"


def _is_one_of_ranks(at: FailingLine) -> bool:
    identity = identity_of(at.snapshot.environment)
    return identity is not None and (identity.world_size or 0) > 1


def _asked(at: FailingLine, path: str) -> Iterator[ast.expr]:
    """What was asked about the folder on the way to the line: in an `if`, or `fresh = not exists(folder)` before it."""
    for item, around in deciding_ifs(at.tree, at.line):
        leaves = not around and isinstance(item.body[-1], (ast.Return, ast.Continue))
        if (around and not spans_body(item.body, at.line)) or not (around or leaves):
            continue
        test, known = item.test, item.test
        name = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
        if isinstance(name, ast.Name):
            bound = bound_value(at.scope, name.id, item.lineno)
            if bound is None or not isinstance(bound[1], ast.expr):
                continue
            known = bound[1] if name is test else _opposite(bound[1])
        if _asks(known if around else _opposite(known), path):
            yield known


def _is_of_another_round(at: FailingLine, asked: ast.expr) -> bool:
    """Whether a round of a loop may come to the line without asking."""
    for loop in loops_around(at.tree, at.line):
        skips = (item for item in nodes_of(loop) if isinstance(item, (ast.If, ast.For, ast.While)) and item is not loop)
        if not spans(loop, asked.lineno) or any(
            spans_body([*item.body, *item.orelse], asked.lineno) and not spans(item, at.line) for item in skips
        ):
            return True
    return False


def _opposite(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _no_folder(at: FailingLine, test: ast.expr, path: str) -> str | None:
    """What is there under that name, as it was recorded."""
    asked, name = source(test), at.values.get("file missing part")
    if at.values.get("file kind") == "absent" and name is not None and at.values.get("file like it") == name:
        return (
            f"`{path}` is a link whose target is missing: exists() and isdir() follow it, and line {at.line} cannot "
            "make a folder in its place. Make the folder that it leads to, or remove the link."
        )
    if at.values.get("file size") is not None and "exists" not in asked:
        return (
            f"`{path}` is a file, of which line {test.lineno} (`{short(asked)}`) says that it is no folder: remove or "
            f"rename that file, or choose another name for the folder."
        )
    return None


def _between(at: FailingLine, asked: ast.expr, path: str) -> ast.expr | Literal[True] | None:
    """What was called between the two lines; True: nothing. None where that may have made it, or changed the path.

    Among ranks, a call that is not given the path leaves them the likely ones.
    """
    nodes = [item for item in nodes_of(at.scope) if asked.lineno < getattr(item, "lineno", 0) < at.line]
    calls = [item for item in nodes if isinstance(item, ast.Call) and called_name(item) not in _TELLS]
    stored = {item.id for item in nodes if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}
    given = {item.id for call in calls for item in nodes_of(call) if isinstance(item, ast.Name)}
    if (stored | given).intersection(bare_names(ast.parse(path, mode="eval").body)):
        return None
    if not calls:
        return True
    return calls[0] if _is_one_of_ranks(at) else None


def _path(call: ast.Call) -> str | None:
    """`folder` of `os.makedirs(folder)`, or of `folder.mkdir()`."""
    if call.args:
        return ast.unparse(call.args[0])
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else None


def _asks(test: ast.expr, path: str) -> bool:
    """`not os.path.exists(folder)`, `not folder.is_dir()`."""
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not) or isinstance(test.operand, ast.BoolOp):
        return False
    calls = [item for item in nodes_of(test) if isinstance(item, ast.Call) and called_name(item) in _ASKS]
    return len(calls) == 1 and _path(calls[0]) == path
