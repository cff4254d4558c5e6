"""A list that only one rank may pass to gather() or scatter(), passed by another one."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters

_REFUSED = Pattern(r"Argument `*(gather_list|scatter_list)`* must NOT be specified on non-(?:destination|source) ranks")
_ROOTS = {"gather": "dst", "scatter": "src", "gather_object": "dst"}
_LIST_OF_OBJECTS = "object_gather_list"
_PLACE_OF_LIST, _PLACE_OF_ROOT = 1, 2


def list_of_root(at: FailingLine) -> str | None:
    """What to pass instead."""
    found = _found(at)
    if found is None:
        return None
    call, value, root, name = found
    rank = _rank(at)
    gathers = called_name(call) != "scatter"
    every = "all_gather_object" if name == _LIST_OF_OBJECTS else "all_gather"
    others = f"; if all ranks need it, call {every}()" if gathers else ""
    use = " and use what it holds there only" if gathers else ""
    return (
        f"This rank passes `{source(value)}`{at.came(value)} to {source(call.func)}(), and only rank "
        f"{root} may: write `{name}={source(value)} if {rank} == {root} else None`{use}{others}."
    )


def root_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _found(at)
    if found is None:
        return None
    return f"it passes `{source(found[1])}`{at.came(found[1])}, and only rank {found[2]} may"


def _found(at: FailingLine) -> tuple[ast.Call, ast.expr, str, str] | None:
    refused, call = _REFUSED.search(at.message), at.only(ast.Call)
    root = _ROOTS.get(called_name(call) or "") if call is not None else None
    if refused is None or call is None or root is None or any(isinstance(item, ast.Starred) for item in call.args):
        return None
    name = _LIST_OF_OBJECTS if called_name(call) == "gather_object" else refused[1]
    value = _passed(call, name, _PLACE_OF_LIST)
    rank = _passed(call, root, _PLACE_OF_ROOT)
    named = any(item.arg in ("group_dst", "group_src", None) for item in call.keywords)
    return (call, value, source(rank) if rank is not None else "0", name) if value is not None and not named else None


def _passed(call: ast.Call, name: str, place: int) -> ast.expr | None:
    return argument_at(call, place, name)


def _rank(at: FailingLine) -> str:
    """A variable of the function that is called so."""
    held = {*parameters(at.scope), *(variable(item) for item in nodes_of(at.scope))}
    return next((name for name in ("rank", "self.rank", "global_rank") if name in held), "dist.get_rank()")
