"""A loop that is to make something shorter, by what a condition leaves of it in each pass.

`while len(boxes): ...; boxes = boxes[overlap < limit]` ends, unless the condition holds for all of `boxes` in a pass:
then nothing is removed, and each further pass is the same. Comparisons with nan are never true.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.appends import sized
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import PURE, RANDOM, bound_in, is_among, is_own, names_read, touched
from pytracer.analyze.evidence.syntax.constants import ORDERS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope
from pytracer.analyze.evidence.syntax.unbounded import (
    EndlessLoop,
    Reason,
    body_of,
    is_unbounded,
    leaves,
    short_text,
    yields,
)

_OVERLAPS = Pattern(r"iou|overlap|nms|box", re.IGNORECASE)
_FINDS = frozenset({"where", "nonzero", "flatnonzero", "argwhere"})
_ELEMENTWISE = frozenset({"logical_and", "logical_or", "logical_not", "logical_xor", "squeeze", "flatten", "view"})
_COMPARES = frozenset({"lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal", "isclose", "eq", "ne"})
_KEEPS_ALL = frozenset({"clone", "contiguous", "copy", "cpu", "detach", "tolist"})
_READS = _KEEPS_ALL | {
    *("size", "dim", "numel", "nelement", "item", "max", "min", "sum", "mean", "argmax", "argmin", "argsort", "sort"),
    *("topk", "unsqueeze", "float", "double", "long", "index", "count", "any", "all"),
}


class Removal(msgspec.Struct, frozen=True):
    """`node` keeps of `whole` what `kept` holds for. `first`: of it, what a pass takes: `boxes[0]`, if it does.

    `always`: a comparison of equality alone, which holds for each element and itself, unless that is nan.
    """

    node: ast.stmt
    whole: str
    kept: ast.expr
    mask: str | None
    first: str | None
    always: bool
    drawn: bool
    overlaps: bool

    def reason(self, loop: EndlessLoop, *, proven: bool) -> Reason:
        """Why it went on. `proven`: the recording shows that no pass has removed anything."""
        line, text, kept = self.node.lineno, short_text(self.node), self._all_kept
        only = f"only line {line} (`{text}`) makes `{self.whole}` shorter"
        words = (
            f"{only}, and it has left all of it in each of the last passes that are recorded: {kept}"
            if proven
            else f"{only}, by nothing where {kept}: then `{self.whole}` stays as it is, and the loop goes on for ever"
        )
        return Reason(
            words, self._advice(loop), sure=proven and not self.drawn, idle=proven, spins=proven and not self.drawn
        )

    @property
    def _all_kept(self) -> str:
        if isinstance(self.kept, ast.UnaryOp) and isinstance(self.kept.op, ast.Invert):
            return f"`{short_text(self.kept.operand)}` is true for no element"
        if isinstance(self.kept, ast.Call) and called_name(self.kept) == "delete":
            return f"`{short_text(self.kept.args[1])}` is empty"
        return f"`{short_text(self.kept)}` keeps each element"

    def _advice(self, loop: EndlessLoop) -> str:
        line, of = self.node.lineno, self.mask or short_text(self.kept)
        nan = ", and two boxes without an area have no overlap, not even one with itself" if self.overlaps else ""
        take = (
            f"Let each pass remove `{self.first}`, whatever the comparison gives"
            if self.first is not None
            else f"Let each pass of the loop of line {loop.lineno} remove at least one element"
        )
        how = f" (set its element of `{self.mask}` before line {line})" if self.mask and self.first else ""
        return (
            f"{take}{how}, or leave the loop when line {line} has left `{self.whole}` as long as it was. Then print "
            f"`{self.whole}` and `{of}`: a comparison with nan is never true{nan}; remove such elements before the "
            f"loop of line {loop.lineno}."
        )


def removal_of(scope: Scope, loop: EndlessLoop) -> Removal | None:
    """What alone makes shorter what the loop's condition asks the length of; None where a pass removes more."""
    whole = _asked(loop)
    if whole is None or yields(body_of(loop)) or not all(_is_of_size(loop, item, whole) for item in leaves(loop)):
        return None
    changing = [item for item in loop.body if _shortens(item, whole)]
    node = changing[0] if len(changing) == 1 else None
    if not isinstance(node, ast.Assign) or not is_own(scope, whole) or _changed_besides(loop, node, whole):
        return None
    kept = _kept(node.value, whole)
    condition = _followed(loop, kept, node) if kept is not None else None
    if kept is None or condition is None:
        return None
    read = {*names_read(condition), *names_read(kept)}
    tests = [item for item in nodes_of(condition) if isinstance(item, ast.Compare)]
    return Removal(
        node,
        whole,
        kept,
        _mask_of(kept),
        _first(loop, whole),
        not any(isinstance(op, ORDERS) for item in tests for op in item.ops),
        any(isinstance(item, ast.Call) and RANDOM.search(ast.unparse(item.func)) for item in body_of(loop)),
        any(_OVERLAPS.search(item) for item in (*read, ast.unparse(condition), whole)),
    )


