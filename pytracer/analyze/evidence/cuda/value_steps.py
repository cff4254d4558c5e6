"""One step back from a value: to what was bound, passed, returned or iterated over, by the source alone.

Beside what `slicing` follows: calls that keep the values (`.cuda()`, x[a:b]), elements of loops, and the only call of a
function that is no longer on the stack.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding, only_global
from pytracer.analyze.evidence.slicing.calls import argument_of, method_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters, scope_of

_SAME_VALUES = frozenset({
    "clone", "contiguous", "cpu", "cuda", "detach", "double", "expand", "expand_as", "flatten", "float", "long",
    "movedim", "permute", "pin_memory", "repeat", "reshape", "squeeze", "t", "to", "tolist", "transpose", "unsqueeze",
    "view", "view_as",
})  # fmt: skip
_HANDED_ON = frozenset({"list", "tuple", "iter", "sorted", "reversed", "tqdm"})
# Methods that other objects have, too: which a call means isn't known.
_OF_OTHERS = frozenset({"forward", "__call__", "__init__", "apply", "step", *dir(dict), *dir(list), *dir(str)})

Place = tuple[ast.AST, Spot]


class Program(msgspec.Struct, frozen=True):
    """Where values are followed: from a line, which is the innermost one of `at`. `files`: the program's."""

    at: FailingLine
    files: Mapping[str, ast.Module]

    @property
    def slice(self) -> Slice:
        """Follows values back from the line."""
        return self.at.slice


def kept(node: ast.AST) -> ast.AST:
    """`labels` of `labels[a:b].cuda()`: what has all of its values."""
    while True:
        inner = unmoved(node)
        if isinstance(inner, ast.Subscript) and not _is_key(inner.slice):
            inner = inner.value
        if inner is node:
            return node
        node = inner


