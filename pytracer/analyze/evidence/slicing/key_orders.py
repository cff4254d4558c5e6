"""Lines that put keys into a dict, or items into a list, in the order in which data first has them, by the source.

`if name not in self.buckets: self.buckets[name] = ...`, `setdefault(name, [])`, `groups[key].append(x)`. What a model,
a constant or sorted() gives the keys has one order on all ranks, and is not among them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import each_set, lines_that_bind, set_by
from pytracer.analyze.evidence.syntax.calls import called_name, without_wrappers
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import holds, is_attribute, names_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, is_parameter, own_nodes, scope_of

_OF_MODELS = frozenset(
    {"parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children"}
    | {"named_children", "state_dict", "param_groups", "range", "sorted"}
    | {"ModuleDict", "ModuleList", "Sequential", "ParameterDict", "ParameterList"}
)
_OPTIONS = frozenset({"args", "cfg", "config", "conf", "opt", "opts", "options", "hparams", "params", "settings"})
_WRAPPERS = ("enumerate", "list", "tuple", "reversed", "iter", "tqdm")
_VIEWS = ("items", "keys", "values")
_OF_TENSORS = frozenset({"dtype", "device", "shape", "layout"})
_ADDS = ("append", "add", "extend", "insert", "update")
_DEPTH = 3
_LITERALS = (ast.List, ast.Tuple, ast.Dict, ast.Constant)


class Put(msgspec.Struct, frozen=True):
    """A line that puts a key in which is no constant."""

    file: str
    line: int


def container_of(iterated: ast.expr) -> ast.expr | None:
    """`self.buckets` of `enumerate(self.buckets.items())`; None of what is sorted, or no variable."""
    node = without_wrappers(iterated, _WRAPPERS)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
        node = node.func.value
    return node if isinstance(node, (ast.Name, ast.Attribute)) else None


def puts_of(slice_: Slice, files: Mapping[str, ast.Module], container: ast.expr, spot: Spot) -> list[Put]:
    """The lines by which data decides what comes first; none where one order is as likely."""
    found = dict[tuple[str, int], Put]()
    for file, tree, scope, text in _places(slice_, files, container, spot):
        for node in own_nodes(scope):
            key = _key_put(node, text, tree)
            if key is not None and not _is_alike(files, key, file, tree, node.lineno):  # type: ignore[attr-defined]
                at = (file, node.lineno)  # type: ignore[attr-defined]
                found.setdefault(at, Put(*at))
    return [found[at] for at in sorted(found)]


def _places(
    slice_: Slice, files: Mapping[str, ast.Module], container: ast.expr, spot: Spot
) -> Iterator[tuple[str, ast.Module, Scope, str]]:
    """Scopes in which the container has a name, and that name."""
    if isinstance(container, ast.Attribute):
        yield from _of_attribute(files, container, spot)
        return
    made = slice_.made(container, spot, calls=False)
    held = [*made.through] or [(container, spot)]
    for part, at in held:
        if isinstance(part, ast.Attribute):
            yield from _of_attribute(files, part, at)
        elif isinstance(part, ast.Name) and at.file is not None:
            own = is_parameter(at.scope, part.id) or lines_that_bind(at.scope, part.id)
            scopes = [at.scope] if own and not isinstance(at.scope, ast.Module) else _scopes(at.tree)
            yield from ((at.file, at.tree, scope, part.id) for scope in scopes)


def _of_attribute(
    files: Mapping[str, ast.Module], node: ast.Attribute, spot: Spot
) -> Iterator[tuple[str, ast.Module, Scope, str]]:
    """`self.x` in the methods of the class, and `owner.x` wherever another function has it."""
    owner = class_around(spot.tree, spot.scope)
    for file, tree in files.items():
        for scope in _scopes(tree):
            around = class_around(tree, scope)
            for text in {ast.unparse(item) for item in own_nodes(scope) if is_attribute(item, node.attr)}:
                if not text.startswith("self.") or owner is None or around is owner:
                    yield file, tree, scope, text


def _scopes(tree: ast.Module) -> list[Scope]:
    return [tree, *(item for item in nodes_of(tree) if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)))]


def _key_put(node: ast.AST, text: str, tree: ast.Module) -> ast.expr | None:
    """The key that a node puts into a container of that name."""
    if isinstance(node, ast.Assign):
        for target, _ in each_set(node.targets, node.value):
            if _is_item(target, text):
                return target.slice  # type: ignore[attr-defined,no-any-return]
    if isinstance(node, ast.AugAssign) and _is_item(node.target, text):
        return node.target.slice  # type: ignore[union-attr]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    if node.func.attr == "setdefault" and ast.unparse(node.func.value) == text:
        return node.args[0]
    if node.func.attr in _ADDS and _is_item(node.func.value, text):
        return node.func.value.slice  # type: ignore[attr-defined,no-any-return]
    if node.func.attr == "append" and ast.unparse(node.func.value) == text and _is_first(tree, node, text):
        return node.args[0]
    return None


def _is_item(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == text and not isinstance(node.slice, ast.Slice)


def _is_first(tree: ast.Module, node: ast.Call, text: str) -> bool:
    """Whether `if key not in known:` is around it."""
    return any(
        around
        and isinstance(test.test, ast.Compare)
        and isinstance(test.test.ops[0], ast.NotIn)
        and ast.unparse(test.test.left) == ast.unparse(node.args[0])
        and ast.unparse(test.test.comparators[0]) == text
        for test, around in deciding_ifs(tree, node.lineno)
    )


def _is_alike(
    files: Mapping[str, ast.Module], key: ast.expr, file: str, tree: ast.Module, line: int, depth: int = 0
) -> bool:
    """Whether the key comes in one order on all ranks, is the rank's own, or a number that counts."""
    if isinstance(key, ast.Constant) or reads_rank(key) or any(_is_of_tensor(item) for item in nodes_of(key)):
        return True
    scope, names = scope_of(tree, line), names_of(key)
    return bool(names) and all(_is_name_alike(files, name, file, tree, scope, line, depth) for name in names)