def _mask_of(kept: ast.expr) -> str | None:
    """`hit` of `boxes[~hit]`."""
    plain = kept.operand if isinstance(kept, ast.UnaryOp) and isinstance(kept.op, ast.Invert) else kept
    return plain.id if isinstance(plain, ast.Name) else None


def _asked(loop: EndlessLoop) -> str | None:
    """`boxes` of `while len(boxes) > 0`, `while boxes.size(0)`, `while boxes`."""
    test = loop.test if isinstance(loop, ast.While) and not is_unbounded(loop) else None
    if isinstance(test, ast.Compare):
        least = test.comparators[0] if len(test.ops) == 1 else None
        more = isinstance(test.ops[0], (ast.Gt, ast.GtE, ast.NotEq))
        test = test.left if more and isinstance(least, ast.Constant) and isinstance(least.value, int) else None
    of = sized(test) if test is not None and not isinstance(test, ast.Name) else test
    return of.id if isinstance(of, ast.Name) else None


def _is_of_size(loop: EndlessLoop, leaving: ast.AST, whole: str) -> bool:
    """Whether it leaves by what the condition asks, too: `if len(boxes) == 1: break`."""
    guard = next((item for item in loop.body if isinstance(item, ast.If) and leaving in item.body), None)
    test = guard.test if guard is not None else None
    if not isinstance(test, ast.Compare) or not isinstance(test.comparators[0], ast.Constant):
        return False
    of = sized(test.left)
    return isinstance(of, ast.Name) and of.id == whole


def _shortens(item: ast.stmt, whole: str) -> bool:
    """Whether it is bound anew there, or in a block of it."""
    stored = [
        part for part in nodes_of(item)
        if isinstance(part, ast.Name) and part.id == whole and not isinstance(part.ctx, ast.Load)
    ]  # fmt: skip
    return bool(stored)


def _changed_besides(loop: EndlessLoop, node: ast.Assign, whole: str) -> bool:
    """Whether another statement takes something out of it: a method, `del`, or a function that is given a list."""
    listed = isinstance(node.value, ast.ListComp) or any(
        isinstance(item, ast.Call) and called_name(item) == "filter" for item in nodes_of(node.value)
    )
    for item in body_of(loop):
        if isinstance(item, ast.Delete) and is_among(whole, bound_in([item])):
            return True
        if not isinstance(item, ast.Call) or item is node.value:
            continue
        if isinstance(item.func, ast.Attribute) and ast.unparse(item.func.value) == whole:
            if item.func.attr not in _READS or listed:
                return True
        elif listed and called_name(item) not in PURE | {"filter"} and is_among(whole, touched([item])):
            return True
    return False


