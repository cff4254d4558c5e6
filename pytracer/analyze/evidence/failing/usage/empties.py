"""What is empty or 0 at the failing line, and which line emptied it, filtered it, or should have filled it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.exceptions.name_origins import EMPTY_MESSAGE
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, class_named, function_named, own_nodes, spans

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


def is_empty(value: str | None) -> bool:
    """`list of 0`, `[0, 3] float32`."""
    shape = shape_of(value)
    return bool(value and value.endswith(" of 0")) or (shape is not None and 0 in shape.sizes)


def nothing_there(at: FailingLine) -> str | None:
    """An index, reduction, division or pop that met nothing."""
    if at.kind == "ZeroDivisionError":
        return _zero(at) if at.own else None
    if not EMPTY_MESSAGE.search(at.message) and at.kind != "IndexError":
        return None
    node = at.node
    if node is None:
        return None
    taken = _used_up(at)
    if taken is not None:
        return taken
    if "num_samples=0" in at.message:
        return _empty_dataset(at, node)
    if at.kind == "IndexError" and at.own and not EMPTY_MESSAGE.search(at.message):
        node = getattr(at.only(ast.Subscript), "value", None)
        if node is None:
            return None
    names = [name for name in names_in(node) if is_empty(at.value(name))]
    if len(names) != 1:
        return None
    why = emptied_by(at, at.scope, names[0], at.line)
    several = any(line < at.line for line, _ in lines_that_bind(at.scope, names[0]))
    several = several and _bound(at, at.scope, names[0], at.line) is None
    made = f": {why}" if why else at.came(names[0]) if not several else ""
    return f"`{names[0]}` is empty{made}. {_HANDLE}"


def _empty_dataset(at: FailingLine, node: ast.AST) -> str | None:
    """By the class of the program that the loader was given, and what its length counts."""
    for name in names_in(node):
        bound = _bound(at, at.scope, name, at.line)
        call = bound[1] if bound is not None else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        owner = class_named(at.tree, call.func.id)
        counted = _counted_by_len(owner) if owner is not None else None
        if owner is None or counted is None:
            continue
        why = _of_attribute(at, owner, counted)
        made = f" (line {bound[0]}: `{source(call)}`)" if bound is not None else ""
        words = f"`{name}`{made} is empty, as its `{counted}` is"
        return f"{words}: {why}." if why else f"{words}. Look at what {owner.name}.__init__ fills it with."
    return None


def _counted_by_len(owner: ast.ClassDef) -> str | None:
    """`self.paths` of `return len(self.paths)`."""
    method = next((item for item in owner.body if getattr(item, "name", "") == "__len__"), None)
    for item in ast.walk(method) if method is not None else ():
        counted = _counted(item.value) if isinstance(item, ast.Return) and item.value is not None else None
        name = variable(counted) if counted is not None else None
        if name is not None and name.startswith("self."):
            return name
    return None


def _of_attribute(at: FailingLine, owner: ast.ClassDef, name: str, hops: int = _HOPS) -> str | None:
    """By the line of __init__ that sets it."""
    method = next((item for item in owner.body if getattr(item, "name", "") == "__init__"), None)
    others = (item for item in owner.body if item is not method and isinstance(item, ast.FunctionDef))
    if not isinstance(method, ast.FunctionDef) or _is_reduced(owner, name) or any(_sets(item, name) for item in others):
        return None
    sets = _sets(method, name)
    if len(sets) != 1:
        return None
    fills = [line for line in lines_that_fill(method, name) if line != sets[-1].lineno]
    if len(fills) == 1 and _is_empty_literal(sets[-1].value):
        return _never_filled(at, method, name, sets[-1].lineno, fills[0])
    return _by_expression(at, method, sets[-1].value, sets[-1].lineno, hops)


def _sets(method: ast.AST, name: str) -> list[ast.Assign]:
    return [
        item
        for item in own_nodes(method)
        if isinstance(item, ast.Assign) and any(variable(target) == name for target in item.targets)
    ]


def _is_reduced(scope: ast.AST, name: str) -> bool:
    """Whether a line takes something out of it again: `rows.clear()`, `del rows[0]`, `keep &= seen`."""
    for item in ast.walk(scope):
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


def _bound(at: FailingLine, scope: Scope, name: str, line: int) -> tuple[int, ast.AST | None] | None:
    """The line that bound it and its value; None where another one may have, or something was taken out of it since."""
    found = lines_that_bind(scope, name)
    above = [item for item in found if item[0] < line]
    if not above or name.startswith("self.") or _is_reduced(scope, name):
        return None
    if any(isinstance(item, ast.Global) and name in item.names for item in ast.walk(at.tree)):
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


_HANDLE = "Handle the empty case before this line, or find what should have been there."


def _used_up(at: FailingLine) -> str | None:
    calls = [item for item in ast.walk(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    takes = [item for item in calls if isinstance(item.func, ast.Attribute) and item.func.attr in _TAKES]
    if at.kind not in ("IndexError", "KeyError") or len(takes) != 1 or "empty" not in at.message:
        return None
    call = takes[0]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call
    name = variable(owner)
    if name is None:
        return None
    filled = at.came(name)
    return (
        f"Each `{source(call)}` takes one away, and `{name}`{filled} is used up or was never filled. Fill it again "
        "before, take by index or itertools.cycle() instead, or stop when it is empty."
    )


def emptied_by(at: FailingLine, scope: Scope, name: str, line: int, hops: int = _HOPS) -> str | None:
    """`` the mask `keep` (line 8) selects nothing ``, by the line that made it."""
    bound = _bound(at, scope, name, line)
    if bound is None:
        return None
    number, value = bound
    by = _by_expression(at, scope, value, number, hops)
    if by is not None:
        return by
    fills = [item for item in lines_that_fill(scope, name) if item != line]
    if len(fills) == 1 and _is_empty_literal(value):
        return _never_filled(at, scope, name, number, fills[0])
    return None


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
        compared = any(isinstance(part, ast.Compare) for part in ast.walk(mask))
        if compared or (told is not None and " bool" in told):
            made = "" if compared else at.came(variable(mask) or "")
            return f"nothing passes the mask `{source(mask)}`{made} at line {line}"
        if isinstance(mask, ast.Slice):
            return f"the slice `{source(item)}` at line {line} takes nothing"
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
    before = before or (_of_attribute(at, owner, name, hops - 1) if owner is not None and name is not None else None)
    over = before or _by_expression(at, scope, first.iter, line, hops - 1)
    conditions = " and ".join(f"`{source(test)}`" for part in item.generators for test in part.ifs)
    if over is not None:
        return f"either {over}, or nothing passes {conditions} (line {line})" if conditions else over
    if conditions:
        return f"line {line} keeps what passes {conditions}, which is nothing, or `{source(first.iter)}` is empty"
    return f"line {line} makes it from `{source(first.iter)}`, which has nothing"


def _by_call(at: FailingLine, call: ast.Call, line: int, hops: int) -> str | None:
    called = called_name(call)
    if called in _FILES:
        return f"`{source(call)}` (line {line}) finds no file: look at its folder, pattern, extension and case"
    if called in ("masked_select", "nonzero", "filter", "dropna", "query") or (
        called == "where" and len(call.args) == 1
    ):
        return f"`{source(call)}` (line {line}) selects nothing"
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


def _never_filled(at: FailingLine, scope: Scope, name: str, made: int, fill: int) -> str:
    """By what is around the line that fills it; only that it did not run, where several things can have kept it."""
    plain = f"line {made} makes it empty, and line {fill}, which fills it, did not run or had nothing for it"
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
        or len(loops) > 1
        or any(isinstance(item, (*_LEAVES, *_LOOPS)) for item in before if item not in loops)
    ):
        return plain
    if any(isinstance(item, ast.While) for item in loops) or any(
        item.orelse and item.orelse[0].lineno <= fill for item in tests
    ):
        return plain
    loop = next((item for item in loops if isinstance(item, (ast.For, ast.AsyncFor))), None)
    ways = [f"`{source(item.test)}` (line {item.lineno}) let nothing through to it" for item in held]
    added = _added_by(scope, name, fill)
    ways += [f"what it adds (`{source(added)}`) came to nothing"] if added is not None else []
    ways += [f"`{source(loop.iter)}` (line {loop.lineno}) gave nothing"] if loop is not None else []
    return f"only line {fill} fills it, and {', or '.join(ways)}" if loop is not None or held else plain


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


def _zero(at: FailingLine) -> str | None:
    """The divisor: a count that was never raised, or the length of something empty."""
    operations = (ast.Div, ast.FloorDiv, ast.Mod)
    node = at.node
    divisions = [
        item
        for item in (ast.walk(node) if node is not None else ())
        if isinstance(item, ast.BinOp) and isinstance(item.op, operations)
    ]
    divisor = divisions[0].right if divisions and (isinstance(node, ast.BinOp) or len(divisions) == 1) else None
    if divisor is None and isinstance(at.statement, ast.AugAssign) and isinstance(at.statement.op, operations):
        divisor = at.statement.value
    if divisor is None:
        return None
    counted = _counted(divisor)
    if counted is not None:
        name = variable(counted)
        why = emptied_by(at, at.scope, name, at.line) if name is not None else None
        made = f": {why}" if why else at.came(name or "")
        return f"`{source(counted)}` has no elements, so its length is 0{made}. {_HANDLE}"
    name = variable(divisor)
    if name is None or at.value(name) not in ("0", "0.0", None):
        return None
    bound = _bound(at, at.scope, name, at.line)
    fills = [item for item in lines_that_fill(at.scope, name) if item != at.line]
    if bound is not None and isinstance(bound[1], ast.Call) and _counted(bound[1]) is not None and not fills:
        counted = _counted(bound[1])
        inner = variable(counted) if counted is not None else None
        why = emptied_by(at, at.scope, inner, bound[0]) if inner is not None else None
        return f"`{name}` is 0, the length of `{inner}` (line {bound[0]}){f': {why}' if why else ''}. {_HANDLE}"
    if bound is None or len(fills) != 1:
        made = at.came(name) if not fills else ""
        return (
            f"`{name}`{made} is 0 where line {at.line} divides by it: correct it there, or handle 0 here."
            if made
            else None
        )
    added = _added_nothing(at, fills[0])
    why = added or _never_filled(at, at.scope, name, bound[0], fills[0]).replace("fills it", "raises it")
    return f"`{name}` is still 0: {why}. Handle the empty case (return before, or `max({name}, 1)`)."


def _counted(node: ast.AST) -> ast.AST | None:
    """`x` of `len(x)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        return node.args[0]
    return None


def _added_nothing(at: FailingLine, fill: int) -> str | None:
    """The line that counts ran, with something empty."""
    node = next((item for item in own_nodes(at.scope) if isinstance(item, ast.AugAssign) and item.lineno == fill), None)
    names = [name for name in names_in(node.value) if is_empty(at.value(name))] if node is not None else []
    if not names:
        return None
    why = emptied_by(at, at.scope, names[0], fill)
    return f"line {fill} adds nothing, as `{names[0]}` is empty{f': {why}' if why else ''}"
