"""Which functions of C a line of the program declares, by `lib.make.restype = ...` and its other forms.

Programs declare many at once: from a dict or a list of names, or by a function of their own that is given the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer.analyze.evidence.slicing.bindings import bindings_of, element_of
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.syntax.calls import called_name, without_wrappers
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, is_parameter, own_nodes, scope_of, spans

Files = Mapping[str, ast.Module]
NARROW = frozenset({"c_int", "c_uint", "c_int32", "c_uint32"})  # ctypes' numbers of 32 bits
PROTOTYPES = frozenset({"CFUNCTYPE", "PYFUNCTYPE", "WINFUNCTYPE"})
_ORDERS = ("sorted", "list", "tuple", "set", "reversed", "iter")
_FILLS = ("append", "extend", "insert", "update", "setdefault", "add")
_DEEPEST = 6
_Values = list[tuple[ast.Module, ast.expr]]


def declares(files: Files, function: str, attribute: str) -> Iterator[tuple[str, int, ast.expr | None]]:
    """Lines that set `restype` or `argtypes` of a function, or of one that is not known: file and line.

    With what a line sets it to, where it is known to be of this function alone.
    """
    for file, node, _, value in declaring(files, function, attribute):
        yield file, getattr(node, "lineno", 0), value


def declaring(files: Files, function: str, attribute: str) -> Iterator[tuple[str, ast.AST, ast.expr, ast.expr | None]]:
    """The same with the statement or call, and what has the function in it: `lib.make`, `lib["make"]`, a variable."""
    for file, tree in files.items():
        for node, target, value in _settings(tree, attribute):
            names = functions_named(files, tree, target)
            if names is None or function in names:
                yield file, node, target, value if names == frozenset({function}) else None


def is_declared_at(files: Files, function: str, attribute: str) -> list[tuple[str, int]]:
    """Of these lines those that are known to be of this function, and of no other one."""
    return [(file, line) for file, line, value in declares(files, function, attribute) if value is not None]


def _settings(tree: ast.Module, attribute: str) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """`lib.make.restype = kind`, and `setattr(lib.make, "restype", kind)`: the node, `lib.make`, and `kind`."""
    for node in nodes_of(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for one, value in _pairs(target, node.value):
                    if isinstance(one, ast.Attribute) and one.attr == attribute:
                        yield node, one.value, value
        elif isinstance(node, ast.Call) and called_name(node) == "setattr" and len(node.args) == len("fnv"):
            named = node.args[1].value if isinstance(node.args[1], ast.Constant) else attribute
            if named == attribute:
                yield node, node.args[0], node.args[2]


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    fits = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
    for at, item in enumerate(target.elts):
        yield from _pairs(item, value.elts[at] if fits and isinstance(value, (ast.Tuple, ast.List)) else value)


def functions_named(files: Files, tree: ast.Module, node: ast.expr, depth: int = _DEEPEST) -> frozenset[str] | None:
    """`make` of `lib.make`, `lib["make"]`, `getattr(lib, "make")`, and of what holds one of these; None: not known."""
    if not depth:
        return None
    if isinstance(node, ast.Attribute):
        held = _of_attribute(tree, node)
        if held is None:
            return frozenset({node.attr})
        return _all(files, held, depth) if held else None
    if isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and called_name(node) == "getattr"):
        key = node.slice if isinstance(node, ast.Subscript) else node.args[1] if len(node.args) > 1 else None
        return _texts(files, tree, key, depth) if key is not None else None
    values = _values(files, tree, node.id, node.lineno, depth) if isinstance(node, ast.Name) else None
    return _all(files, values, depth) if values else None


def _all(files: Files, values: _Values, depth: int) -> frozenset[str] | None:
    found: set[str] = set()
    for tree, value in values:
        names = functions_named(files, tree, value, depth - 1)
        if names is None:
            return None
        found |= names
    return frozenset(found)


def _of_attribute(tree: ast.Module, node: ast.Attribute) -> _Values | None:
    """What `self.bind` was set to: nothing where that is not known, None where no line sets it."""
    name = variable(node)
    scopes = [item for item in nodes_of(tree) if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    bound = [item for scope in scopes for item in bindings_of(scope, name)] if name is not None else []
    if not bound:
        return None
    held = [element_of(value, index) for _, value, index in bound]
    return [(tree, value) for value in held if value is not None] if None not in held else []


def _texts(files: Files, tree: ast.Module, node: ast.expr, depth: int) -> frozenset[str] | None:
    if isinstance(node, ast.Constant):
        return frozenset({node.value}) if isinstance(node.value, str) else None
    values = _values(files, tree, node.id, node.lineno, depth) if isinstance(node, ast.Name) and depth else None
    found: set[str] = set()
    for place, value in values or ():
        names = _texts(files, place, value, depth - 1)
        if names is None:
            return None
        found |= names
    return frozenset(found) if values else None


def _values(files: Files, tree: ast.Module, name: str, line: int, depth: int) -> _Values | None:
    """All that a variable may have held, by the lines of its scope, its loops, or the callers; None: not known."""
    scope = scope_of(tree, line)
    found: _Values = []
    for at, value, index in bindings_of(scope, name):
        element = element_of(value, index)
        if element is not None:
            found.append((tree, element))
        elif not any(item.target.lineno == at for item in _loops(scope)):
            return None
    for loop in _loops(scope):
        if not holds(loop.target, name) or (isinstance(loop, ast.comprehension) and not _reaches(scope, loop, line)):
            continue
        items = _items(files, tree, loop.iter, depth)
        parts = [_part(loop.target, item, name) for item in items] if items else [None]
        if not all(parts):
            return None
        found += [(tree, part) for part in parts if part is not None]
    if is_parameter(scope, name) and isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        passed = _passed(files, scope, name)
        return [*found, *passed] if passed is not None else None
    return found


def _loops(scope: Scope) -> Iterator[ast.For | ast.AsyncFor | ast.comprehension]:
    yield from (item for item in own_nodes(scope) if isinstance(item, (ast.For, ast.AsyncFor, ast.comprehension)))


def _reaches(scope: Scope, loop: ast.comprehension, line: int) -> bool:
    kinds = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
    return any(isinstance(item, kinds) and loop in item.generators and spans(item, line) for item in own_nodes(scope))


def _passed(files: Files, scope: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> _Values | None:
    found: _Values = []
    for tree in files.values():
        for call in nodes_of(tree):
            if isinstance(call, ast.Call) and called_name(call) == scope.name:
                value = argument_of(call, scope, name)
                if value is None:
                    return None
                found.append((tree, value))
    return found or None


def _items(files: Files, tree: ast.Module, node: ast.expr, depth: int) -> list[ast.expr] | None:
    """What a loop goes over: a literal, or a variable that holds one and that no line fills; None: not known."""
    node = without_wrappers(node, _ORDERS)
    view = called_name(node) if isinstance(node, ast.Call) else None
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if view == "split" and isinstance(owner, ast.Constant) and isinstance(owner.value, str):
        return [ast.Constant(word) for word in owner.value.split()]
    held = _literal(files, tree, owner if view in ("items", "keys", "values") and owner is not None else node, depth)
    if isinstance(held, (ast.Tuple, ast.List, ast.Set)):
        return held.elts if not any(isinstance(item, ast.Starred) for item in held.elts) else None
    if not isinstance(held, ast.Dict) or None in held.keys:
        return None
    keys = [key for key in held.keys if key is not None]
    if view == "items":
        pairs = zip(keys, held.values, strict=True)
        return [ast.copy_location(ast.Tuple([key, value], ast.Load()), key) for key, value in pairs]
    return held.values if view == "values" else keys


def _literal(files: Files, tree: ast.Module, node: ast.expr, depth: int) -> ast.expr | None:
    if not isinstance(node, ast.Name) or not depth:
        return node
    scope = scope_of(tree, node.lineno)
    bound = [*bindings_of(scope, node.id)] or [*bindings_of(tree, node.id)]
    place = tree
    if not bound and not is_parameter(scope, node.id):  # imported
        others = [(other, [*bindings_of(other, node.id)]) for other in files.values()]
        known = [(other, held) for other, held in others if held]
        place, bound = known[0] if len(known) == 1 else (tree, [])
    value = bound[0][1] if len(bound) == 1 and bound[0][2] is None else None
    filled = any(_fills(item, node.id) for other in files.values() for item in nodes_of(other))
    return _literal(files, place, value, depth - 1) if isinstance(value, ast.expr) and not filled else None


def _fills(node: ast.AST, name: str) -> bool:
    """`names["make"] = ...`, `names.append(...)`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store) and variable(node.value) == name
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in _FILLS and variable(called.value) == name


def _part(target: ast.expr, item: ast.expr, name: str) -> ast.expr | None:
    """What `name` is of an item that a loop's target takes apart."""
    if variable(target) == name:
        return item
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(item, (ast.Tuple, ast.List)):
        return None
    if len(target.elts) != len(item.elts) or any(isinstance(one, ast.Starred) for one in target.elts):
        return None
    parts = (_part(one, part, name) for one, part in zip(target.elts, item.elts, strict=True))
    return next((part for part in parts if part is not None), None)