def _kept(value: ast.expr, whole: str) -> ast.expr | None:
    """The condition by which it keeps elements: `~hit` of `boxes[~hit]`, `f(b)` of `[b for b in boxes if f(b)]`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPS_ALL:
        value = value.func.value
    if isinstance(value, ast.Subscript) and ast.unparse(value.value) == whole:
        parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
        rest = parts[1:]
        plain = all(isinstance(item, ast.Slice) and item.lower is None and item.upper is None for item in rest)
        return parts[0] if plain and not isinstance(parts[0], (ast.Slice, ast.Constant)) else None
    if isinstance(value, ast.ListComp) and len(value.generators) == 1:
        only = value.generators[0]
        same = ast.unparse(value.elt) == ast.unparse(only.target) and ast.unparse(only.iter) == whole
        return only.ifs[0] if same and len(only.ifs) == 1 else None
    if isinstance(value, ast.Call) and called_name(value) == "delete" and len(value.args) >= 2:
        return value if ast.unparse(value.args[0]) == whole else None
    return None


def _followed(loop: EndlessLoop, kept: ast.expr, node: ast.stmt) -> ast.expr | None:
    """The comparison behind it; None where it is none, or where an element of it is set, as one to be removed."""
    if isinstance(kept, ast.Call) and called_name(kept) == "delete":
        kept = kept.args[1]
    todo, seen, found = [kept], set[str](), list[ast.expr]()
    stored = {
        ast.unparse(target.value)
        for item in body_of(loop) if isinstance(item, (ast.Assign, ast.AugAssign))
        for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
        if isinstance(target, ast.Subscript)
    }  # fmt: skip
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Name):
            bound = [*_bound(loop, part.id)]
            if part.id in seen:
                continue
            if part.id in stored or len(bound) != 1 or bound[0].lineno > node.lineno:
                return None
            seen.add(part.id)
            todo.append(bound[0].value)
        elif isinstance(part, ast.Compare):
            found.append(part)
        elif isinstance(part, (ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Subscript, ast.Call)):
            inner = _parts(part)
            if inner is None:
                return None
            found += [] if inner else [part]
            todo += inner
        else:
            return None
    return ast.BoolOp(ast.And(), found) if found else None


def _parts(part: ast.expr) -> list[ast.expr] | None:
    """What it combines element by element; [] of a comparison, None of anything else, such as numbers of elements."""
    if isinstance(part, ast.BinOp):
        return [part.left, part.right] if isinstance(part.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) else None
    if isinstance(part, ast.BoolOp):
        return part.values
    if isinstance(part, ast.UnaryOp):
        return [part.operand] if isinstance(part.op, (ast.Invert, ast.Not)) else None
    if isinstance(part, ast.Subscript):  # `torch.where(iou < limit)[0]`
        found = isinstance(part.value, ast.Call) and called_name(part.value) in _FINDS
        return [part.value] if found else None
    if not isinstance(part, ast.Call):
        return None
    name, own = called_name(part), part.func.value if isinstance(part.func, ast.Attribute) else None
    if name in _COMPARES:
        return []
    if name not in _FINDS | _ELEMENTWISE:
        return None
    plain = own is None or (isinstance(own, ast.Name) and own.id in ("torch", "np", "numpy"))
    return [*part.args[:2]] if plain else [own] if own is not None else None


def _bound(loop: EndlessLoop, name: str) -> Iterator[ast.Assign]:
    """Where the loop sets a variable."""
    for item in body_of(loop):
        targets = item.targets if isinstance(item, ast.Assign) else []
        if isinstance(item, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in targets):
            yield item


def _first(loop: EndlessLoop, whole: str) -> str | None:
    """`boxes[0]`, which the pass is about."""
    for item in body_of(loop):
        if isinstance(item, ast.Subscript) and ast.unparse(item.value) == whole:
            parts = item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice]
            if isinstance(parts[0], ast.Constant) and parts[0].value in (0, -1):
                return f"{whole}[{parts[0].value}]"
            if isinstance(parts[0], ast.UnaryOp) and ast.unparse(parts[0]) == "-1":
                return f"{whole}[-1]"
    return None
