"""An attribute that neither a wrapper such as DistributedDataParallel nor its model has, and `.module` without one."""

from __future__ import annotations

import ast

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import attribute_settings
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named

_PLAIN = frozenset({"Module", "nn.Module", "torch.nn.Module"})
_DYNAMIC = frozenset({"__getattr__", "__getattribute__"})
_BY_MODULE = frozenset({"DistributedDataParallel", "DDP", "DataParallel", "DP"})
_SETS = frozenset({"setattr", "add_module", "register_module", "register_buffer", "register_parameter"})
_SAME = frozenset({"to", "cuda", "cpu", "train", "eval", "float", "half", "double", "requires_grad_"})
_MOST_NAMES = 6
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def model_without(at: FailingLine, kind: str, owner: ast.expr, name: str, inner: str) -> str | None:
    """Of a class of the program that derives from nn.Module alone and sets its attributes by name.

    Args:
        at: The line.
        kind: The wrapper's class.
        owner: The wrapper, in the line.
        name: The attribute.
        inner: By which attribute the wrapper has the model.
    """
    model = _model(at, owner, kind)
    if model is None:
        return None
    methods = [item.name for item in model.body if isinstance(item, _FUNCTIONS)]
    fields = {item.id for item in nodes_of(model) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}
    bound = {item.attr for item in _stored(at)}
    calls = {called_name(item) for item in nodes_of(model) if isinstance(item, ast.Call)}
    dynamic = _DYNAMIC & {*methods} or _SETS & calls or "__dict__" in ast.unparse(model)
    if dynamic or name in {*methods, *fields, *bound, *attribute_settings(model)}:
        return None
    shown = [f"{item}()" for item in methods if not item.startswith("_")][:_MOST_NAMES]
    has = f": it has {list_words(shown)}. Correct" if shown else ": correct"
    return (
        f"{model.name} ({at.here(model.lineno)}), which {kind} wraps, has no `{name}` either{has} the name at line "
        f"{at.line}, or add it there; from outside it is `{ast.unparse(owner)}.{inner}.{name}`."
    )


def _stored(at: FailingLine) -> list[ast.Attribute]:
    """Attributes that any line of the program sets, from outside, too."""
    parts = (item for tree in at.files.values() for item in nodes_of(tree))
    return [item for item in parts if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)]


def _model(at: FailingLine, owner: ast.expr, kind: str) -> ast.ClassDef | None:
    """The class of what the only call of the wrapper is given."""
    found = at.made(owner)
    call = found.node if found is not None else None
    if found is None or not isinstance(call, ast.Call) or not call.args or called_name(call) not in (kind, "DDP", "DP"):
        return None
    inside = at.slice.made(call.args[0], found.spot, calls=False)
    while isinstance(inside.node, ast.Call) and called_name(inside.node) in _SAME:
        if not isinstance(inside.node.func, ast.Attribute):
            return None
        inside = at.slice.made(inside.node.func.value, inside.spot, calls=False)
    made = inside.node
    name = called_name(made) if isinstance(made, ast.Call) else None
    model = class_named(at.tree, name) if name is not None else None
    plain = model is not None and [ast.unparse(base) in _PLAIN for base in model.bases] == [True]
    return model if plain else None


def no_wrapper(at: FailingLine, kind: str, name: str) -> str | None:
    """`.module` of a model that is not wrapped here."""
    if name != "module":
        return None
    parts = [item for item in nodes_of(at.statement or ast.Pass()) if isinstance(item, ast.Attribute)]
    owners = {ast.unparse(item.value) for item in parts if item.attr == name}
    named = {part for tree in at.files.values() for part in map(last_name, nodes_of(tree)) if part in _BY_MODULE}
    if len(owners) != 1 or not named or any(item.attr == name for item in _stored(at)):
        return None
    owner, wrapper = owners.pop(), "DataParallel" if named <= {"DataParallel", "DP"} else "DistributedDataParallel"
    came = at.came(owner)
    came = "" if any(part in came for part in _BY_MODULE) else came  # a line that did not run
    return (
        f"`{owner}` is a {kind} that is not wrapped{came}: only {wrapper} has `.module`. Leave it out at "
        f"line {at.line}, or where only some runs wrap the model, take it where there is one: "
        f"`getattr({owner}, 'module', {owner})`."
    )
