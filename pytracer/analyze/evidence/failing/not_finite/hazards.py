"""Expressions that can make NaN or infinity, in the forward or in the backward, and what to write in their place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.not_finite.hazard import USUAL, WEAK, WRITTEN, Hazard
from pytracer.analyze.evidence.failing.not_finite.products import grown_by_product
from pytracer.analyze.evidence.failing.not_finite.reach import Part, values_bound
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_parameter, statement_at

_NOT_BELOW_0 = Pattern(
    r"abs\(|square\(|pow\(\s*2|\*\* ?2|norm\(|exp\(|relu\(|sigmoid\(|softmax\(|var\(|dist|(\w+) \* \1\b"
)
_GUARD = Pattern(r"eps|EPS|1e-\d|clamp|clip\(|nan_to_num|maximum|tiny|\+ 1(?:\.0)?\b|(?<![.\w])max\(.*\b1\b", re.ASCII)
_MAY_BE_ZERO = Pattern(r"\.(?:sum|std|norm|count_nonzero|var|mean|max|min|amax|amin|abs|numel)\(|\b(?:norm|std)\(")
_SELECTION = Pattern(r"mask|pos|neg|valid|keep|same|\bsel|inside|\bis_|\bfg|\bbg")
_COMPARED = Pattern(r"[=!]=|[<>]|_nonzero|numel")
_LOSSES = Pattern(r"_loss$|^cross_entropy$|^binary_cross_entropy|^mean$")
_INFINITE = Pattern(
    r"""^(-?)(?:float\(['"]([-+]?)(?:inf|infinity)['"]\)|(?:np|numpy|math|torch)\.inf)$""", re.IGNORECASE
)
_NAN = Pattern(r"""^(?:float\(['"]nan['"]\)|(?:np|numpy|math|torch)\.nan)$""", re.IGNORECASE)
_CAUSAL = Pattern(r"triu|tril|topk|top_k|top_p|cumsum|causal|subsequent")  # masks that leave one of each row
_VIEWS = frozenset({"unsqueeze", "view", "reshape", "float", "to", "item"})
_MASKS = frozenset({"key_padding_mask", "src_key_padding_mask", "attn_mask", "tgt_key_padding_mask"})


def hazards_in(part: Part) -> Iterator[Hazard]:
    """Those of one expression."""
    skipped: set[int] = set()
    for node in nodes_of(part.node):
        if isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call) and called_name(node) in ("nan_to_num", "isin")
        ):
            skipped |= {id(item) for item in nodes_of(node) if item is not node}
        if id(node) in skipped or not isinstance(node, ast.expr):
            continue
        found = _written(node, part.spot) or _divided(node, part.spot)
        if found is None and isinstance(node, ast.Call):
            found = _called(node, part.spot)
        if found is None and isinstance(node, ast.BinOp):
            found = _root(node, part.spot)
        if found is None:
            found = grown_by_product(node, part.spot)
        if found is not None:
            if isinstance(node, ast.BinOp) and found.only == "zero":
                skipped.add(id(node.right))  # `a / var ** 0.5`: the root is told with it
            if found.weight == WRITTEN:
                skipped |= {id(item) for item in nodes_of(node)}
            yield found


def is_infinite(node: ast.expr) -> bool:
    """`float("inf")`, `-math.inf`."""
    return _INFINITE.match(ast.unparse(node)) is not None


def _written(node: ast.expr, spot: Spot) -> Hazard | None:
    text = ast.unparse(node)
    found = _INFINITE.match(text)
    if found is None and _NAN.match(text) is None:
        return None
    statement = statement_at(spot.tree, node.lineno)
    if statement is None or isinstance(statement, (ast.If, ast.While, ast.For, ast.FunctionDef)):
        return None
    filled = _call_around(statement, node)
    chosen = filled in ("masked_fill", "masked_fill_", "where")
    if found is not None and "-" in (found[1], found[2]):
        if _leaves_some(statement, spot):
            return None
        says = f"puts -inf in (`{source(statement)}`), and softmax() of a row that is all -inf is NaN"
        make = "leave at least one element of each row unmasked (skip empty samples), or use torch.finfo(x.dtype).min"
        return Hazard(node, spot, says, make)
    what = "inf" if found is not None else "NaN"
    weight = USUAL if chosen else WRITTEN
    make = "put a finite number there, or leave these elements out"
    return Hazard(node, spot, f"puts {what} in (`{source(statement)}`)", make, weight)