def unmoved(node: ast.AST) -> ast.AST:
    """`labels` of `labels.cuda().unsqueeze(1)`: the same values elsewhere, or in another shape."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_VALUES:
        if node.func.attr == "to" and ("int" in ast.unparse(node) or "dtype" in ast.unparse(node)):
            break
        node = node.func.value
    return node


def _is_key(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is not None


def result(program: Program, node: ast.AST, spot: Spot) -> Place | None:
    """What a function of the program returns: `f(x)`, `f(x)[1]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
        return _part(result(program, kept(node.value), spot), [node.slice.value])
    return program.slice.returned(node, spot) if isinstance(node, ast.Call) else None


def before(program: Program, name: str, spot: Spot) -> Place | None:
    """One step back: what was bound to it."""
    last = last_binding(spot.scope, name, spot.line)
    if last is None:
        return None if _may_be_bound(name, spot) else _argument(program, name, spot)
    line, value, index = last
    there = structs.replace(spot, line=line)
    if value is None:
        return _of_loop(program, name, there)
    if index is None:
        return value, there
    inner = kept(value)
    if isinstance(inner, ast.Attribute) and inner.attr == "saved_tensors":
        return _part(_saved(there), [index])
    return _part(result(program, inner, there) if isinstance(inner, ast.Call) else (inner, there), [index])


def _saved(spot: Spot) -> Place | None:
    """Of an autograd.Function's backward: what the only save_for_backward() of its forward keeps, as a tuple."""
    owner = class_around(spot.tree, spot.scope)
    forward = method_of(owner, ("forward",)) if owner is not None else None
    nodes = [*own_nodes(forward)] if forward is not None else []
    calls = [item for item in nodes if isinstance(item, ast.Call) and called_name(item) == "save_for_backward"]
    if forward is None or len(calls) != 1 or any(isinstance(item, ast.Starred) for item in calls[0].args):
        return None
    inside = structs.replace(spot, scope=forward, line=calls[0].lineno, depth=None, call=None)
    return ast.copy_location(ast.Tuple(calls[0].args, ast.Load()), calls[0]), inside


def _may_be_bound(name: str, spot: Spot) -> bool:
    """Whether a line above, or a round of a loop before, may have bound it."""
    lines = [line for line, _, _ in bindings_of(spot.scope, name)]
    loops = [item for item in own_nodes(spot.scope) if isinstance(item, LOOPS)]
    spans = [(item.lineno, item.end_lineno or 0) for item in loops]
    around = [span for span in spans if span[0] <= spot.line <= span[1]]
    return any(line < spot.line or any(begin <= line <= end for begin, end in around) for line in lines)


def _part(found: Place | None, path: list[int]) -> Place | None:
    for key in path:
        if found is None or not isinstance(found[0], (ast.Tuple, ast.List)) or key >= len(found[0].elts):
            return None
        found = found[0].elts[key], found[1]
    return found


# ---- arguments


def _argument(program: Program, name: str, spot: Spot) -> Place | None:
    """What the caller on the stack passed or, if it isn't there, the only call in the program's files."""
    function = spot.scope
    if isinstance(function, (ast.Module, ast.Lambda)):
        return None
    if name not in parameters(function):
        outer = structs.replace(spot, scope=spot.tree, line=END, depth=None, call=None)
        return (ast.Name(name), outer) if only_global(spot.tree, name) is not None else None
    step = program.slice.argument(name, spot)
    if step is not None:
        return step
    if spot.call is not None or (spot.depth is not None and spot.depth + 1 < len(program.at.frames)):
        return None
    found = _only_call(program, function, spot)
    if found is None:
        return None
    call, there = found
    if function.name != "forward":
        value = argument_of(call, function, name)
        return (value, there) if value is not None else None
    place = parameters(function).index(name) - 1  # `Lookup.apply(table, ids)` calls forward(ctx, table, ids)
    whole = not any(isinstance(item, ast.Starred) for item in call.args)
    return (call.args[place], there) if whole and 0 <= place < len(call.args) else None


def _only_call(
    program: Program, function: ast.FunctionDef | ast.AsyncFunctionDef, spot: Spot
) -> tuple[ast.Call, Spot] | None:
    """The one in the program's files; of the forward pass of an autograd.Function, that of its apply()."""
    trees: dict[str | None, ast.Module] = {spot.file: spot.tree}
    trees.update(program.files.items())
    nodes = [(file, tree, item) for file, tree in trees.items() for item in nodes_of(tree)]
    calls = [(item, Spot(file, tree, scope_of(tree, item.lineno), item.lineno))
             for file, tree, item in nodes if isinstance(item, ast.Call)]  # fmt: skip
    owner = class_around(spot.tree, function)
    if function.name == "forward" and owner is not None and _is_static(function):
        found = [item for item in calls if ast.unparse(item[0].func) == f"{owner.name}.apply"]
    elif function.name in _OF_OTHERS or sum(getattr(item, "name", None) == function.name for _, _, item in nodes) != 1:
        return None
    else:
        found = [item for item in calls if called_name(item[0]) == function.name]
    return found[0] if len(found) == 1 else None


def _is_static(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in function.decorator_list)


# ---- loops


def _of_loop(program: Program, name: str, spot: Spot) -> Place | None:
    """The part of an element that a loop binds to a name."""
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.For, ast.AsyncFor)) and item.lineno == spot.line:
            path = _path(item.target, name)
            return _element(program, item.iter, path, spot) if path is not None else None
    return None


def _path(target: ast.expr, name: str) -> list[int] | None:
    if variable(target) == name:
        return []
    for n, item in enumerate(target.elts if isinstance(target, (ast.Tuple, ast.List)) else ()):
        inner = _path(item, name)
        if isinstance(item, ast.Starred):
            return None
        if inner is not None:
            return [n, *inner]
    return None


def _element(program: Program, node: ast.AST, path: list[int], spot: Spot) -> Place | None:
    """Of what is iterated over."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "enumerate" and path and node.args:
            return _element(program, node.args[0], path[1:], spot) if path[0] == 1 else None
        if node.func.id == "zip" and path and path[0] < len(node.args):
            return _element(program, node.args[path[0]], path[1:], spot)
        if node.func.id in _HANDED_ON and len(node.args) >= 1:
            return _element(program, node.args[0], path, spot)
    made = program.slice.made(node, spot, calls=True)
    inner, there = made.node, made.spot
    if isinstance(inner, (ast.ListComp, ast.GeneratorExp)):
        return _of_comprehension(program, inner, path, there)
    if isinstance(inner, ast.List) and not inner.elts and made.through:
        return _part(_appended(made.through[-1]), path)
    base = kept(inner)
    if path == [] and base is not inner and variable(base) is not None:
        return base, there
    if isinstance(inner, ast.Name):
        given = _argument(program, inner.id, there)
        return _element(program, given[0], path, given[1]) if given is not None else None
    if isinstance(inner, ast.Call):
        return _part(_yielded(program, inner, there), path) or _of_dataset(program, inner, path, there)
    return None


def _of_comprehension(
    program: Program, made: ast.ListComp | ast.GeneratorExp, path: list[int], spot: Spot
) -> Place | None:
    """Its element; of a name that it binds itself, what that is an element of."""
    found = _part((made.elt, structs.replace(spot, line=made.elt.lineno)), path)
    name = variable(kept(found[0])) if found is not None else None
    for item in made.generators if name is not None else ():
        inner = _path(item.target, name or "")
        if inner is not None:
            return _element(program, item.iter, inner, spot)
    return found


def _appended(place: Place) -> Place | None:
    """`made.append((images, labels))`, the only one."""
    name, spot = variable(place[0]), place[1]
    calls = [
        item for item in own_nodes(spot.scope)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and variable(item.func.value) == name
        if item.func.attr in ("append", "extend", "insert")
    ]  # fmt: skip
    if name is None or len(calls) != 1 or called_name(calls[0]) != "append" or len(calls[0].args) != 1:
        return None
    return calls[0].args[0], structs.replace(spot, line=calls[0].lineno)


def _yielded(program: Program, call: ast.Call, spot: Spot) -> Place | None:
    """Of a generator with one `yield`."""
    found = program.slice.function(call, spot)
    if found is None:
        return None
    yields = [item for item in own_nodes(found[0]) if isinstance(item, (ast.Yield, ast.YieldFrom))]
    value = yields[0].value if len(yields) == 1 and isinstance(yields[0], ast.Yield) else None
    if value is None:
        return None
    inside = structs.replace(found[1], scope=found[0], line=yields[0].lineno, depth=None, call=(call, spot))
    return value, inside


def _of_dataset(program: Program, call: ast.Call, path: list[int], spot: Spot) -> Place | None:
    """Of `DataLoader(dataset)`: a sample's part, as __getitem__ of the program's class returns it."""
    if called_name(call) != "DataLoader" or any(item.arg == "collate_fn" for item in call.keywords):
        return None
    given = argument_at(call, 0, "dataset")
    made = program.slice.made(given, spot, calls=True) if given is not None else None
    if made is None or not isinstance(made.node, ast.Call):
        return None
    if called_name(made.node) == "TensorDataset" and len(path) == 1 and path[0] < len(made.node.args):
        return made.node.args[path[0]], made.spot
    owner = program.slice.defined(made.node.func, made.spot)
    method = method_of(owner[0], ("__getitem__",)) if owner is not None else None
    returns = [item for item in own_nodes(method) if isinstance(item, ast.Return)] if method is not None else []
    if owner is None or method is None or len(returns) != 1 or returns[0].value is None:
        return None
    inside = structs.replace(owner[1], scope=method, line=returns[0].lineno, depth=None, call=(made.node, made.spot))
    return _part((returns[0].value, inside), path)
