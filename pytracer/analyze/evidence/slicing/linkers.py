"""Methods by which an object of the program comes to hold others: `job.after(previous)`; and what a statement links."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.keepers import Files, Taker, classes_of, inside_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import all_parameters, own_nodes

_ADDS = ("append", "add", "appendleft")
_EXTENDS = ("extend", "update", "extendleft")
_CONTAINERS = frozenset({*_ADDS, *_EXTENDS, "insert", "pop", "get", "setdefault", "remove", "discard"})
_METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PAIR = 2


class Linker(msgspec.Struct, frozen=True):
    """A method of the class `owner` that puts its `parameter`, or what that holds, into `self.attribute`.

    `fluent`: it returns the object itself.
    """

    method: ast.FunctionDef | ast.AsyncFunctionDef
    owner: str
    attribute: str
    parameter: str
    fluent: bool

    @property
    def taker(self) -> Taker:
        """As what has its parameter inside of the result."""
        return Taker(self.method.name, self.method, self.parameter, self.attribute, self.owner, fluent=True)


def linkers_of(files: Files) -> dict[str, Linker]:
    """By the names of the methods, of those that no other function of the program has, nor a container."""
    counts: dict[str, int] = {}
    for tree in files.values():
        for item in nodes_of(tree):
            if isinstance(item, _METHODS):
                counts[item.name] = counts.get(item.name, 0) + 1
    return {
        method.name: linker
        for owner in classes_of(files)
        for method in owner.body
        if isinstance(method, _METHODS) and counts[method.name] == 1 and method.name not in _CONTAINERS
        if not method.name.startswith("__")
        for linker in [_linker(owner, method)]
        if linker is not None
    }


def _linker(owner: ast.ClassDef, method: ast.FunctionDef | ast.AsyncFunctionDef) -> Linker | None:
    """None of one that puts several of its parameters there, or into several attributes."""
    given = {*all_parameters(method)[1:]}
    loops = {
        item.target.id: item.iter.id
        for item in own_nodes(method)
        if isinstance(item, ast.For) and isinstance(item.target, ast.Name) and isinstance(item.iter, ast.Name)
    }
    found = set[tuple[str, str]]()
    for node in own_nodes(method):
        for target, value in _held_by_self(node):
            name = inside_of(value)
            name = loops.get(name, name) if name is not None else None
            if name in given and name is not None:
                found.add((target, name))
    fluent = any(
        isinstance(item, ast.Return) and isinstance(item.value, ast.Name) and item.value.id == "self"
        for item in own_nodes(method)
    )
    return Linker(method, owner.name, *found.pop(), fluent) if len(found) == 1 else None


def _held_by_self(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Attributes of `self` that a statement puts something into, each with what it puts."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
        pairs = [(node.func.value, node.args[0])] if called_name(node) in (*_ADDS, *_EXTENDS) else []
    for target, value in pairs:
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            yield target.attr, _alone(value)


def _alone(value: ast.expr) -> ast.expr:
    """`x` of `[x]` and of `(x,)`."""
    return value.elts[0] if isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) == 1 else value


def given_for(call: ast.Call, taker: Taker) -> Iterator[ast.expr]:
    """What a call passes for the parameter of a function of the program; of `*rest` all, of a list its items, too."""
    function = taker.function
    if function is None:
        return
    rest = function.args.vararg
    given: Sequence[ast.expr | None] = [argument_of(call, function, taker.parameter)]
    if rest is not None and rest.arg == taker.parameter:
        places = len([*function.args.posonlyargs, *function.args.args]) - taker.fluent
        given = [item.value if isinstance(item, ast.Starred) else item for item in call.args[places:]]
    for item in given:
        if item is not None:
            yield item
            yield from item.elts if isinstance(item, (ast.List, ast.Tuple)) else ()


def set_part(
    node: ast.stmt, linkers: Mapping[str, Linker]
) -> tuple[ast.Attribute | ast.Subscript | None, ast.expr | None]:
    """Where `node.next = other`, `node.children.append(other)` or `node.after(other)` puts something, and what."""
    target: ast.expr | None = None
    value: ast.expr | None = getattr(node, "value", None)
    if isinstance(node, ast.Assign):
        target = node.targets[0] if len(node.targets) == 1 else None
    elif isinstance(node, ast.AugAssign) and isinstance(value, (ast.List, ast.Tuple)):
        target = node.target
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name, of = called_name(value) or "", value.func.value
        whole = name in _ADDS or (name in _EXTENDS and value.args and isinstance(value.args[0], (ast.List, ast.Tuple)))
        linker = linkers.get(name)
        if whole:
            target, value = of, value.args[0] if len(value.args) == 1 else None
        elif linker is not None:
            given = [*given_for(value, linker.taker)]
            target = ast.copy_location(ast.Attribute(of, linker.attribute, ast.Store()), of)
            value = given[0] if len(given) == 1 else None
    if value is not None and not isinstance(node, ast.Assign):
        value = _alone(value)
    return (target, value) if isinstance(target, (ast.Attribute, ast.Subscript)) else (None, None)


def are_neighbors(one: ast.expr, other: ast.expr, loops: Sequence[Loop]) -> bool:
    """Whether two are items of one list beside each other: `jobs[i]`, `jobs[i - 1]`; `for a, b in pairwise(jobs)`."""
    if isinstance(one, ast.Subscript) and isinstance(other, ast.Subscript):
        if ast.unparse(one.value) != ast.unparse(other.value):
            return False
        texts = [ast.unparse(item.slice) for item in (one, other)]
        counts = {ast.unparse(loop.target) for loop in loops if isinstance(loop, ast.For)}
        return any(
            a in counts and isinstance(b, ast.BinOp) and ast.unparse(b.left) == a and isinstance(b.right, ast.Constant)
            for a, b in ((texts[0], other.slice), (texts[1], one.slice))
        )
    names = {ast.unparse(one), ast.unparse(other)}
    return any(
        not isinstance(loop, ast.While)
        and isinstance(loop.target, ast.Tuple)
        and len(names) == _PAIR
        and {ast.unparse(item) for item in loop.target.elts} == names
        and _goes_by_pairs(loop.iter)
        for loop in loops
    )


def _goes_by_pairs(node: ast.expr) -> bool:
    """`pairwise(x)`, `zip(x, x[1:])`, `zip(x[:-1], x[1:])`."""
    if not isinstance(node, ast.Call):
        return False
    if called_name(node) == "pairwise":
        return True
    if called_name(node) != "zip" or len(node.args) != _PAIR:
        return False
    first, second = node.args
    first = first.value if isinstance(first, ast.Subscript) and isinstance(first.slice, ast.Slice) else first
    return (
        isinstance(second, ast.Subscript)
        and ast.unparse(second.slice) == "1:"
        and ast.unparse(second.value) == ast.unparse(first)
    )
