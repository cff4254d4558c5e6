"""The type of the elements that a line of the program makes: `torch.empty(8)` has float32, `np.zeros(8)` float64."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_FACTORIES = frozenset({"empty", "zeros", "ones", "rand", "randn", "linspace"})
_OF_SIZE = ("empty", "zeros", "ones")
_RANDOM = frozenset({"rand", "randn", "linspace"})  # of NumPy no calls of this form, or of its generators
_DEFAULTS = {"torch": "float32", "np": "float64", "numpy": "float64"}
_BYTES = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "float32": 4, "float": 4, "int32": 4, "int": 4, "float16": 2,
    "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_CHARACTERS = "create_string_buffer"
_CHANGES_DEFAULT = "set_default_dtype"


def made_element(node: ast.AST, tree: ast.Module) -> tuple[str, int] | None:
    """Its name and its bytes; None where the line does not show it, or the program changes torch's default."""
    if isinstance(node, ast.Call) and called_name(node) == _CHARACTERS:
        return "char", 1
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    owner, name = ast.unparse(node.func.value), called_name(node)
    if owner not in _DEFAULTS or name not in _FACTORIES or (owner != "torch" and name in _RANDOM):
        return None
    given = keyword_value(node, "dtype")
    if given is None and owner != "torch" and len(node.args) > 1:
        given = node.args[1]  # np.zeros(shape, dtype)
    if given is None:
        if owner == "torch" and any(_CHANGES_DEFAULT in (getattr(item, "attr", None) or "") for item in nodes_of(tree)):
            return None
        return _DEFAULTS[owner], _BYTES[_DEFAULTS[owner]]
    module, _, dtype = ast.unparse(given).rpartition(".")
    if dtype == "float" and module != "torch":
        dtype = "float64"  # Python's own
    return (dtype, _BYTES[dtype]) if dtype in _BYTES and (module in _DEFAULTS or dtype == "float64") else None


def made_size(node: ast.AST) -> ast.expr | None:
    """`n` of `np.empty(n)`, `torch.zeros((n,))` and `create_string_buffer(n)`: of one dimension."""
    if isinstance(node, ast.Call) and called_name(node) == _CHARACTERS and len(node.args) == 1:
        size = node.args[0]
        text = isinstance(size, ast.Constant) and not isinstance(size.value, int)
        return size if not text and not isinstance(size, (ast.Name, ast.Attribute)) else None  # which may be bytes
    if not isinstance(node, ast.Call) or called_name(node) not in _OF_SIZE or not node.args:
        return None
    first = node.args[0]
    if isinstance(first, (ast.Tuple, ast.List)):
        return first.elts[0] if len(first.elts) == 1 else None
    whole = len(node.args) == 1 or not isinstance(node.args[1], (ast.Constant, ast.Name, ast.BinOp, ast.Call))
    return first if whole else None