def _call_around(statement: ast.stmt, node: ast.expr) -> str | None:
    calls = [item for item in nodes_of(statement) if isinstance(item, ast.Call)]
    return next((called_name(item) for item in calls if any(part is node for part in item.args)), None)


def _leaves_some(statement: ast.stmt, spot: Spot) -> bool:
    """A mask by what is compared with the largest, or by the place: it never takes a whole row."""
    text = ast.unparse(statement)
    for item in nodes_of(statement):
        if isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Load):
            text += f" {_with_origin(item, spot)}"
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    own = isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Compare)
    return own or _CAUSAL.search(text) is not None


def _divided(node: ast.expr, spot: Spot) -> Hazard | None:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or isinstance(node.right, ast.Constant):
        return None
    text = _with_origin(node.right, spot)
    if _GUARD.search(text) or not (_MAY_BE_ZERO.search(text) or _is_range(node.right)):
        return None
    by = source(node.right)
    bound = _bound(node.right, spot)
    of = f" (`{by} = {source(bound)}`)" if bound is not None else ""
    counts = re.search(r"\.(?:sum|count_nonzero|numel)\(", text) and (_SELECTION.search(text) or _COMPARED.search(text))
    shares = _of_exponentials(node, spot)
    if shares is not None:
        tiny = f"divides by `{by}`{of}, 0 where every `{source(shares)}`"
        says, (make, why) = f"{tiny} is too small for its type", _softmax(shares, spot)
        return Hazard(node, spot, says, f"{make}{why}", only="zero", operand=node.right, tiny=(tiny, make))
    make = f"divide by `{by}.clamp(min=1)`" if counts and "/" not in by else f"divide by `({by} + 1e-8)`"
    if counts and isinstance(node.right, ast.BinOp):
        make = f"divide by `({by}).clamp(min=1)`"
    return Hazard(node, spot, f"divides by `{by}`{of}, which may be 0", make, only="zero", operand=node.right)


def _of_exponentials(node: ast.BinOp, spot: Spot) -> ast.Call | None:
    """`torch.exp(score)` of `w / w.sum()`, where `w` is that: what softmax() computes without an underflow."""
    total = _bound(node.right, spot)
    total = total if total is not None else node.right
    if not isinstance(total, ast.Call) or called_name(total) != "sum":
        return None
    summed = operand_of(total)
    if summed is None or ast.unparse(summed) != ast.unparse(node.left):
        return None
    made = _bound(node.left, spot)
    made = made if made is not None else node.left
    return made if isinstance(made, ast.Call) and called_name(made) == "exp" and operand_of(made) is not None else None


def _softmax(made: ast.Call, spot: Spot) -> tuple[str, str]:
    """What to write in place of exp() and a sum, and why: torch.softmax() takes tensors only, not arrays of NumPy."""
    of = source(_exponent(made))
    origin = imported_as(spot.tree, made.func)
    if origin is None:  # a method, or torch where its import is not seen
        origin = "torch." if isinstance(made.func, ast.Attribute) and _owner(made) not in ("np", "numpy") else ""
    if not origin.startswith("torch."):
        return f"subtract the maximum of `{of}` before exp()", ""
    return f"use `torch.softmax({of}, dim=...)`", ", which subtracts the largest of a row first"


def _exponent(node: ast.Call) -> ast.expr:
    operand = operand_of(node)
    return operand if operand is not None else node


def _is_range(node: ast.expr) -> bool:
    """`high - low`, which are equal where all values are."""
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) else ()
    return bool(parts) and not any(isinstance(item, ast.Constant) for item in parts)


