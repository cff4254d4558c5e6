"""Lines that grow a tree by one level in each round of a loop: a node is put below the last one, and is the next one.

`node.children[key] = Node()`, then `node = node.children[key]`, as tries and paths of folders are built; and
`node = node.setdefault(key, {})`. What the loop goes through has as many items as the tree gets levels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.slicing.callers import called_function, only_call
from pytracer.analyze.evidence.slicing.keepers import Files, classes_of, owner_of
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, without_wrappers
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around, loops_of
from pytracer.analyze.evidence.syntax.names import is_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, parameters, spans

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef)
_READS, _ADDS = ("get", "setdefault"), ("append", "add", "setdefault")
_EMPTY = ("dict", "defaultdict", "OrderedDict", "Counter", "list")
_SAME_ITEMS = ("enumerate", "reversed", "iter", "list", "tuple")
_LINE_ENDS = ("\n", "\r\n", "\r")


class Chain(msgspec.Struct, frozen=True):
    """`node` puts something below what the loop's variable is, which then becomes that. `attribute`: that holds it.

    `owner`: the only class of the program that sets that attribute.
    """

    file: str
    node: ast.stmt
    scope: Scope
    loop: Loop
    attribute: str | None
    owner: str | None


class Rounds(msgspec.Struct, frozen=True):
    """`name` has an item for each level. `line`: what it is, `text`, comes from there. `ends`: the line that reads it.

    `ends` is a call of open() with the only end of a line that it knows, `by`.
    """

    name: str
    file: str
    line: int
    text: str
    ends: tuple[str, int, str] | None
    by: str | None


def chains(files: Files) -> list[Chain]:
    """All of a program."""
    classes = {item.name for item in classes_of(files)}
    return [
        Chain(file, node, scope, loop, attribute, owner_of(files, attribute))
        for file, tree in files.items()
        for scope in (tree, *(item for item in nodes_of(tree) if isinstance(item, _NAMED)))
        for loop in loops_of(scope)
        for node, attribute in _growing(scope, loop, classes)
    ]


def rounds_of(files: Files, chain: Chain) -> Rounds | None:
    """What the loop of a chain goes through, and who passes that; None where it is no variable."""
    loop = chain.loop
    source = without_wrappers(loop.iter, _SAME_ITEMS) if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    if not isinstance(source, ast.Name):
        return None
    at, tree = chain.file, files[chain.file]
    node: ast.expr = source
    name: str | None = source.id
    if isinstance(chain.scope, _NAMED) and source.id in parameters(chain.scope):
        call = only_call(files, chain.scope)
        given = call.argument(chain.scope, source.id) if call is not None else None
        if call is None or given is None:
            return None
        at, tree, node = call.file, call.tree, call.call
        name = given.id if isinstance(given, ast.Name) else None
    outer = [item for item in loops_around(tree, node.lineno) if item is not chain.loop and _is_head(item, name)]
    if not outer and node is source:
        return None
    around = outer[-1] if outer else None
    ends = _line_ends(files, tree, at, around) if around is not None else None
    shown = node if node is not source else getattr(around, "iter", node)
    return Rounds(source.id, at, shown.lineno, ast.unparse(shown), ends[0] if ends else None, ends[1] if ends else None)


def _growing(scope: Scope, loop: Loop, classes: set[str]) -> Iterator[tuple[ast.stmt, str | None]]:
    nodes = [item for item in own_nodes(scope) if loop.body[0].lineno <= getattr(item, "lineno", 0) <= _end(loop)]
    bound: dict[str, list[ast.expr]] = {}
    for item in nodes:
        for target, value in _sets(item):
            if isinstance(target, ast.Name):
                bound.setdefault(target.id, []).append(value)
    for name, values in bound.items():
        if all(_leads_on(value, name, bound) for value in values):
            for item in nodes:
                for target, value in _puts(item):
                    known = _part_of(target, name) if _is_fresh(value, classes, bound) else None
                    if known is not None and isinstance(item, ast.stmt):
                        yield item, known[0]


def _end(loop: Loop) -> int:
    return loop.body[-1].end_lineno or 0


def _sets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    yield from ((target, value) for target, value in set_by(node) if value is not None)


def _leads_on(value: ast.expr, name: str, bound: dict[str, list[ast.expr]]) -> bool:
    """Whether it is inside of `name`, or a variable that was, or that was made in the loop."""
    if isinstance(value, ast.Name) and value.id != name:
        inner = bound.get(value.id, ())
        return any(_is_inside(item, name) for item in inner) or any(isinstance(item, ast.Call) for item in inner)
    return _is_inside(value, name)


def _is_inside(value: ast.expr, name: str) -> bool:
    """`node.children[key]`, `node.children.get(key)`, `node.next`, `node.setdefault(key, {})`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _READS:
        found = _part_of(value.func.value, name)
        return found is not None or is_name(value.func.value, name)
    return isinstance(value, (ast.Attribute, ast.Subscript)) and _part_of(value, name) is not None


