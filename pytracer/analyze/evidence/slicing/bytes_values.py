"""Expressions that are bytes, and those that make the text "b'...'" of bytes: `str(x)`, `repr(x)`, `f"{x}"`.

By syntax alone: what is not known to be bytes is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_MAKERS = frozenset(
    {"tobytes", "to_bytes", "b64encode", "urlsafe_b64encode", "b64decode", "hexlify", "unhexlify", "compress"}
    | {"digest", "bytes", "string_at", "SerializeToString"}
)
_PICKLES = frozenset({"pickle", "cPickle", "marshal", "dill", "cloudpickle", "msgpack", "zlib", "bz2", "lzma"})
_BUFFERS = frozenset({"create_string_buffer"})
_RLE = ("pycocotools", "counts", frozenset({"encode", "merge", "frPyObjects"}))  # its masks: {"counts": bytes}
_HOPS = 6
Files = Mapping[str, ast.Module]


def shown_bytes(node: ast.expr) -> ast.expr | None:
    """`x` of `str(x)`, `repr(x)`, `f"{x}"`, `"%s" % x` and `"{}".format(x)`, which of bytes are the text "b'...'"."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
        return node.args[0] if len(node.args) == 1 and not node.keywords else None
    if isinstance(node, ast.JoinedStr):
        part = node.values[0] if len(node.values) == 1 else None
        return part.value if isinstance(part, ast.FormattedValue) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return node.right if node.left.value == "%s" and not isinstance(node.right, ast.Tuple) else None
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    formats = isinstance(owner, ast.Constant) and owner.value == "{}" and isinstance(node, ast.Call)
    return node.args[0] if formats and isinstance(node, ast.Call) and len(node.args) == 1 else None


def is_bytes(back: Slice, files: Files, node: ast.AST, spot: Spot, left: int = _HOPS) -> bool:
    """Whether the source makes an expression bytes."""
    if not left:
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bytes)
    if isinstance(node, ast.Call) and _makes_bytes(node):
        return True
    if isinstance(node, ast.Attribute) and node.attr in ("value", "raw"):
        buffer = back.made(node.value, spot, calls=True).node
        return isinstance(buffer, ast.Call) and called_name(buffer) in _BUFFERS
    made = back.made(node, spot, calls=True)
    if made.node is not node:
        return is_bytes(back, files, made.node, made.spot, left - 1)
    key = key_of(node)
    if key is None or not isinstance(node, (ast.Subscript, ast.Call)):
        return False
    if key == _RLE[1] and any(_imports(tree, _RLE[0]) for tree in files.values()) and _is_rle(back, node, spot):
        return True
    return any(is_bytes(back, files, value, at, left - 1) for value, at in stored(files, key) if value is not node)


def key_of(node: ast.AST) -> str | None:
    """`counts` of `rle["counts"]` and `rle.get("counts")`."""
    key: ast.AST | None = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and called_name(node) in ("get", "pop") and node.args:
        key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def stored(files: Files, key: str) -> Iterator[tuple[ast.expr, Spot]]:
    """What the lines of a program put below a key of a dict: `{"counts": x}`, `rle["counts"] = x`, `dict(counts=x)`."""
    for file, tree in files.items():
        for node in nodes_of(tree):
            for value in _stored(node, key):
                yield value, Spot(file, tree, scope_of(tree, value.lineno), value.lineno)


def _stored(node: ast.AST, key: str) -> Iterator[ast.expr]:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from (value for at, value in pairs if isinstance(at, ast.Constant) and at.value == key)
    elif isinstance(node, ast.Call) and called_name(node) in ("dict", "update"):
        yield from (item.value for item in node.keywords if item.arg == key)
    elif isinstance(node, ast.Assign):
        for target, value in set_by(node):
            if value is not None and isinstance(target, ast.Subscript) and key_of(target) == key:
                yield value


def _makes_bytes(call: ast.Call) -> bool:
    name, owner = called_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    module = owner.id if isinstance(owner, ast.Name) else None
    if name in ("dumps", "packb"):
        return module in _PICKLES
    if name == "encode":  # of a text; methods of others have that name, too
        first = call.args[0] if call.args else None
        return owner is not None and (
            first is None or (isinstance(first, ast.Constant) and isinstance(first.value, str))
        )
    return name in _MAKERS


def _imports(tree: ast.Module, module: str) -> bool:
    names = (
        item.module if isinstance(item, ast.ImportFrom) else part.name
        for item in nodes_of(tree)
        if isinstance(item, (ast.Import, ast.ImportFrom))
        for part in item.names
    )
    return any((name or "").split(".")[0] == module for name in names)


def _is_rle(back: Slice, node: ast.expr, spot: Spot) -> bool:
    owner = node.value if isinstance(node, ast.Subscript) else node.func.value if isinstance(node, ast.Call) else None  # type: ignore[attr-defined]
    made = back.made(owner, spot, calls=False).node if owner is not None else None
    return isinstance(made, ast.Call) and called_name(made) in _RLE[2]
