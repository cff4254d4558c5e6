"""Conditions that are proven to ask for the rank of the job, or the local one, by all that can set what they read.

Stricter than `is_for_one_rank`, which goes by names: `rank = world_rank % tp` is no rank here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.bindings import bindings_of, element_of
from pytracer.analyze.evidence.slicing.callers import called_function, mentions, only_call
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    classes_below,
    definitions,
    is_parameter,
    own_nodes,
    scope_of,
)

Files = Mapping[str, ast.Module]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ENVIRONMENT = Pattern(r"(?:os\.)?(?:environ(?:\.get)?|getenv)[\[(]'(LOCAL_)?RANK'(?:, [^,]+)?[\])]")
_GET_RANK = ("get_rank", "dist.get_rank", "distributed.get_rank", "torch.distributed.get_rank")
_PLAIN_BASES = ("object", "ABC", "abc.ABC", "nn.Module", "torch.nn.Module", "Module")
_HOOKS = ("__getattr__", "__getattribute__", "__setattr__")
_DEEPEST = 6


class Place(msgspec.Struct, frozen=True):
    """A function, or the module, in which an expression is read."""

    file: str
    tree: ast.Module
    scope: Scope


class Setting(msgspec.Struct, frozen=True):
    """A line that sets a variable; `value` is None where it is no expression of its own."""

    place: Place
    line: int
    value: ast.expr | None


class RankTest(msgspec.Struct, frozen=True):
    """Holds on one rank alone, `number`, or, unless `one`, on all but that."""

    number: int
    local: bool
    one: bool


def rank_test(files: Files, test: ast.AST, place: Place, depth: int = _DEEPEST) -> RankTest | None:
    """None where it is not proven what a condition asks."""
    if not depth:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = rank_test(files, test.operand, place, depth - 1)
        return msgspec.structs.replace(inner, one=not inner.one) if inner is not None else None
    if isinstance(test, ast.Compare):
        return _compared(files, test, place, depth)
    if isinstance(test, ast.Call):
        given = returned(files, test, place)
        return (
            rank_test(files, given[0].value, given[0].place, depth - 1) if len(given) == 1 and given[0].value else None
        )
    known = _only(files, test, place)
    return rank_test(files, known.value, known.place, depth - 1) if known is not None and known.value else None


def _compared(files: Files, test: ast.Compare, place: Place, depth: int) -> RankTest | None:
    number = test.comparators[0]
    if len(test.ops) != 1 or not isinstance(number, ast.Constant) or type(number.value) is not int or number.value < 0:
        return None
    local, kind = _is_local(files, test.left, place, depth), test.ops[0]
    known = isinstance(kind, (ast.Eq, ast.NotEq)) or (isinstance(kind, ast.Gt) and number.value == 0)
    return RankTest(number.value, local, isinstance(kind, ast.Eq)) if known and local is not None else None


def _is_local(files: Files, node: ast.AST, place: Place, depth: int) -> bool | None:
    """Whether it is the local rank; None where it is not proven to be either."""
    if not depth:
        return None
    if isinstance(node, ast.Call) and called_name(node) == "int" and len(node.args) == 1:
        return _is_local(files, node.args[0], place, depth - 1)
    read = _ENVIRONMENT.fullmatch(ast.unparse(node))
    if read is not None:
        return read[1] is not None
    if isinstance(node, ast.Call):
        given = returned(files, node, place)
        if given:
            kinds = {
                _is_local(files, item.value, item.place, depth - 1)
                for item in given
                if item.value is not None and not isinstance(item.value, ast.Constant)
            }
            return kinds.pop() if len(kinds) == 1 else None
        library = called_function(files, place.tree, node) is None and not node.args and not node.keywords
        return False if library and ast.unparse(node.func) in _GET_RANK and not _names(files, "get_rank") else None
    if isinstance(node, ast.Name) and _is_joined_as(place.scope, node.id):
        settings = settings_of(files, node, place)
        return False if settings is not None and len(settings) < 2 else None
    known = _only(files, node, place)
    return _is_local(files, known.value, known.place, depth - 1) if known is not None and known.value else None


def _only(files: Files, node: ast.AST, place: Place) -> Setting | None:
    settings = settings_of(files, node, place)
    if settings is not None and len(settings) == 1:
        return settings[0]
    given = passed(files, node.id, place) if isinstance(node, ast.Name) and settings == [] else None
    return given[0] if given is not None else None


def _names(files: Files, name: str) -> bool:
    return any(definitions(tree).get(name) for tree in files.values())


def _is_joined_as(scope: Scope, name: str) -> bool:
    """`init_process_group(rank=rank)`."""
    calls = (item for item in own_nodes(scope) if isinstance(item, ast.Call))
    given = [keyword_value(item, "rank") for item in calls if called_name(item) == "init_process_group"]
    return len(given) == 1 and isinstance(given[0], ast.Name) and given[0].id == name


def returned(files: Files, call: ast.Call, place: Place) -> list[Setting]:
    """What the program's own function gives, if each `return` has a value; nothing of one that is wrapped."""
    own = called_function(files, place.tree, call)
    if own is None or not is_plain(own[1]) or not isinstance(own[1].body[-1], ast.Return):
        return []
    inner = Place(own[0], files[own[0]], own[1])
    return [Setting(inner, item.lineno, item.value) for item in own_nodes(own[1]) if isinstance(item, ast.Return)]


def is_plain(function: ast.AST) -> bool:
    """Neither wrapped, nor a generator, nor awaited."""
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    return not any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(function))