def _part_of(target: ast.expr, name: str) -> tuple[str | None] | None:
    """The attribute of `name` that it is in: one or none, of an item; None where it is no part of `name`."""
    attribute = None
    inner = target
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        attribute = inner.attr if isinstance(inner, ast.Attribute) else attribute
        inner = inner.value
    return (attribute,) if inner is not target and is_name(inner, name) else None


def _puts(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Where a statement puts something, and what: by assignment, append() or setdefault()."""
    for target, value in _sets(node):
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            yield target, value
    if not isinstance(node, (ast.Assign, ast.Expr)) or not isinstance(node.value, ast.Call):
        return
    call = node.value
    if isinstance(call.func, ast.Attribute) and call.func.attr in _ADDS and call.args:
        yield ast.Subscript(call.func.value, ast.Constant(None), ast.Store()), call.args[-1]


def _is_fresh(value: ast.expr, classes: set[str], bound: dict[str, list[ast.expr]]) -> bool:
    """An object of the program's classes, or an empty container; also by the variable that the loop sets to it."""
    if isinstance(value, ast.Name):
        return any(_is_fresh(item, classes, {}) for item in bound.get(value.id, ()))
    if isinstance(value, ast.Call):
        called = called_name(value) or ""
        return called in classes or called in _EMPTY or ast.unparse(value.func) in ("type(self)", "self.__class__")
    return isinstance(value, (ast.Dict, ast.List))


def _is_head(loop: Loop, name: str | None) -> bool:
    """Whether the loop sets a variable, alone or as one of several."""
    head = loop.target if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    return head is not None and any(name is not None and is_name(part, name) for part in nodes_of(head))


def _line_ends(files: Files, tree: ast.Module, file: str, loop: Loop) -> tuple[tuple[str, int, str], str] | None:
    """The only open() that a loop's items are lines of, where that ends lines at one text alone."""
    source = getattr(loop, "iter", None)
    found = called_function(files, tree, source) if isinstance(source, ast.Call) else None
    scopes = [found] if found is not None else [(file, tree)]
    opened = [
        (at, node)
        for at, scope in scopes
        for node in nodes_of(scope)
        if isinstance(node, ast.Call) and called_name(node) == "open"
        if found is not None
        or any(
            isinstance(item, ast.stmt) and _opens(item, node) and spans(item, loop.lineno) for item in nodes_of(tree)
        )
    ]
    if len(opened) != 1:
        return None
    at, call = opened[0]
    given = keyword_value(call, "newline")
    by = given.value if isinstance(given, ast.Constant) else None
    return ((at, call.lineno, ast.unparse(call)), by) if isinstance(by, str) and by in _LINE_ENDS else None


def _opens(node: ast.AST, call: ast.Call) -> bool:
    """Whether it is the `with` of that call, or a loop over it."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return any(item.context_expr is call for item in node.items)
    return isinstance(node, ast.For) and node.iter is call
