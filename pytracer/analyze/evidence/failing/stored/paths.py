"""Paths as the program's source makes them: two expressions that can only name one file have the same parts."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import class_around

_SAME = frozenset({"str", "fspath", "abspath", "expanduser", "realpath", "normpath", "resolve"})
PATH_CALLS = frozenset({*_SAME, "join", "joinpath", "Path", "PurePath", "dirname"})
_DEEPEST = 12
_OTHER = 1000  # apart from what another method sets


def path_parts(slice_: Slice, node: ast.AST, spot: Spot) -> tuple[str, ...]:
    """What lies between the slashes; of what the source does not show, the expression and where it is from."""
    return tuple(part for part in _text(slice_, node, spot, _DEEPEST).split("/") if part not in ("", "."))


def _text(slice_: Slice, node: ast.AST, spot: Spot, depth: int) -> str:
    made = slice_.made(node, spot, calls=False)
    node, spot = made.node, made.spot
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    told = _joined(slice_, node, spot, depth - 1) if depth else None
    return told if told is not None else _unknown(node, spot)


def _joined(slice_: Slice, node: ast.AST, spot: Spot, depth: int) -> str | None:
    if isinstance(node, ast.JoinedStr):
        plain = [item.value if _is_plain(item) else item for item in node.values]  # type: ignore[attr-defined]
        return "".join(_text(slice_, item, spot, depth) for item in plain)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        between = "/" if isinstance(node.op, ast.Div) else ""
        return between.join(_text(slice_, item, spot, depth) for item in (node.left, node.right))
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        return _above(_text(slice_, node.value, spot, depth))
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    name = called_name(node)
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    of_module = owner is None or (isinstance(owner, (ast.Name, ast.Attribute)) and ast.unparse(owner) in _MODULES)
    given = node.args if of_module or owner is None else [owner, *node.args]
    if any(isinstance(item, ast.Starred) for item in given):
        return None
    texts = [_text(slice_, item, spot, depth) for item in given]
    if name in ("join", "joinpath", "Path", "PurePath") or (name in _SAME and len(texts) == 1):
        return "/".join(texts) if name != "join" or of_module else None
    return _above(texts[0]) if name == "dirname" and len(texts) == 1 else None


_MODULES = ("os", "os.path", "path", "pathlib", "osp")


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.FormattedValue) and node.format_spec is None and node.conversion == -1


def _above(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]


def _unknown(node: ast.AST, spot: Spot) -> str:
    """A variable counts as another one when a line has bound it anew."""
    text = ast.unparse(node).replace("/", "|")
    owner: ast.AST = spot.scope
    if text.startswith("self."):
        owner = class_around(spot.tree, spot.scope) or owner
    number = getattr(node, "lineno", 0)
    if isinstance(node, (ast.Name, ast.Attribute)):
        number = _times_bound(text, spot, owner)
    return f"{{{text} {number} {id(owner)}}}"


def _times_bound(text: str, spot: Spot, owner: ast.AST) -> int:
    """By the lines above; of an attribute that one other method alone sets anew, by those of that method."""
    here = sum(line < spot.line for line, _, _ in bindings_of(spot.scope, text))
    own = getattr(spot.scope, "name", "")
    if not isinstance(owner, ast.ClassDef) or own == "__init__":
        return here
    methods = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    counts = {item.name: len([*bindings_of(item, text)]) for item in methods if item.name != "__init__"}
    setters = [name for name, count in counts.items() if count]
    if own in setters:
        return here + _OTHER * setters.index(own)
    return counts[setters[0]] if len(setters) == 1 else 0
