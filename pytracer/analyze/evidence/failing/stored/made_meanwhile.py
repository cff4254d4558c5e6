"""A folder that was not there when the program asked, and was there when it made it: somebody made it in between.

Or what is there is none: isdir() says so of a file, exists() of a link whose target is missing.
"""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of

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
    test = next(
        (item.test for item, around in deciding_ifs(at.tree, at.line) if around and _asks(item.test, path)), None
    )
    if test is None:
        return None
    other = _no_folder(at, test, path)
    if other is not None:
        return other
    if at.values.get("file kind") not in (None, "folder") or _goes_on(at, test):
        return None
    others = "another worker of the DataLoader" if at.dataset is not None else "another process or thread"
    method = isinstance(call.func, ast.Attribute) and not call.args
    how = f"{path}.mkdir(parents=True, exist_ok=True)" if method else f"os.makedirs({path}, exist_ok=True)"
    return (
        f"`{path}` was not there at line {test.lineno} (`{short(source(test))}`), and was at line {at.line}: {others} "
        f"made it in between. Write `{how}`, which needs no such test."
    )


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


def _goes_on(at: FailingLine, test: ast.expr) -> bool:
    """Whether anything between the two lines may have made it, or changed the path."""
    between = [item for item in nodes_of(at.scope) if test.lineno < getattr(item, "lineno", 0) < at.line]
    calls = [item for item in between if isinstance(item, ast.Call) and called_name(item) not in _TELLS]
    return bool(calls) or any(isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store) for item in between)


def _path(call: ast.Call) -> str | None:
    """`folder` of `os.makedirs(folder)`, or of `folder.mkdir()`."""
    if call.args:
        return ast.unparse(call.args[0])
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else None


def _asks(test: ast.expr, path: str) -> bool:
    """`not os.path.exists(folder)`, `not folder.is_dir()`."""
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not):
        return False
    calls = [item for item in nodes_of(test) if isinstance(item, ast.Call) and called_name(item) in _ASKS]
    return len(calls) == 1 and _path(calls[0]) == path
