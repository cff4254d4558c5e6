"""Data types that do not fit: which operand has another one, and where it was made."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.tensors.written_dtypes import TYPES, written_dtype, written_subject
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

__all__ = ["types_that_differ", "written_subject"]

_CONVERT = {"float32": ".float()", "int64": ".long()", "float64": ".double()", "float16": ".half()", "bool": ".bool()"}
_DIFFER = Pattern(r"must have the same dtype, but got ([\w:]+) and ([\w:]+)|same dtype, but got: ([\w:]+) != ([\w:]+)")
_INPUT = Pattern(r"Input type \(([\w:.]+)\) and (?:weight|bias) type \(([\w:.]+)\)")
_RECURRENT = Pattern(r"input dtype \(torch\.(\w+)\) does not match weight dtype \(torch\.(\w+)\)")
_TARGET = Pattern(r"expected target dtype to be Long or Byte, but got (\w+)|expected scalar type Long but found (\w+)")
_EXPECTED = Pattern(r"expected scalar type (\w+) but found (\w+)|Found dtype (\w+) but expected (\w+)")
_SOFT = Pattern(r"floating point type for target with class probabilities, got (\w+)")
_BOTH = 2  # the output, and the target
_SPAN = Pattern(r", -?\d+\.\.(-?\d+)$")
_KERNEL = Pattern(r"not implemented for '(\w+)'")


def types_that_differ(at: FailingLine) -> str | None:
    """Of torch's own messages, with the variable that has the odd one."""
    written = written_dtype(at)
    if written is not None:
        return written
    layer, given = at.layer, at.layer.given if at.layer is not None else None
    differ = _DIFFER.search(at.message) or _INPUT.search(at.message)
    if differ is not None and layer is not None and given is not None and layer.dtype and layer.dtype != given.dtype:
        by = _converted_model(at, layer.dtype)
        words = _odd(at, at.passed("its input"), given.dtype, layer.dtype, f"`{layer.name}` is {layer.dtype}{by}")
        return words.replace("or convert it where it is made", "or leave the layer in float32 there") if by else words
    recurrent = _RECURRENT.search(at.message)
    if recurrent is not None:
        return _of_pair(at, recurrent[2], recurrent[1])
    target = _TARGET.search(at.message)
    if target is not None:
        found = TYPES.get(target[1] or target[2]) or ""
        call = at.only(ast.Call)
        last = call.args[-1] if call is not None and call.args else None
        shape = at.shape(last)
        if last is None or shape is None or shape.dtype != found:
            return _of_pair(at, "int64", found)
        return _odd(at, source(last), found, "int64", "class numbers must be int64")
    soft = _SOFT.search(at.message)
    if soft is not None:
        return _soft_target(at, TYPES.get(soft[1], soft[1]))
    expected = _EXPECTED.search(at.message)
    if expected is not None:
        first = expected[1] is not None
        wanted, found = (expected[1], expected[2]) if first else (expected[4], expected[3])
        return _of_pair(at, TYPES.get(wanted), TYPES.get(found))
    if differ is not None and differ.re is _DIFFER.compiled:
        one, other = (TYPES.get(item or "") for item in (differ[1] or differ[3], differ[2] or differ[4]))
        wide, narrow = ("float64", "float32")
        if {one, other} == {wide, narrow}:
            return _of_product(at, narrow, wide) or _of_pair(at, narrow, wide)
        return None
    kernel = _KERNEL.search(at.message)
    return _without_kernel(at, TYPES.get(kernel[1])) if kernel is not None else None


def _converted_model(at: FailingLine, dtype: str) -> str:
    """`` (line 25: `model = model.half()`) ``: the only line of the program that can have made a layer so."""
    method = {"float16": "half", "bfloat16": "bfloat16", "float64": "double"}.get(dtype)
    if method is None:
        return ""
    found = []
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or not isinstance(item.func, ast.Attribute):
                continue
            given = [ast.unparse(part) for part in passed_values(item)]
            by_type = f"torch.{dtype}" in given and item.func.attr in ("to", "type", "set_default_dtype")
            if (item.func.attr == method and not item.args) or by_type:
                spot = Spot(file, tree, scope_of(tree, item.lineno), item.lineno)
                if not at.slice.is_layer(item.func.value, spot) and ast.unparse(item.func.value) != "self":
                    return ""
                found.append((file, item))
    if len(found) != 1 or _is_asked_elsewhere(at, found[0][1], dtype, method):
        return ""
    return f" ({at.in_file(found[0][0], found[0][1].lineno)}: `{source(found[0][1])}`)"


