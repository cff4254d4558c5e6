"""A name with a slash in it that is put into a path, where it makes a folder: `f"{run}.pt"` of 'org/model'."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_MOST_LOADED = 6
_TEXT = Pattern(r"str of (\d+)$")
_EMPTY_FIELD = Pattern(r"\{(?::[^{}]*)?\}")
_FIELD = Pattern(r"%(?:\.?\d+)*[sdifgr]")


def with_slash(at: FailingLine, path: str, folder: str, part: str) -> tuple[str, str] | None:
    """The variable, and what it was: of `f"{out}/run_{name}.pt"` what lies behind `/run_`, where that is there once."""
    missing, texts = os.path.join(folder, part), _joined_texts(at)
    for text in texts:
        constants = [
            n for n, item in enumerate(text.values) if isinstance(item, ast.Constant) and "/" in str(item.value)
        ]
        rest = text.values[constants[-1] + 1 :] if constants else []
        names = [item.value for item in rest if isinstance(item, ast.FormattedValue)]
        before = str(ast.literal_eval(text.values[constants[-1]])) if constants else ""
        if len(names) != 1 or path.count(before) != 1 or not any(char.isalnum() for char in before):
            continue
        ends = "".join(str(item.value) for item in rest if isinstance(item, ast.Constant))
        start = path.index(before) + len(before)
        found = path[start:].removesuffix(ends)
        if not path.endswith(ends) or "/" not in found.strip("/") or found.startswith("/"):
            continue
        if path.startswith(missing) and len(folder) < start <= len(missing):
            return source(names[0]), found
    return _by_length(at, texts, path, folder)


def _by_length(at: FailingLine, texts: Sequence[ast.JoinedStr], path: str, folder: str) -> tuple[str, str] | None:
    """Of a text that begins with a variable: by how long that was, from the folder on that is there."""
    rest = path[len(folder) :].lstrip("/")
    for text in texts:
        first, after = (*text.values, None, None)[:2]
        if not isinstance(first, ast.FormattedValue):
            continue
        length = _TEXT.match(at.value(first.value) or "")
        found = rest[: int(length[1])] if length is not None else ""
        follows = str(after.value) if isinstance(after, ast.Constant) else ""
        if "/" in found.strip("/") and rest[len(found) :].startswith(follows):
            return source(first.value), found
    return None


def _joined_texts(at: FailingLine) -> list[ast.JoinedStr]:
    """Of the line, and what made its variables."""
    node, found = at.node, list[ast.JoinedStr]()
    for item in nodes_of(node) if node is not None else ():
        made = None
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load) and len(found) < _MOST_LOADED:
            made = at.made(item)
        joined = _joined(made.node if made is not None else item)
        found += [joined] if joined is not None else []
    return found


def _joined(node: ast.AST) -> ast.JoinedStr | None:
    """An f-string; also `"%s_%d.pt" % (name, epoch)` and `"{}_{}.pt".format(name, epoch)`, as one."""
    if isinstance(node, ast.JoinedStr):
        return node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text, values = node.left, node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        field = _FIELD
    elif isinstance(node, ast.Call) and called_name(node) == "format" and isinstance(node.func, ast.Attribute):
        text, values, field = node.func.value, node.args, _EMPTY_FIELD
    else:
        return None
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return None
    parts = field.split(text.value)
    if len(parts) != len(values) + 1 or any(isinstance(item, ast.Starred) for item in values):
        return None
    filled: list[ast.expr] = []
    for number, part in enumerate(parts):
        filled += [ast.Constant(part)] if part else []
        filled += [ast.FormattedValue(values[number], -1)] if number < len(values) else []
    return ast.JoinedStr(filled)