def _called(node: ast.Call, spot: Spot) -> Hazard | None:
    name, operand = called_name(node), operand_of(node)
    if name is None:
        return None
    summed = any(item.arg == "reduction" and ast.unparse(item.value) != "'mean'" for item in node.keywords)
    for item in node.keywords:
        if item.arg in _MASKS and not isinstance(item.value, ast.Constant):
            says = f"attends with `{item.arg}={source(item.value)}`: a row whose keys are all masked is NaN"
            return Hazard(node, spot, says, "leave at least one key of each row unmasked (skip empty samples)")
        if item.arg == "ignore_index" and "cross_entropy" in name and not summed:
            says = "takes the mean of the targets that are not ignore_index: NaN where none is left"
            make = "skip a batch that has none, or use reduction='sum' and divide by a count"
            return Hazard(node, spot, says, make, only="empty")
    if name in ("empty", "empty_like", "new_empty") and _owner(node) != "np":
        says = f"makes `{source(node)}`, memory that nothing has written yet, NaN included"
        return Hazard(node, spot, says, "use torch.zeros() or an nn.init function", WEAK)
    if name in ("read_csv", "genfromtxt", "loadtxt"):
        return Hazard(node, spot, "reads a table, where a missing value is NaN", "fill or drop these rows", WEAK)
    if name == "half" or (name in ("to", "type") and "float16" in ast.unparse(node).replace("bfloat16", "")):
        says = f"computes in float16 (`{source(node)}`), inf above 65504"
        return Hazard(node, spot, says, "use bfloat16 or float32 there")
    if operand is None or _owner(node) in ("math", "cmath"):
        return None
    of = source(operand)
    if name in ("std", "var") and _owner(node) not in ("np", "numpy"):
        if any(item.arg in ("unbiased", "correction", "ddof") for item in node.keywords) or not _is_of_all(node):
            return None
        says = f"takes `{source(node)}`, which is NaN for a single element"
        leave = "drop such a batch (drop_last=True)" if _loads_batches(spot) else "leave such a batch out"
        make = f"normalize only where there are several (`if len({of}) > 1`), or {leave}"
        return Hazard(node, spot, says, make, only="single", operand=operand)
    if _LOSSES.search(name):
        if summed or (name == "mean" and not _is_of_all(node)):
            return None
        chosen = _chosen(node, operand, spot)
        if chosen is not None:
            says = f"takes the mean of what `{source(chosen)}` selects, which is NaN where that is nothing"
            make = f"add that term only `if {source(chosen)}.any()`, or divide a sum by `.clamp(min=1)`"
            return Hazard(node, spot, says, make, only="empty", operand=chosen)
        return None
    text = _with_origin(operand, spot)
    if _GUARD.search(text) or isinstance(operand, ast.Constant):
        return None
    if name in ("log", "log2", "log10") and not re.search(r"\bexp\(|len\(", text):
        better = "log_softmax()" if "softmax" in text else "logsigmoid()" if "sigmoid" in text else None
        make = f"use F.{better}" if better is not None else f"take the log of `{of}` clamped to 1e-8 and more"
        return Hazard(node, spot, f"takes the log of `{of}`, -inf at 0 and NaN below", make)
    if name in ("sqrt", "rsqrt") and _owner(node) not in ("np", "numpy"):
        return _of_root(node, operand, spot)
    if name in ("acos", "arccos", "asin", "arcsin", "atanh", "arctanh"):
        says = f"takes {name}() of `{of}`: NaN beyond 1, and its gradient is infinite at 1"
        return Hazard(node, spot, says, f"clamp `{of}` to -1 + 1e-6 .. 1 - 1e-6")
    if name == "pow" and node.args:
        return _power(node, operand, node.args[-1], spot)
    if name == "exp" and not text.lstrip("(").startswith("-"):
        says = f"takes exp() of `{of}`, inf above 88 (float32)"
        scaled = isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Div)  # by a temperature
        make = f"subtract the largest of its row first (use log_softmax() or logsumexp()), or clamp `{of}`"
        return Hazard(node, spot, says, make, USUAL if scaled else WEAK)
    return None


def _loads_batches(spot: Spot) -> bool:
    """Whether a DataLoader may make its batches, for which there is an option; not where this file collects them."""
    nodes = nodes_of(spot.tree)
    return not any(called_name(item) == "backward" for item in nodes if isinstance(item, ast.Call)) or any(
        variable(item) == "DataLoader" or (isinstance(item, ast.Attribute) and item.attr == "DataLoader")
        for item in nodes_of(spot.tree)
    )


def _is_of_all(node: ast.Call) -> bool:
    """Or of the first dimension, that of the batch."""
    given = [*node.args[_owner(node) == "torch" :], *(item.value for item in node.keywords if item.arg == "dim")]
    return not given or ast.unparse(given[0]) in ("0", "[0]", "(0,)")


def _root(node: ast.BinOp, spot: Spot) -> Hazard | None:
    return _power(node, node.left, node.right, spot) if isinstance(node.op, ast.Pow) else None


