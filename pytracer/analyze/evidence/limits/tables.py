"""Limits that a program sets by a table: `for name, value in LIMITS.items(): resource.setrlimit(KINDS[name], value)`.

Such a call names no limit itself: what it sets is among the entries of the dict, list or tuple that it looks up or
loops over.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name, without_wrappers
from pytracer.analyze.evidence.syntax.constants import constant_number
from pytracer.analyze.evidence.syntax.names import bare_names, holds, last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    all_parameters,
    default_of,
    parameters,
    scope_of,
    spans_body,
)

_WRAPPERS = ("sorted", "list", "tuple", "reversed", "set")
_PAIR = 2
_CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove", "add"})
_Pair = tuple[ast.expr, ast.expr | None]  # of a dict, or a list of pairs; of a list of names without a value


class Tabled(msgspec.Struct, frozen=True):
    """A call that sets a limit by its table. `number`: the table's, where it has one for it and the call passes that.

    `sure`: whether what the call loops over, or looks up, has that limit; otherwise it may be one of several.
    """

    sure: bool
    number: int | None


def tabled(call: ast.Call, tree: ast.Module, trees: Iterable[ast.Module], resource: str) -> Tabled | None:
    """None where the call does not set that limit, as far as the source shows. `trees`: those of the whole program."""
    place = 1 if called_name(call) == "prlimit" else 0
    kind = call.args[place] if len(call.args) > place + 1 else None
    files = [tree, *(item for item in trees if item is not tree)]
    if isinstance(kind, ast.Subscript):
        held = _pairs(_value(kind.value, call, files), by_items=True)
        keys = [ast.dump(key) for key, value in held if value is not None and last_name(value) == resource]
        return _asked(kind.slice, call, files, lambda item: ast.dump(item) in keys) if keys else None
    if isinstance(kind, ast.Call) and called_name(kind) == "getattr" and len(kind.args) > 1:
        name = kind.args[1]
        found = _asked(name, call, files, lambda item: _spelled(name, item) == resource)
        return found if found is not None and found.sure else None
    if isinstance(kind, ast.Name):
        found = _asked(kind, call, files, lambda item: last_name(item) == resource)
        return found if found is not None and found.sure else None
    return None


def _asked(
    name: ast.expr, call: ast.Call, files: Sequence[ast.Module], is_it: Callable[[ast.expr], bool]
) -> Tabled | None:
    """`name`: the expression that chooses the limit: a constant, or made of the variable of a loop around the call."""
    if is_it(name):
        return Tabled(sure=True, number=None)
    if isinstance(name, ast.Constant):
        return None
    loop = _loop_over(name, call, files[0])
    table = _value(_looped(loop), call, files) if loop is not None else None
    if loop is None or table is None:
        return Tabled(sure=False, number=None)
    of_pairs = isinstance(loop.target, ast.Tuple)
    rows = [(key, value) for key, value in _pairs(table, by_items=of_pairs) if is_it(key)]
    if not rows:
        return None
    values = [_number(call, loop, value, files[0]) for _, value in rows]
    return Tabled(sure=True, number=values[0] if len(values) == 1 else None)


def _loop_over(name: ast.expr, call: ast.Call, tree: ast.Module) -> ast.For | None:
    """The loop whose first variable chooses the limit."""
    names = bare_names(name)
    for item in nodes_of(tree):
        if not isinstance(item, ast.For) or not spans_body(item.body, call.lineno):
            continue
        target = item.target
        first = target.elts[0] if isinstance(target, ast.Tuple) and len(target.elts) == _PAIR else target
        if any(holds(first, one) for one in names):
            return item
    return None


def _looped(loop: ast.For) -> ast.expr:
    """`LIMITS` of `sorted(LIMITS.items())`."""
    over = without_wrappers(loop.iter, _WRAPPERS)
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in ("items", "keys"):
        return over.func.value
    return over


def _number(call: ast.Call, loop: ast.For, value: ast.expr | None, tree: ast.Module) -> int | None:
    """What the table has for the limit, where the call passes just that as the soft one."""
    passed = call.args[-1]
    whole = not isinstance(passed, (ast.Tuple, ast.List))
    soft = passed if not isinstance(passed, (ast.Tuple, ast.List)) else next(iter(passed.elts), passed)
    soft = without_wrappers(soft, ("int",))
    target = loop.target
    if value is None or not isinstance(target, ast.Tuple) or variable(soft) != variable(target.elts[1]):
        return None
    if isinstance(value, (ast.Tuple, ast.List)):
        return constant_number(value.elts[0], tree) if whole and value.elts else None
    return constant_number(value, tree)


def _pairs(table: ast.expr | None, *, by_items: bool) -> list[_Pair]:
    """Of a dict its keys with their values; of a list its entries, or the pairs that these are."""
    if isinstance(table, ast.Dict):
        return [(key, value) for key, value in zip(table.keys, table.values, strict=True) if key is not None]
    if isinstance(table, ast.Call):  # dict(cpu=10)
        return [(ast.Constant(item.arg), item.value) for item in table.keywords if item.arg is not None]
    if not isinstance(table, (ast.List, ast.Tuple, ast.Set)):
        return []
    if not by_items:
        return [(item, None) for item in table.elts]
    rows = (item.elts for item in table.elts if isinstance(item, (ast.Tuple, ast.List)))
    return [(row[0], row[1]) for row in rows if len(row) == _PAIR]


def _is_table(node: ast.expr | None) -> bool:
    """Whether it is written out in full."""
    if isinstance(node, ast.Dict):
        return None not in node.keys
    if isinstance(node, ast.Call):
        return called_name(node) == "dict" and not node.args and all(item.arg is not None for item in node.keywords)
    return isinstance(node, (ast.List, ast.Tuple, ast.Set)) and not any(
        isinstance(item, ast.Starred) for item in node.elts
    )


def _value(node: ast.expr, call: ast.Call, files: Sequence[ast.Module]) -> ast.expr | None:
    """The table that an expression of the call's function is; None where another line may fill or replace it."""
    if _is_table(node):
        return node
    scope = scope_of(files[0], call.lineno)
    if isinstance(node, ast.Name) and node.id in all_parameters(scope):
        passed = _passed(scope, node.id, files)
        return _value_named(passed, files) if passed is not None else None
    return _value_named(node, files)