def _is_of_tensor(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _OF_TENSORS


def _is_name_alike(
    files: Mapping[str, ast.Module], name: str, file: str, tree: ast.Module, scope: Scope, line: int, depth: int
) -> bool:
    if depth > _DEPTH:
        return False
    loops = [item for item in loops_around(tree, line) if isinstance(item, ast.For) and holds(item.target, name)]
    if loops:
        return _iterates_alike(files, loops[-1].iter, file, tree, loops[-1].lineno, depth)
    bound = [value for at, value in lines_that_bind(scope, name) if at < line]
    if bound:
        return bound[-1] is not None and _is_value_alike(files, bound[-1], file, tree, line, depth)
    if not is_parameter(scope, name) or not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    calls = [
        (path, other, call, given)
        for path, other, call in calls_named(files, scope.name)
        if (given := argument_of(call, scope, name)) is not None
    ]
    return bool(calls) and all(
        _is_alike(files, given, path, other, call.lineno, depth + 1) for path, other, call, given in calls
    )


def _is_value_alike(
    files: Mapping[str, ast.Module], value: ast.AST, file: str, tree: ast.Module, line: int, depth: int
) -> bool:
    if not isinstance(value, ast.expr) or isinstance(value, COMPREHENSIONS):
        return False
    return _is_alike(files, value, file, tree, getattr(value, "lineno", line), depth + 1)


def _iterates_alike(
    files: Mapping[str, ast.Module], iterated: ast.expr, file: str, tree: ast.Module, line: int, depth: int
) -> bool:
    """A model's parameters, numbers, a literal, what is sorted; or a name that one of these is bound to."""
    node = without_wrappers(iterated, _WRAPPERS)
    if any(isinstance(item, ast.Call) and called_name(item) in _OF_MODELS for item in nodes_of(node)):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
        node = node.func.value
    if isinstance(node, _LITERALS):
        return True
    if isinstance(node, ast.Name) and depth <= _DEPTH:
        bound = lines_that_bind(scope_of(tree, line), node.id) or lines_that_bind(tree, node.id)
        return bool(bound) and all(
            isinstance(value, ast.expr)
            and not _is_empty(value)
            and _iterates_alike(files, value, file, tree, at, depth + 1)
            for at, value in bound
        )
    if not isinstance(node, ast.Attribute) or depth > _DEPTH:
        return False
    if node.attr in _OF_MODELS or any(isinstance(item, ast.Name) and item.id in _OPTIONS for item in nodes_of(node)):
        return True
    return _is_attribute_alike(files, node.attr, depth)


def _is_attribute_alike(files: Mapping[str, ast.Module], name: str, depth: int) -> bool:
    """Whether all lines that set an attribute give it what has one order."""
    values = [
        (value, path, tree)
        for path, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, (ast.Assign, ast.AnnAssign))
        for target, value in set_by(item)
        if value is not None and is_attribute(target, name)
    ]
    return bool(values) and all(
        not _is_empty(value) and _iterates_alike(files, value, path, tree, value.lineno, depth + 1)
        for value, path, tree in values
    )


def _is_empty(value: ast.expr) -> bool:
    """`{}` and `[]`, which something else fills."""
    return (isinstance(value, ast.Dict) and not value.keys) or (
        isinstance(value, (ast.List, ast.Tuple)) and not value.elts
    )
