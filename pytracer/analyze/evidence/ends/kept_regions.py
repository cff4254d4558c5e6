"""A function that has what a line makes, by the names of its variables; and what a call passes on to another one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import msgspec

from pytracer.analyze.evidence.ends.kept_parts import holds_any
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import elements, last_name, variable
from pytracer.analyze.evidence.syntax.scopes import Scope, parameters

FORWARD = ("forward", "__call__")


class Region(msgspec.Struct, frozen=True):
    """A function whose `names` hold what was made. `spread`: which of its `*args` do; `texts`: its constant strings."""

    file: str
    tree: ast.Module
    scope: Scope
    names: frozenset[str]
    spread: tuple[bool, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    depth: int = 0
    hook: bool = False
    since: int = 0  # the line that binds them


def given_to(
    region: Region, call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, held: ast.expr | None
) -> tuple[frozenset[str], tuple[bool, ...], tuple[tuple[str, str], ...]]:
    """The parameters that hold it, which of `*args` do, and the strings that are passed."""
    flags: list[bool] = []
    texts: list[str | None] = []
    for item in call.args:
        if isinstance(item, ast.Starred):
            own = isinstance(item.value, ast.Name) and item.value.id == _spread_name(region.scope)
            flags += region.spread if own else [holds_any(item.value, region.names)]
            texts += [None] * (len(flags) - len(texts))
            continue
        flags.append(item is held or holds_any(item, region.names))
        text = item.value if isinstance(item, ast.Constant) and isinstance(item.value, str) else None
        texts.append("" if text is None and is_of_few(region.tree, item) else text)
    places = [item for item in parameters(function) if item not in ("self", "cls")]
    names = {name for name, flag in zip(places, flags, strict=False) if flag}
    names |= {
        item.arg
        for item in call.keywords
        if item.arg in places and (item.value is held or holds_any(item.value, region.names))
    }
    keywords = function.args.kwarg
    if keywords is not None and any(
        item.arg not in places and (item.value is held or holds_any(item.value, region.names))
        for item in call.keywords
        if without_losses([item.arg or ""])
    ):
        names.add(keywords.arg)
    said = tuple((name, text) for name, text in zip(places, texts, strict=False) if text is not None)
    spread = tuple(flags[len(places) :])
    more = function.args.vararg
    if more is not None and any(spread):
        names.add(more.arg)
    return without_losses(names), spread, said


def is_of_few(tree: ast.Module, given: ast.expr) -> bool:
    """`phase` of `for phase in ("train", "val")`."""
    name = variable(given)
    return name is not None and any(
        isinstance(item, ast.For)
        and isinstance(item.iter, (ast.Tuple, ast.List))
        and name in map(variable, elements(item.target))
        for item in loops_around(tree, given.lineno)
    )


def name_of(call: ast.Call) -> str | None:
    """Also of `model.forward(x)`, whose object it is."""
    name = called_name(call)
    return last_name(call.func.value) if name in FORWARD and isinstance(call.func, ast.Attribute) else name


def without_losses(names: Iterable[str]) -> frozenset[str]:
    """Without losses: numbers, which hold nothing once backward() was called."""
    return frozenset(name for name in names if "loss" not in name.lower())


def dispatched(call: ast.Call, region: Region) -> str | None:
    """`on_batch_end` of `getattr(callback, name)(...)`, where the caller passed that text."""
    func = call.func
    if not isinstance(func, ast.Call) or called_name(func) != "getattr" or len(func.args) < 2:
        return None
    name = func.args[1]
    if isinstance(name, ast.Constant):
        return str(name.value)
    return dict(region.texts).get(variable(name) or "")


def _spread_name(scope: Scope) -> str | None:
    given = None if isinstance(scope, ast.Module) else scope.args.vararg
    return given.arg if given is not None else None