def _is_asked_elsewhere(at: FailingLine, call: ast.Call, dtype: str, method: str) -> bool:
    """`dtype=torch.float16` of another line, which may have made the layer."""
    names = (f"torch.{dtype}", f"torch.{method}")
    within = {id(item) for item in nodes_of(call)}
    return any(
        isinstance(item, ast.Attribute) and ast.unparse(item) in names and id(item) not in within
        for tree in at.files.values()
        for item in nodes_of(tree)
    )


def _soft_target(at: FailingLine, found: str) -> str | None:
    """Class numbers have no dimension of classes; where the target has none, the output has lost its own."""
    names = _with(at, found)
    shape = at.shape(names[0]) if len(names) == 1 else None
    if shape is None:
        return None
    name, call = names[0], at.only(ast.Call)
    if call is not None and len(call.args) == _BOTH and source(call.args[1]) != name:
        return None  # what is passed is made of it
    has = f"`{name}` {shape.words}{whence(at, name)} is {found}"
    output = at.passed("the output")
    if len(shape.sizes) == 1 or _beyond_one(at, name):
        return (
            f"`{output}` has the shape of `{name}` {shape.words}{whence(at, name)}, which is {found}. If it has class "
            "numbers, the output lacks its dimension of classes: give the last layer one output for each, and see what "
            "takes it away (squeeze(), an index). Yes or no (BCEWithLogitsLoss) and one-hot rows need .float()."
        )
    if "one_hot" in whence(at, name):
        return (
            f"{has} and has a dimension of classes, which only probabilities have: pass `{name}.float()`, or the class "
            "numbers before one_hot()."
        )
    return (
        f"{has} and has the shape of the output, as only probabilities have: pass `{name}.float()` if it has a "
        "dimension of classes (one_hot), or the class numbers before that. If it has class numbers, the output has "
        "lost its dimension of classes (squeeze(), an index)."
    )


def _beyond_one(at: FailingLine, name: str) -> bool:
    """Whether its numbers go beyond those of one-hot rows."""
    found = _SPAN.search(at.values.get(name, ""))
    return found is not None and int(found[1]) > 1


def _with(at: FailingLine, dtype: str | None) -> list[str]:
    names = at.names
    return [name for name in names if (shape := at.shape(name)) is not None and shape.dtype == dtype]


def _of_pair(at: FailingLine, wanted: str | None, found: str | None) -> str | None:
    names = _with(at, found)
    if wanted is None or found is None or len(names) != 1:
        return None
    return _odd(at, names[0], found, wanted, f"{wanted} is needed there")


def _of_product(at: FailingLine, narrow: str, wide: str) -> str | None:
    """`h0 @ weight`: a tensor that the program makes by torch.zeros() beside a model in float64."""
    product = next((item for item in nodes_of(at.node or ast.Pass()) if isinstance(item, ast.BinOp)), None)
    sides = [product.left, product.right] if product is not None and isinstance(product.op, ast.MatMult) else []
    shapes = {source(item): shape.dtype for item in sides if (shape := at.shape(item)) is not None}
    odd = [name for name, dtype in shapes.items() if dtype == narrow]
    weights = [name for name, dtype in shapes.items() if dtype == wide and name.endswith("weight")]
    return _odd(at, odd[0], narrow, wide, f"`{weights[0]}` is {wide}") if len(odd) == len(weights) == 1 else None


def _odd(at: FailingLine, name: str, has: str, wanted: str, other: str) -> str:
    convert = _CONVERT.get(wanted, f".to(torch.{wanted})")
    asked = any(word in at.came(name) for word in ("float64", "double"))
    why = "; NumPy makes float64" if has == "float64" and not asked else ""
    whole = re.fullmatch(r"[\w.]+(?:[\[(].*[\])])?", name) is not None  # no operator binds less than the call
    written = f"{name}{convert}" if whole else f"({name}){convert}"
    return f"`{name}`{at.came(name)} is {has}, and {other}{why}. Write `{written}`, or convert it where it is made."


def _without_kernel(at: FailingLine, dtype: str | None) -> str | None:
    names = _with(at, dtype)
    if dtype is None or len(names) != 1:
        return None
    integer = dtype.startswith(("int", "uint", "bool"))
    to = ".long()" if integer and re.search(r"loss|nll|embedding|index", at.message) else ".float()"
    return f"`{names[0]}`{at.came(names[0])} is {dtype}, for which this operator has no version: `{names[0]}{to}`."