def _power(node: ast.expr, operand: ast.expr, power: ast.expr, spot: Spot) -> Hazard | None:
    """`x ** 0.5` and `degree.pow(-0.5)`, of what is computed."""
    try:
        number = ast.literal_eval(power)
    except ValueError:
        return None
    text = _with_origin(operand, spot)
    if not isinstance(number, (int, float)) or "(" not in text or _GUARD.search(text):
        return None
    if number < 0:
        of = source(operand)
        says = f"takes `{source(node)}`, inf where `{of}` is 0"
        return Hazard(node, spot, says, f"use `{of}.clamp(min=1e-8)`, or set those to 0 (masked_fill)", operand=operand)
    return _of_root(node, operand, spot) if 0 < number < 1 else None


def _of_root(node: ast.expr, operand: ast.expr, spot: Spot) -> Hazard:
    of = source(operand)
    says = f"takes the root of `{of}`, whose gradient is infinite where that is 0"
    if _NOT_BELOW_0.search(_with_origin(operand, spot)):
        return Hazard(node, spot, says, f"take that of `{of} + 1e-8`", backward=True)
    return Hazard(node, spot, f"{says}, and NaN below", f"take that of `{of}`, clamped to 1e-8 and more", backward=True)


def _chosen(node: ast.Call, operand: ast.expr, spot: Spot) -> ast.expr | None:
    """The mask by which elements are selected."""
    for part in (operand, *node.args):
        for item in nodes_of(part):
            if not isinstance(item, ast.Subscript) or isinstance(item.slice, (ast.Constant, ast.Slice, ast.Tuple)):
                continue
            mask = item.slice
            bound = _bound(mask, spot)
            plain = isinstance(mask, (ast.Name, ast.Attribute)) and not _SELECTION.search(ast.unparse(mask))
            if isinstance(bound if bound is not None else mask, ast.Compare) or (
                not plain and not isinstance(mask, ast.UnaryOp) and isinstance(mask, (ast.Name, ast.Attribute))
            ):
                return mask
            if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
                return mask
    return None


def _owner(node: ast.Call) -> str | None:
    held = node.func.value if isinstance(node.func, ast.Attribute) else None
    return held.id if isinstance(held, ast.Name) else None


def operand_of(node: ast.Call) -> ast.expr | None:
    """`x` of `x.std()` and of `torch.std(x)`."""
    if isinstance(node.func, ast.Attribute) and _owner(node) not in ("torch", "np", "numpy", "math", "F", "nn"):
        held = node.func.value
        if ast.unparse(held) not in ("torch.special", "nn.functional", "torch.nn.functional"):
            return held
    return node.args[0] if node.args else None


def _bound(node: ast.AST, spot: Spot) -> ast.expr | None:
    """What the last line above gave a variable; of an attribute the only line of its class."""
    name = variable(node)
    if name is None or name == "self":
        return None
    scopes: list[ast.AST] = [spot.scope]
    if name.startswith("self."):
        owner = class_around(spot.tree, spot.scope)
        scopes = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    elif not any(True for _ in values_bound(spot.scope, name)) and not is_parameter(spot.scope, name):
        scopes = [spot.tree]  # a variable of the module
    found = [
        _item(value, index)
        for scope in scopes
        for value, index in values_bound(scope, name)
        if scope is not spot.scope or value.lineno < spot.line
    ]
    last = max((item for item in found if item is not None), key=lambda item: item.lineno, default=None)
    return last if not name.startswith("self.") or len(found) == 1 else None


def _item(value: ast.expr | ast.stmt, index: int | None) -> ast.expr | None:
    """`rows.std(0)` of `a, b = rows.mean(0), rows.std(0)`."""
    if index is not None:
        value = value.elts[index] if isinstance(value, ast.Tuple) and index < len(value.elts) else ast.Pass()
    return value if isinstance(value, ast.expr) else None


def _with_origin(node: ast.expr, spot: Spot) -> str:
    """Its text; of a variable, and of an operation on some, also what the lines above gave them."""
    bound = _bound(node, spot)
    if bound is not None:
        return ast.unparse(bound)
    views = isinstance(node, ast.Call) and called_name(node) in _VIEWS
    several = isinstance(node, (ast.BinOp, ast.Subscript)) or views
    inner = [_bound(item, spot) for item in nodes_of(node)] if several else []
    return " ".join([ast.unparse(node), *(ast.unparse(item) for item in inner if item is not None)])