def settings_of(files: Files, node: ast.AST, place: Place) -> list[Setting] | None:
    """All that set a variable, or an attribute of `self`; none of a parameter that no known call passes.

    None where others may set it.
    """
    if isinstance(node, ast.Attribute):
        return _of_attribute(files, node, place)
    return _of_name(files, node.id, place) if isinstance(node, ast.Name) else None


def _of_name(files: Files, name: str, place: Place) -> list[Setting] | None:
    if any(name in item.names for item in nodes_of(place.tree) if isinstance(item, (ast.Global, ast.Nonlocal))):
        return None
    own = [*_bound(place, name)]
    if _stores(place.scope, name) != len(own) or any(
        isinstance(item, (ast.ExceptHandler, ast.MatchAs)) and item.name == name for item in own_nodes(place.scope)
    ):
        return None
    if is_parameter(place.scope, name):
        return [] if not own else None
    if own or isinstance(place.scope, ast.Module):
        return own
    if (
        any(ast.unparse(item.value) != "self" for item in _assigned(files, name))
        or isinstance(place.scope, ast.Lambda)
        or scope_of(place.tree, place.scope.lineno) is not place.tree
    ):
        return None
    return _of_name(files, name, Place(place.file, place.tree, place.tree))


def passed(files: Files, name: str, place: Place) -> tuple[Setting, ast.Call] | None:
    """What the only call of a function, or of its class, passes for a parameter."""
    scope = place.scope
    if not isinstance(scope, _FUNCTIONS) or not is_plain(scope):
        return None
    owner = class_around(place.tree, scope)
    if owner is not None and scope.name == "__init__":
        found = [(file, tree, item) for file, tree, item in mentions(files, owner.name)]
        calls = [
            (file, tree, item)
            for file, tree in files.items()
            for item in nodes_of(tree)
            if isinstance(item, ast.Call) and called_name(item) == owner.name
        ]
        if len(found) != 1 or len(calls) != 1 or not _is_alone(files, owner):
            return None
        file, tree, call = calls[0]
    else:
        only = only_call(files, scope)
        if only is None or only.passed is not None or len([*mentions(files, scope.name)]) != 1:
            return None
        file, tree, call = only.file, only.tree, only.call
    value = argument_of(call, scope, name)
    outer = Place(file, tree, scope_of(tree, call.lineno))
    return (Setting(outer, call.lineno, value), call) if value is not None else None


def _is_alone(files: Files, owner: ast.ClassDef) -> bool:
    """Whether no other class has that name, nor is derived from it, and none wraps it."""
    named = [item for tree in files.values() for item in definitions(tree).get(owner.name, ())]
    return len(named) == 1 and classes_below(files.values(), owner) == [] and not owner.decorator_list


def _bound(place: Place, name: str) -> Iterator[Setting]:
    for line, value, index in bindings_of(place.scope, name):
        yield Setting(place, line, element_of(value, index))


def _stores(scope: ast.AST, name: str) -> int:
    return sum(
        isinstance(item, ast.Name) and item.id == name and not isinstance(item.ctx, ast.Load)
        for item in own_nodes(scope)
    )


def _assigned(files: Files, name: str) -> list[ast.Attribute]:
    """Wherever an attribute of that name is set or deleted."""
    nodes = (item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.Attribute))
    return [item for item in nodes if item.attr == name and not isinstance(item.ctx, ast.Load)]


def _of_attribute(files: Files, node: ast.Attribute, place: Place) -> list[Setting] | None:
    """Of `self` alone, of a class whose other attributes no library and no other class sets."""
    owner = class_around(place.tree, place.scope)
    if owner is None or not isinstance(node.value, ast.Name) or node.value.id != "self" or owner.decorator_list:
        return None
    name = node.attr
    if any(_may_set(item, name) for tree in files.values() for item in nodes_of(tree)):
        return None
    if not all(_is_of_program(files, item) for item in (owner, *classes_below(files.values(), owner))):
        return None
    methods = [item for item in owner.body if isinstance(item, _FUNCTIONS)]
    found = [one for part in methods for one in _bound(Place(place.file, place.tree, part), f"self.{name}")]
    return found if found and len(found) == len(_assigned(files, name)) else None


def _is_of_program(files: Files, owner: ast.ClassDef) -> bool:
    """Whether all it inherits from is known."""
    if owner.keywords or any(getattr(item, "name", None) in _HOOKS for item in owner.body):
        return False
    for base in owner.bases:
        text = ast.unparse(base)
        found = [item for tree in files.values() for item in definitions(tree).get(text.rpartition(".")[2], ())]
        if text in _PLAIN_BASES and not found:
            continue
        if len(found) != 1 or not isinstance(found[0], ast.ClassDef) or not _is_of_program(files, found[0]):
            return False
    return True


def _may_set(node: ast.AST, name: str) -> bool:
    """Whether a class has it itself, or a line may set it by its name."""
    if isinstance(node, ast.ClassDef):
        return any(name in _named_by(item) for item in node.body)
    if isinstance(node, ast.Attribute):
        return node.attr == "__dict__"
    if not isinstance(node, ast.Call) or called_name(node) not in ("setattr", "__setattr__", "vars"):
        return False
    keys = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return not keys or name in keys


def _named_by(part: ast.stmt) -> list[str]:
    if isinstance(part, (*_FUNCTIONS, ast.ClassDef)):
        return [part.name]
    targets = part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.AnnAssign) else []
    return [item.id for item in targets if isinstance(item, ast.Name)]
