"""Which line emptied or filtered a variable, or should have filled it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.failing.usage.path_endings import asked_ending
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, function_named, own_nodes, spans

_FILES = {"glob", "rglob", "iglob", "listdir", "iterdir", "scandir", "walk"}
_TAKES = {"pop", "popleft", "popitem"}
_TAKES_FROM = {*_TAKES, "clear", "remove", "discard", "difference_update", "intersection_update", "resize_"}
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
_LEAVES = (ast.Break, ast.Return, ast.Raise, ast.Try, ast.While, ast.Match)
# Calls and methods whose result is empty only if what they are given is.
_KEEPS = {"sorted", "list", "tuple", "set", "frozenset", "reversed", "enumerate", "array", "asarray", "tensor", "stack"}
_KEEPS_OWN = {
    "float",
    "long",
    "to",
    "cpu",
    "cuda",
    "numpy",
    "tolist",
    "detach",
    "clone",
    "items",
    "keys",
    "values",
    "copy",
}
_KEEPS_OWN |= {"abs", "exp", "log", "sqrt", "squeeze", "unsqueeze"}
_ELEMENTWISE = (ast.Add, ast.Mult, ast.Div, ast.Pow)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_HOPS = 3
_MOST_LOOPS, _MOST_WAYS = 2, 3


def is_empty(value: str | None) -> bool:
    """`list of 0`, `[0, 3] float32`."""
    shape = shape_of(value)
    return bool(value and value.endswith(" of 0")) or (shape is not None and 0 in shape.sizes)


def emptied_by(at: FailingLine, scope: Scope, name: str, line: int, hops: int = _HOPS) -> str | None:
    """`` the mask `keep` (line 8) selects nothing ``, by the line that made it."""
    bound = only_binding(at, scope, name, line)
    if bound is None:
        return None
    number, value = bound
    by = _by_expression(at, scope, value, number, hops)
    if by is not None:
        return by
    fills = [item for item in lines_that_fill(scope, name) if item != line]
    if len(fills) == 1 and _is_empty_literal(value):
        return never_filled(at, scope, name, number, fills[0])
    return None


def only_binding(at: FailingLine, scope: Scope, name: str, line: int) -> tuple[int, ast.AST | None] | None:
    """The line that bound it and its value; None where another one may have, or something was taken out of it since."""
    found = lines_that_bind(scope, name)
    above = [item for item in found if item[0] < line]
    if not above or name.startswith("self.") or _is_reduced(scope, name):
        return None
    if any(isinstance(item, ast.Global) and name in item.names for item in nodes_of(at.tree)):
        return None
    last = max(above, key=lambda item: item[0])
    for item in own_nodes(scope) if len(found) > 1 else ():
        if isinstance(item, _BRANCHES) and spans(item, last[0]) and item.lineno != last[0] and not spans(item, line):
            return None
        if isinstance(item, ast.If) and item.orelse and item.lineno < last[0] < item.orelse[0].lineno <= line:
            return None
        if not isinstance(item, _LOOPS) or not last[0] < item.lineno or not spans(item, line):
            continue
        if any(spans(item, other) for other, _ in found):
            return None
    return last


def _is_empty_literal(value: ast.AST | None) -> bool:
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Call) and not value.args


def _by_expression(at: FailingLine, scope: Scope, value: ast.AST | None, line: int, hops: int) -> str | None:
    if value is None or hops == 0:
        return None
    found = {words for item in _kept(value) if (words := _by_part(at, scope, item, line, hops)) is not None}
    if found:
        return next(iter(found)) if len(found) == 1 else None
    read = [name for name in names_in(value) if isinstance(value, ast.Name) or is_empty(at.value(name))]
    receiver = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    if receiver is not None and is_empty(at.value(receiver)):
        read = [variable(receiver) or ""]
    return emptied_by(at, scope, read[0], line, hops - 1) if len(read) == 1 else None


def _kept(value: ast.AST) -> Iterator[ast.AST]:
    """An expression, and those inside that must be empty for it to be."""
    yield value
    inner: list[ast.AST] = []
    if isinstance(value, ast.Call):
        called = called_name(value)
        own = isinstance(value.func, ast.Attribute) and called in _KEEPS_OWN
        if own and isinstance(value.func, ast.Attribute):
            inner = [value.func.value]
        elif called in _KEEPS:
            inner = [*value.args[:1]]
    elif isinstance(value, ast.BinOp) and isinstance(value.op, _ELEMENTWISE):
        inner = [value.left, value.right]
    for item in inner:
        yield from _kept(item)


def _by_part(at: FailingLine, scope: Scope, item: ast.AST, line: int, hops: int) -> str | None:
    if isinstance(item, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        return _by_comprehension(at, scope, item, line, hops)
    if isinstance(item, ast.Call):
        return _by_call(at, item, line, hops)
    if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load) and not is_empty(at.value(item.value)):
        mask = item.slice
        told = at.value(mask)
        compared = any(isinstance(part, ast.Compare) for part in nodes_of(mask))
        if compared or (told is not None and " bool" in told):
            made = "" if compared else at.came(mask)
            return f"nothing passes the mask `{source(mask)}`{made} at {at.here(line)}"
        if isinstance(mask, ast.Slice):
            return f"the slice `{source(item)}` at {at.here(line)} takes nothing"
    return None


def _by_comprehension(
    at: FailingLine,
    scope: Scope,
    item: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
    line: int,
    hops: int,
) -> str | None:
    first = item.generators[0]
    name = variable(first.iter)
    before = emptied_by(at, scope, name, line, hops - 1) if name is not None else None
    owner = class_around(at.tree, scope) if name is not None and name.startswith("self.") and hops else None
    before = before or (
        emptied_attribute(at, owner, name, hops - 1) if owner is not None and name is not None else None
    )
    over = before or _by_expression(at, scope, first.iter, line, hops - 1)
    conditions = " and ".join(f"`{source(test)}`" for part in item.generators for test in part.ifs)
    if over is not None:
        return f"either {over}, or nothing passes {conditions} ({at.here(line)})" if conditions else over
    if conditions:
        return f"{at.here(line)} keeps what passes {conditions}, which is nothing, or `{source(first.iter)}` is empty"
    return f"{at.here(line)} makes it from `{source(first.iter)}`, which has nothing"


def _by_call(at: FailingLine, call: ast.Call, line: int, hops: int) -> str | None:
    called = called_name(call)
    if called in _FILES:
        return f"`{source(call)}` ({at.here(line)}) finds no file: look at its folder, pattern, extension and case"
    if called in ("masked_select", "nonzero", "filter", "dropna", "query") or (
        called == "where" and len(call.args) == 1
    ):
        return f"`{source(call)}` ({at.here(line)}) selects nothing"
    own = function_named(at.tree, called) if called is not None else None
    if own is None:
        return None
    returns = [item for item in own_nodes(own) if isinstance(item, ast.Return) and item.value is not None]
    if len(returns) != 1 or returns[0].value is None:
        return None
    value, at_line = returns[0].value, returns[0].lineno
    name = variable(value)
    if name is not None:
        return emptied_by(at, own, name, at_line + 1, hops - 1)
    return _by_expression(at, own, value, at_line, hops - 1)


def emptied_attribute(at: FailingLine, owner: ast.ClassDef, name: str, hops: int = _HOPS) -> str | None:
    """By the line of __init__ that sets it."""
    method = next((item for item in owner.body if getattr(item, "name", "") == "__init__"), None)
    others = (item for item in owner.body if item is not method and isinstance(item, ast.FunctionDef))
    if not isinstance(method, ast.FunctionDef) or _is_reduced(owner, name) or any(_sets(item, name) for item in others):
        return None
    sets = _sets(method, name)
    if len(sets) != 1:
        return None
    line, value = sets[0]
    fills = [item for item in lines_that_fill(method, name) if item != line]
    if len(fills) == 1 and _is_empty_literal(value):
        return never_filled(at, method, name, line, fills[0])
    return _by_expression(at, method, value, line, hops)


def counted_by_len(owner: ast.ClassDef) -> str | None:
    """`self.paths` of `return len(self.paths)`, where it returns nothing else."""
    method = next((item for item in owner.body if getattr(item, "name", "") == "__len__"), None)
    found = set()
    for item in nodes_of(method) if method is not None else ():
        if isinstance(item, ast.Return):
            counted = counted_in(item.value) if item.value is not None else None
            found.add(variable(counted) if counted is not None else None)
    name = found.pop() if len(found) == 1 else None
    return name if name is not None and name.startswith("self.") else None


def counted_in(node: ast.AST) -> ast.AST | None:
    """`x` of `len(x)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        return node.args[0]
    return None


def _sets(method: ast.AST, name: str) -> list[tuple[int, ast.expr]]:
    """The lines that set it, and what to: of `a, b = [], []` its own part."""
    found = []
    for item in (one for one in own_nodes(method) if isinstance(one, ast.Assign)):
        for target in item.targets:
            pairs = [(target, item.value)]
            if isinstance(target, ast.Tuple):
                parts = item.value.elts if isinstance(item.value, ast.Tuple) else [item.value] * len(target.elts)
                pairs = [*zip(target.elts, parts, strict=False)]
            found += [(item.lineno, value) for part, value in pairs if variable(part) == name]
    return found


def _is_reduced(scope: ast.AST, name: str) -> bool:
    """Whether a line takes something out of it again: `rows.clear()`, `del rows[0]`, `keep &= seen`."""
    for item in nodes_of(scope):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _TAKES_FROM:
            if variable(item.func.value) == name:
                return True
        elif isinstance(item, ast.AugAssign):
            if variable(item.target) == name and not isinstance(item.op, ast.Add):
                return True
        elif isinstance(item, (ast.Delete, ast.Assign)):
            held = [part for part in item.targets if isinstance(part, ast.Subscript)]
            held = (
                held if isinstance(item, ast.Delete) else [part for part in held if isinstance(part.slice, ast.Slice)]
            )
            if any(variable(part.value) == name for part in held):
                return True
    return False


def never_filled(at: FailingLine, scope: Scope, name: str, made: int, fill: int, does: str = "fills") -> str:
    """By what is around the line that fills it; only that it did not run, where several things can have kept it.

    `does`: what that line does with it; "raises" of a count.
    """
    plain = f"{at.here(made)} makes it empty, and {at.here(fill)}, which {does} it, did not run or had nothing for it"
    loops = [item for item in loops_of(scope) if item.lineno < fill <= (item.end_lineno or 0)]
    before = [
        item
        for item in own_nodes(scope)
        if isinstance(item, ast.stmt) and item.lineno < fill and any(item.lineno > loop.lineno for loop in loops)
    ]
    tests = [
        item for item in own_nodes(scope) if isinstance(item, ast.If) and item.lineno < fill <= (item.end_lineno or 0)
    ]
    skips = [item for item in before if isinstance(item, ast.If) and isinstance(item.body[-1], ast.Continue)]
    held = [*tests, *skips]
    if (
        len(held) > 1
        or len(loops) > _MOST_LOOPS
        or any(isinstance(item, (*_LEAVES, *_LOOPS)) for item in before if item not in loops)
    ):
        return plain
    if any(isinstance(item, ast.While) for item in loops) or any(
        item.orelse and item.orelse[0].lineno <= fill for item in tests
    ):
        return plain
    over = [item for item in loops if isinstance(item, (ast.For, ast.AsyncFor))]
    ways = [
        f"`{source(item.test)}` ({at.here(item.lineno)}{_asked(at, scope, item)}) let nothing through to it"
        for item in held
    ]
    added = _added_by(scope, name, fill)
    ways += [f"what it adds (`{source(added)}`) came to nothing"] if added is not None else []
    ways += [f"`{source(item.iter)}` ({at.here(item.lineno)}) gave nothing" for item in sorted(over, key=_last_first)
             if not _has_items(at, item.iter, scope)]  # fmt: skip
    if not ways or (len(over) > 1 and len(ways) > _MOST_WAYS):
        return plain
    return f"only {at.here(fill)} {does} it, and {', or '.join(ways)}" if over or held else plain


def _asked(at: FailingLine, scope: Scope, item: ast.If) -> str:
    """`, of .../CT_Abdomen/labelsTr`, of a test whether a path is there."""
    here = at.slice.spot(0)
    if here is None:
        return ""
    spot = here if scope is here.scope else Spot(here.file, here.tree, scope, item.lineno)
    ending = asked_ending(at, item.test, structs.replace(spot, line=item.lineno))
    return f", of .../{ending}" if ending is not None else ""


def _last_first(loop: ast.stmt) -> int:
    return -loop.lineno


def _has_items(at: FailingLine, over: ast.expr, scope: Scope) -> bool:
    """Whether what a loop goes over is written out, with items: by the program, or for each item of such a list."""
    here = at.slice.spot(0)
    if here is None or scope is here.scope or not isinstance(over, (ast.Name, ast.Attribute)):
        return False
    made = at.slice.made(over, Spot(here.file, here.tree, scope, over.lineno), calls=False)
    for _ in range(_HOPS):
        if not isinstance(made.node, ast.ListComp) or len(made.node.generators) != 1 or made.node.generators[0].ifs:
            break
        made = at.slice.made(made.node.generators[0].iter, made.spot, calls=False)
    return isinstance(made.node, (ast.List, ast.Tuple)) and bool(made.node.elts)


def _added_by(scope: Scope, name: str, line: int) -> ast.expr | None:
    """What a line adds that may itself be 0 or empty: `n` of `total += n`, `part` of `rows.extend(part)`."""
    for item in own_nodes(scope):
        if isinstance(item, ast.AugAssign) and item.lineno == line and variable(item.target) == name:
            number = isinstance(item.value, ast.Constant) and item.value.value
            items = isinstance(item.value, ast.List) and item.value.elts
            return None if number or items else item.value
        if (
            isinstance(item, ast.Call)
            and item.lineno == line
            and called_name(item) in ("extend", "update")
            and item.args
        ):
            return item.args[0]
    return None
