"""Where the fields of a structured NumPy dtype lie: one behind another, or aligned as in C with `align=True`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.struct_fields import FieldType, Structure, laid_out
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_BYTES = {
    "int8": 1, "uint8": 1, "bool_": 1, "bool": 1, "byte": 1, "ubyte": 1, "int16": 2, "uint16": 2, "short": 2,
    "float16": 2, "half": 2, "int32": 4, "uint32": 4, "intc": 4, "uintc": 4, "float32": 4, "single": 4, "int64": 8,
    "uint64": 8, "intp": 8, "uintp": 8, "int_": 8, "longlong": 8, "float64": 8, "double": 8, "float_": 8, "int": 8,
    "float": 8,
}  # fmt: skip
_CODE = Pattern(r"[<=|]?[iufb?](\d?)$")
_PAIR, _TRIPLE = 2, 3

Layout = tuple[Structure, Structure]  # as the dtype is, and as it would be with align=True


def numpy_layouts(tree: ast.Module) -> Iterator[Layout]:
    """Of `EDGE = np.dtype([("dst", np.int64), ("weight", "f4")])`, and of `dtype=[...]`."""
    names = {
        id(item.value): item.targets[0].id
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name)
    }
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call):
            continue
        made = called_name(node) == "dtype"
        given = (node.args[0] if node.args else None) if made else keyword_value(node, "dtype")
        parts = _parts(given) if isinstance(given, ast.List) else None
        if not parts:
            continue
        name = f"`{names[id(node)]}`" if made and id(node) in names else "the dtype"
        aligned = laid_out(name, node.lineno, "", parts)
        align = keyword_value(node, "align") if made else None
        if (align is None and len(node.args) == 1) or not made:
            packed = [(field, structs.replace(kind, align=1), text) for field, kind, text in parts]
            yield laid_out(name, node.lineno, "", packed), aligned
        elif isinstance(align, ast.Constant) and align.value is True:
            yield aligned, aligned


def _parts(node: ast.List) -> list[tuple[str, FieldType, str]] | None:
    found = []
    for item in node.elts:
        if not isinstance(item, ast.Tuple) or len(item.elts) not in (_PAIR, _TRIPLE):
            return None
        name, count = item.elts[0], _count(item.elts[2]) if len(item.elts) == _TRIPLE else 1
        size = _bytes(item.elts[1])
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or size is None or count is None:
            return None
        found.append((name.value, FieldType(size * count, size), ast.unparse(item.elts[1])))
    return found


def _bytes(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        code = _CODE.match(node.value)
        if code is not None:
            return int(code[1]) if code[1] else {"i": 4, "u": 4, "f": 4, "b": 1, "?": 1}[node.value[-1]]
        return _BYTES.get(node.value)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return _BYTES.get(name)


def _count(node: ast.expr) -> int | None:
    """`3`, `(3,)`, `(2, 3)`."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    count = 1
    for item in parts:
        if not isinstance(item, ast.Constant) or type(item.value) is not int:
            return None
        count *= item.value
    return count
