"""The type of the elements of an array, as far as the source shows it: `float16` of `rows.astype(np.float16)`."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value

BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip
_NAMES = {
    "float": "float64", "double": "float64", "single": "float32", "half": "float16", "int": "int64", "long": "int64",
    "short": "int16", "ubyte": "uint8", "byte": "int8", "bool_": "bool", "int_": "int64",
    **{f"f{size // 8}": f"float{size}" for size in (16, 32, 64)},
    **{f"{kind[0]}{size // 8}": f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)},
}  # fmt: skip
_OF_TENSORS = {"float": "float32", "int": "int32", "byte": "uint8", "char": "int8"}  # as methods, and as torch.float
_METHODS = frozenset({"half", "float", "double", "long", "int", "short", "bfloat16"})
_CONVERTS = frozenset({"astype", "to", "type"})
_SAME = frozenset(
    {"copy", "numpy", "cpu", "detach", "clone", "contiguous", "ravel", "flatten", "reshape", "view", "squeeze"}
    | {"unsqueeze", "transpose", "permute", "ascontiguousarray", "from_numpy"}
)
_SECOND = frozenset({"array", "asarray", "zeros", "ones", "empty", "fromiter", "fromfile", "frombuffer", "memmap"})
_DRAWS = frozenset({"random", "rand", "randn", "standard_normal", "normal", "uniform"})
_DEFAULTS = {"memmap": "uint8", "fromfile": "float64", "from_file": "float32", "zeros": "float64", "ones": "float64",
             "empty": "float64", "linspace": "float64"}  # fmt: skip
_NUMPY = Pattern(r"^(?:np|numpy)\.")
_MODULE = Pattern(r"^(?:np|numpy|torch)$")
_RANDOM = Pattern(r"^(?:np|numpy)\.random\.(?:default_rng|RandomState)\(|^(?:np|numpy)\.random$")


def type_named(back: Slice, node: ast.AST, spot: Spot) -> str | None:
    """Of `np.float16`, `torch.half`, `"<f4"` or a constant of the program that is one of these."""
    made = back.made(node, spot, calls=True)
    last = made.node
    if isinstance(last, ast.Call) and called_name(last) == "dtype" and len(last.args) == 1:
        return type_named(back, last.args[0], made.spot)
    if isinstance(last, ast.Constant) and isinstance(last.value, str):
        name = last.value.lstrip("<=|")
    elif isinstance(last, ast.Attribute):
        of_torch = ast.unparse(last.value) == "torch"
        name = _OF_TENSORS.get(last.attr, last.attr) if of_torch else last.attr
    else:
        name = last.id if isinstance(last, ast.Name) else ""
    name = _NAMES.get(name, name)
    return name if name in BYTES else None


def keeps_type(call: ast.Call) -> bool:
    """Whether a method of a tensor gives another of the same type: `rows.clone()`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_module = owner is not None and _MODULE.search(ast.unparse(owner)) is not None
    return called_name(call) in _SAME and owner is not None and not of_module and not call.args


def element_type(back: Slice, node: ast.AST, spot: Spot, depth: int = 8) -> str | None:
    """Of what an expression makes; None where the source does not show it."""
    made = back.made(node, spot, calls=True)
    call = made.node
    if not isinstance(call, ast.Call) or depth == 0:
        return None
    name, given = called_name(call) or "", keyword_value(call, "dtype")
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name == "view" and call.args and type_named(back, call.args[0], made.spot) is not None:
        given = call.args[0]
    if given is None and name in _CONVERTS and call.args:
        given = call.args[0]
    if given is None and name in _SECOND and len(call.args) > 1:
        given = call.args[1]
    if given is not None:
        return type_named(back, given, made.spot)
    if name in _METHODS and owner is not None and not call.args:
        return _OF_TENSORS.get(name, _NAMES.get(name, name))
    if name in _SAME and owner is not None:
        of_module = _NUMPY.search(f"{ast.unparse(owner)}.") or ast.unparse(owner) == "torch"
        inner = call.args[0] if of_module and call.args else owner
        return element_type(back, inner, made.spot, depth - 1)
    if owner is None or any(item.arg is None for item in call.keywords):
        return None
    if name in _DRAWS:
        source = back.made(owner, made.spot, calls=True).node
        return "float64" if _RANDOM.search(ast.unparse(source)) else None
    of_numpy = _NUMPY.search(f"{ast.unparse(owner)}.") is not None
    return _DEFAULTS.get(name) if of_numpy or name == "from_file" else None