def _value_named(node: ast.expr, files: Sequence[ast.Module]) -> ast.expr | None:
    """Of a name that one line of the program binds; `config.LIMITS` and an imported name are those of another file."""
    name = last_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if name is None:
        return node if _is_table(node) else None
    made: list[ast.expr | None] = []
    for tree in files:
        for item in nodes_of(tree):
            if isinstance(item, (ast.Assign, ast.AnnAssign)):
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                made += [item.value for part in targets if last_name(part) == name and part is not item.value]
            elif isinstance(item, (ast.AugAssign, ast.For, ast.NamedExpr)) and _binds(item.target, name):
                return None
            elif isinstance(item, ast.Call) and called_name(item) in _CHANGES:
                if isinstance(item.func, ast.Attribute) and last_name(item.func.value) == name:
                    return None
            elif isinstance(item, ast.arg) and item.arg == name:
                return None
    return made[0] if len(made) == 1 and _is_table(made[0]) else None


def _binds(target: ast.expr, name: str) -> bool:
    return holds(target, name) or last_name(target) == name


def _passed(scope: Scope, name: str, files: Sequence[ast.Module]) -> ast.expr | None:
    """What the only call of a function passes for a parameter, or its default."""
    own = getattr(scope, "name", None)
    calls = [
        item for tree in files for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == own
    ]
    if own is None or len(calls) != 1 or any(isinstance(item, ast.Starred) for item in calls[0].args):
        return None
    for item in calls[0].keywords:
        if item.arg in (name, None):
            return item.value if item.arg == name else None
    given = [item for item in parameters(scope) if item not in ("self", "cls")]
    place = given.index(name) if name in given else len(calls[0].args)
    return calls[0].args[place] if place < len(calls[0].args) else default_of(scope, name)


def _spelled(name: ast.expr, value: ast.expr) -> str | None:
    """`RLIMIT_CPU`, of `f"RLIMIT_{kind.upper()}"` for `cpu`."""
    if isinstance(name, ast.Constant):
        return name.value if isinstance(name.value, str) else None
    if isinstance(name, ast.Name):
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    if isinstance(name, ast.FormattedValue):
        return _spelled(name.value, value)
    if isinstance(name, ast.JoinedStr):
        return _joined(_spelled(item, value) for item in name.values)
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        return _joined(_spelled(item, value) for item in (name.left, name.right))
    if isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute) and name.func.attr == "upper":
        text = _spelled(name.func.value, value)
        return text.upper() if text is not None else None
    return None


def _joined(parts: Iterator[str | None]) -> str | None:
    texts = [*parts]
    return "".join(text for text in texts if text is not None) if None not in texts else None
