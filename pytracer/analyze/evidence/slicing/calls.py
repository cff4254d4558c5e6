"""What a call passes for a parameter, and which call of a line led into a function."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from msgspec import structs

from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, is_bound, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function

MADE_ON_CALL = ("forward", "__call__")
_BUILT_IN = frozenset(dir(builtins))
_RETURN_SELF = frozenset(
    {"eval", "train", "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "requires_grad_"}
)
_WRAPPERS = frozenset({"DistributedDataParallel", "DDP", "DataParallel"})


def argument_of(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call passes for a parameter."""
    given = keyword_value(call, name)
    options = [item.value for item in call.keywords if item.arg is None]
    if given is not None:
        return given
    if len(options) == 1 and not call.args:  # `f(**batch())`
        return _part(options[0], name)
    places = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    if name not in places:
        return None
    place = places.index(name) - is_bound(call, places, function)
    spread = [n for n, item in enumerate(call.args) if isinstance(item, ast.Starred)]
    if len(spread) == 1 and spread[0] <= place and spread[0] == len(call.args) - 1:  # `f(*pair())`
        held = call.args[spread[0]]
        return _part(held.value, place - spread[0]) if isinstance(held, ast.Starred) else None
    if len(spread) == 1:  # `f(*pair(), x)`: by what follows, where each parameter is given
        behind = len(call.args) - len(places) + place + is_bound(call, places, function)
        if behind > spread[0] and _takes_each(call, function, places):
            return call.args[behind] if behind < len(call.args) else None
    before = call.args[: place + 1]
    whole = 0 <= place < len(call.args) and not any(isinstance(item, ast.Starred) for item in before)
    return call.args[place] if whole else None


def child_of(node: ast.AST, place: int) -> ast.expr | None:
    """A layer of `nn.Sequential(...)` or `nn.ModuleList([...])`, where these are written out."""
    if not isinstance(node, ast.Call) or called_name(node) not in ("Sequential", "ModuleList"):
        return None
    listed = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], (ast.List, ast.Tuple)) else None
    items = listed.elts if listed is not None else node.args
    whole = place < len(items) and not any(isinstance(item, ast.Starred) for item in items[: place + 1])
    return items[place] if whole else None


def _takes_each(call: ast.Call, function: Function, places: list[str]) -> bool:
    """Whether a call must pass each parameter by its place."""
    named = any(item.arg is None or item.arg in places for item in call.keywords)
    return not (named or function.args.defaults or function.args.vararg)


def _part(value: ast.expr, key: int | str) -> ast.expr:
    """`value[key]`, which no line has written."""
    made = ast.Subscript(value, ast.Constant(key), ast.Load())
    return ast.fix_missing_locations(ast.copy_location(made, value))


def call_of(
    tree: ast.Module, line: int, function: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef | None
) -> ast.Call | None:
    """The call of a line that led into a function; None where several may have."""
    found = calls_that_lead(tree, line, function, owner)
    return found[0] if len(found) == 1 else None


def calls_that_lead(
    tree: ast.Module, line: int, function: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef | None
) -> list[ast.Call]:
    """The calls of a line that may have led into a function."""
    calls = calls_on(tree, line)
    named = [item for item in calls if called_name(item) == function.name]
    if function.name == "__init__" and owner is not None:
        named = [item for item in calls if called_name(item) == owner.name] or named
    elif owner is not None and (applied := [item for item in calls if _applies(item, owner.name)]):
        named = applied if function.name == "forward" else named
    elif function.name in MADE_ON_CALL and not named:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        others = {None, *_BUILT_IN, *(item.name for item in tree.body if isinstance(item, kinds))}
        named = [
            item
            for item in calls
            if (variable(item.func) not in others or isinstance(item.func, ast.Call)) and _fits(item, function)
        ]
    return named


def _applies(call: ast.Call, name: str) -> bool:
    """`Exchange.apply(x)`, of an autograd function: it calls forward()."""
    of = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "apply" else None
    return of is not None and ast.unparse(of).rpartition(".")[2] == name


def _fits(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it may pass all that the method needs."""
    spread = any(isinstance(item, ast.Starred) for item in call.args) or any(item.arg is None for item in call.keywords)
    required = len(function.args.args) - 1 - len(function.args.defaults)
    return spread or len(call.args) + len(call.keywords) >= required


def same_object(node: ast.AST) -> ast.expr | None:
    """`Net()` of `Net().eval()` and of `DDP(Net())`: whose forward() a call reaches."""
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node)
    if name in _WRAPPERS and node.args:
        return node.args[0]
    return node.func.value if isinstance(node.func, ast.Attribute) and name in _RETURN_SELF else None


def method_of(owner: ast.AST, names: Sequence[str]) -> ast.FunctionDef | None:
    """The first method of a class that has one of these names."""
    body = owner.body if isinstance(owner, ast.ClassDef) else []
    return next((item for item in body if isinstance(item, ast.FunctionDef) and item.name in names), None)


def parsed_option(base: Made, name: str) -> tuple[ast.AST, Spot] | None:
    """The default of an option of argparse, where it is in the same file."""
    found = []
    for item in nodes_of(base.spot.tree):
        if not isinstance(item, ast.Call) or called_name(item) != "add_argument":
            continue
        words = [part.value for part in item.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if any(word.lstrip("-").replace("-", "_") == name for word in words):
            found.append(item)
    if len(found) != 1:  # of two parsers it is not known which is meant
        return None
    return found[0], structs.replace(base.spot, scope=base.spot.tree, line=found[0].lineno, depth=None, call=None)
