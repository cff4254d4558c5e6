"""Calls that make integers of floats: `x.long()`, `x.to(torch.int64)`, `x.astype(int)`, `np.array(x, dtype=int)`."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value

_INTEGERS = Pattern(r"""^(?:(?:torch|np|numpy)\.)?(?:u?int(?:p|c|_|8|16|32|64)?|long)$|^['"]u?i(?:nt)?\d*['"]$""")
_WHOLE = Pattern(r"^(?:arg\w+|arange|randint\w*|randperm|nonzero|searchsorted|bucketize|bincount|size|len|numel)$")
_MAKERS = frozenset({"tensor", "as_tensor", "array", "asarray", "full"})
_OF_INTEGERS = frozenset({"LongTensor", "IntTensor", "int64", "int32", "intp"})
_OF_32_BITS = Pattern(r"""(?<!\w)u?int32$|(?<!\w)intc$|^['"]u?i4['"]$|^['"]u?int32['"]$""")


def integer_operand(call: ast.Call) -> ast.expr | None:
    """What becomes integers; None where it is no conversion, or of what is whole already."""
    name, owner, given = _parts(call)
    first = call.args[0] if call.args else None
    found: ast.expr | None = None
    if name in ("long", "int") and owner is not None and not call.args:
        found = owner
    elif name in ("to", "type", "astype") and owner is not None:
        found = owner if any(_INTEGERS.match(item) for item in given) else None
    elif name in _OF_INTEGERS:
        found = first
    elif name in _MAKERS:
        found = first if any(_INTEGERS.match(item) for item in given) else None
    inner = called_name(found) if isinstance(found, ast.Call) else None
    whole = isinstance(found, (ast.Constant, ast.List, ast.Compare)) or (inner is not None and _WHOLE.match(inner))
    return None if whole else found


def makes_32_bits(call: ast.Call) -> bool:
    """Whether these integers have 32 bits."""
    name, owner, given = _parts(call)
    if name in ("int", "IntTensor", "int32"):
        return owner is not None or name != "int"
    return any(_OF_32_BITS.search(item) for item in given)


def _parts(call: ast.Call) -> tuple[str, ast.expr | None, list[str]]:
    """Its name, what it is a method of, and the types that it may be given, as the source writes them."""
    name = called_name(call) or ""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    named = [value for value in (keyword_value(call, "dtype"),) if value is not None]
    types = [*([] if name in _MAKERS else call.args), *named]
    return name, owner, [ast.unparse(item) for item in types]
