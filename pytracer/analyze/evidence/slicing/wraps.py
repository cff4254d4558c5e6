"""Lines that put something around what a variable held: each time that one runs, the value is a level deeper.

`state["it"] = Progress(state["it"])`, `head = Node(value, head)`, `step = opt.step` with a function that calls it and
becomes `opt.step`; and the same through a function that returns it. A variable that a call of a function begins anew
keeps nothing from call to call: such a line counts only in a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.keepers import (
    Files,
    Taker,
    attribute_text,
    classes_of,
    initializer,
    owner_of,
    set_by,
    takers_of,
)
from pytracer.analyze.evidence.slicing.linkers import Linker, are_neighbors, given_for, linkers_of, set_part
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import Loop, loops_of
from pytracer.analyze.evidence.syntax.names import is_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, parameters

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef)
_LISTS = ("append", "appendleft")
_DEEPEST = 3  # functions that pass it on


class Wrap(msgspec.Struct, frozen=True):
    """One such line. `function`: the one that it is in, None of the module's code; `looped`: whether a loop has it.

    `sometimes`: below a condition. `mended`: its text with `original` in place of what it wraps again; None where it
    links objects to a chain, or that is not a value of its own.
    """

    file: str
    line: int
    text: str
    function: str | None
    looped: bool
    sometimes: bool = False
    mended: str | None = None
    attribute: str | None = None
    """Of `self`, of the class `owner`, that holds what is inside."""
    owner: str | None = None
    listed: tuple[int, str] | None = None
    """The line that puts the same object into a list, and that line."""
    last: str | None = None
    """The variable that then has the last object of the chain."""
    tree: bool = False
    """Whether it puts a node below another one, from which the loop goes on."""

    @property
    def when(self) -> str:
        """`in each round of its loop`, or `each time that on_start_epoch() runs`."""
        if self.sometimes or (self.function is None and not self.looped):
            return "each time that it runs"
        return "in each round of its loop" if self.looped else f"each time that {self.function}() runs"


class _Kept(msgspec.Struct, frozen=True):
    """A call whose result is kept: in `target`, or by the caller where that is None."""

    node: ast.stmt
    call: ast.Call
    target: str | None


def wraps_of_class(files: Files, name: str, attribute: str) -> list[Wrap]:
    """Lines that put objects of a class of the program around the last one, which `self.attribute` then holds."""
    return _wraps(files, [*takers_of(classes_of(files), name, attribute)], _DEEPEST)


def wraps_of_library(files: Files, names: Collection[str]) -> list[Wrap]:
    """Lines that put a library's object around the last one, which may be any of the arguments."""
    return _wraps(files, [Taker(name, None, "") for name in names], _DEEPEST)


def links(files: Files) -> list[Wrap]:
    """Lines by which an object is set as an attribute or item of the next one: `node.prev = last`, `last = node`."""
    linkers = linkers_of(files)
    return [
        Wrap(
            file,
            node.lineno,
            ast.unparse(node),
            name,
            bool(loops),
            sometimes,
            None,
            attribute,
            owner_of(files, attribute),
            listed=listed(scope, node, linkers),
        )
        for file, tree in files.items()
        for scope in _scopes(tree)
        for node in own_nodes(scope)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr))
        for attribute, loops in _linked(scope, node, linkers)
        for name in [scope.name if isinstance(scope, _NAMED) else None]
        for sometimes in [_is_conditional(scope, node.lineno, max((item.lineno for item in loops), default=0))]
    ]


def _linked(
    scope: Scope, node: ast.Assign | ast.AugAssign | ast.Expr, linkers: Mapping[str, Linker]
) -> Iterator[tuple[str | None, list[Loop]]]:
    target, value = set_part(node, linkers)
    if target is None or value is None or isinstance(value, ast.Constant):
        return
    base, held = ast.unparse(target.value), ast.unparse(value)
    if base == "self":
        return
    loops = [item for item in loops_of(scope) if item.lineno < node.lineno <= (item.end_lineno or 0)]
    attribute = target.attr if isinstance(target, ast.Attribute) else None
    if attribute is not None and are_neighbors(target.value, value, loops):
        yield attribute, loops
        return
    for item in own_nodes(scope):
        if not isinstance(item, ast.Assign) or item.lineno <= node.lineno:
            continue
        for name, value in set_by(item):
            known = {(name, ast.unparse(one)) for one in _either(value)}
            moved = not known.isdisjoint({(held, base), (base, held), (base, ast.unparse(target))})
            inside = any(item.lineno <= (loop.end_lineno or 0) for loop in loops)
            if moved and (inside or (not loops and _outlives(scope, name))):
                yield attribute, loops
                return


def listed(scope: Scope, node: ast.stmt, linkers: Mapping[str, Linker] | None = None) -> tuple[int, str] | None:
    """The line beside a link that puts one of the linked objects into a list: `self.items.append(node)`."""
    parts = [name for name, _ in set_by(node)] if isinstance(node, ast.Assign) else []
    held = {ast.unparse(item) for item in _linked_objects(node, linkers or {})} | set(parts)
    for item in own_nodes(scope):
        if isinstance(item, ast.Expr) and item is not node and isinstance(item.value, ast.Call):
            call = item.value
            given = [ast.unparse(one) for one in call.args]
            if called_name(call) in _LISTS and len(given) == 1 and given[0] in held:
                return item.lineno, ast.unparse(item)
    return None


def _linked_objects(node: ast.stmt, linkers: Mapping[str, Linker]) -> list[ast.expr]:
    target, value = set_part(node, linkers) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)) else (None, None)
    return [item for item in (target.value if target is not None else None, value) if item is not None]


def _either(value: ast.expr) -> list[ast.expr]:
    """`None if done else node` is one of two."""
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]


def wraps_of_function(files: Files, function: Scope, parameter: str) -> list[Wrap]:
    """Lines that put the result of a function around the last one, by its parameter."""
    if not isinstance(function, _NAMED):
        return []
    return _wraps(files, [Taker(function.name, function, parameter)], _DEEPEST)


def wraps_of_closure(files: Files, file: str, inner: Scope, outer: Scope, name: str) -> list[Wrap]:
    """Lines that put a function around the one that its `name`, a variable of the function around it, holds."""
    if not isinstance(inner, _NAMED) or not isinstance(outer, _NAMED):
        return []
    if name in parameters(outer):
        returned = any(isinstance(item, ast.Return) and is_name(item.value, inner.name) for item in own_nodes(outer))
        return wraps_of_function(files, outer, name) if returned and not lines_that_bind(outer, name) else []
    texts = _texts(outer, ast.Name(name, ast.Load()))
    return [
        Wrap(
            file,
            node.lineno,
            ast.unparse(node),
            outer.name,
            looped=False,
            sometimes=_is_conditional(outer, node.lineno),
        )
        for node in own_nodes(outer)
        if isinstance(node, (ast.Assign, ast.Expr))
        for target, value in set_by(node)
        if is_name(value, inner.name) and target in texts
    ]


def wraps_of_classes(files: Files) -> list[Wrap]:
    """Those of each class of the program that keeps what its __init__ is given; no module of torch's."""
    classes, takers = classes_of(files), list[Taker]()
    for owner in classes:
        if any("Module" in ast.unparse(base) for base in owner.bases):
            continue
        made = initializer(owner)
        targets = (name for node in nodes_of(made or owner) if isinstance(node, ast.stmt) for name, _ in set_by(node))
        fields = (node.target for node in owner.body if isinstance(node, ast.AnnAssign))
        names = {name.removeprefix("self.") for name in targets if name.startswith("self.")}
        names |= {item.id for item in fields if isinstance(item, ast.Name)}
        takers += (item for name in sorted(names) for item in takers_of(classes, owner.name, name))
    takers += (item.taker for item in linkers_of(files).values() if item.fluent)
    return _wraps(files, takers, _DEEPEST)


def set_elsewhere(files: Files, owner: str, attribute: str) -> list[tuple[str, ast.Assign]]:
    """Lines that set the attribute of an object later than its __init__: `last.next = node`."""
    return [
        (file, node)
        for file, tree in files.items()
        for scope in _scopes(tree)
        for node in own_nodes(scope)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == attribute
        if not is_name(target.value, "self") or _is_later(tree, scope, owner)
    ]


def _scopes(tree: ast.Module) -> list[Scope]:
    return [tree, *(item for item in nodes_of(tree) if isinstance(item, _NAMED))]


def _is_later(tree: ast.Module, scope: Scope, owner: str) -> bool:
    """Whether it is a method of the class, and not its __init__."""
    around = class_around(tree, scope)
    return around is not None and around.name == owner and getattr(scope, "name", None) != "__init__"


def _wraps(files: Files, takers: Sequence[Taker], depth: int) -> list[Wrap]:
    found: dict[tuple[str, int], Wrap] = {}
    by_name: dict[str, list[Taker]] = {}
    for taker in takers:
        by_name.setdefault(taker.name, []).append(taker)
    for file, tree in files.items():
        for scope in _scopes(tree):
            for kept in (item for node in own_nodes(scope) for item in _kept_calls(node)):
                for taker, given in _given(kept.call, by_name.get(called_name(kept.call) or "", ())):
                    grown = _grown(scope, kept, taker, given) if kept.target is not None else None
                    if grown is not None and grown.looped:
                        found[file, kept.node.lineno] = structs.replace(grown, file=file)
                    elif kept.target is None or _is_returned(scope, kept.target):
                        beside = listed(scope, kept.node)
                        further = [
                            structs.replace(item, listed=beside) if beside is not None and item.file == file else item
                            for item in _of_caller(files, scope, taker, given, depth)
                        ]
                        if grown is not None and not further:  # `self.last = node`, `return node`
                            further = [structs.replace(grown, file=file)]
                        found |= {(item.file, item.line): item for item in further}
                    elif grown is not None:
                        found[file, kept.node.lineno] = structs.replace(grown, file=file)
    return [*found.values()]


def _kept_calls(node: ast.AST) -> Iterator[_Kept]:
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
        yield _Kept(node, node.value, None)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)):
        for target, value in set_by(node):
            if isinstance(value, ast.Call):
                yield _Kept(node, value, target)


def _given(call: ast.Call, takers: Sequence[Taker]) -> Iterator[tuple[Taker, ast.expr]]:
    """What the call puts inside."""
    for item in takers:
        if item.function is None:
            yield from ((item, given) for given in passed_values(call))
        else:
            yield from ((item, given) for given in given_for(call, item))


def _texts(scope: Scope, given: ast.expr) -> set[str]:
    """As what it was known: its own text, and that of what a variable was set to."""
    bound = lines_that_bind(scope, given.id) if isinstance(given, ast.Name) else []
    value = bound[0][1] if len(bound) == 1 else None
    texts = {ast.unparse(given)}
    if isinstance(value, (ast.Attribute, ast.Subscript, ast.Name)):
        texts.add(ast.unparse(value))
    read = (attribute_text(item) for item in (given, value) if isinstance(item, ast.Call) and _reads(item))
    return texts | {text for text in read if text is not None}


def _reads(call: ast.Call) -> bool:
    return called_name(call) == "getattr"


def _grown(scope: Scope, kept: _Kept, taker: Taker, given: ast.expr) -> Wrap | None:
    """The line, where it puts something around itself: in a loop, or each time that its function runs."""
    texts, target, line = _texts(scope, given), kept.target or "", kept.node.lineno
    loops = [item for item in loops_of(scope) if item.lineno < line <= (item.end_lineno or 0)]
    handed: list[tuple[int, str]] = []
    if target not in texts:  # `node = Node(last)`, `last = node`
        handed = [
            (node.lineno, name)
            for node in own_nodes(scope)
            if isinstance(node, ast.Assign)
            for name, value in set_by(node)
            if is_name(value, target) and name in texts
        ]
        if not handed or (loops and not any(at <= (loop.end_lineno or 0) for at, _ in handed for loop in loops)):
            return None
        target = handed[0][1]
    if any(_is_set_in(loop, scope, target, line) for loop in loops) or not (loops or _outlives(scope, target)):
        return None
    again = None if handed or taker.links else _with_original(kept.node, kept.call, given)
    name = scope.name if isinstance(scope, _NAMED) else None
    inside = _is_conditional(scope, line, max((item.lineno for item in loops), default=0))
    text = ast.unparse(kept.node)
    return Wrap(
        "",
        line,
        text,
        name,
        bool(loops),
        inside,
        again,
        taker.attribute,
        taker.owner,
        listed=listed(scope, kept.node),
        last=target,
    )


def _with_original(node: ast.stmt, call: ast.Call, given: ast.expr) -> str:
    """Nothing where other arguments may belong to what is wrapped, as indices do."""

    class Put(ast.NodeTransformer):
        def visit(self, item: ast.AST) -> ast.AST:
            return ast.Name("original", ast.Load()) if ast.dump(item) == shown else self.generic_visit(item)

    shown = ast.dump(given)
    value = getattr(node, "value", None)
    targets = [ast.unparse(item) for item in node.targets] if isinstance(node, ast.Assign) else []
    others = [item for item in passed_values(call) if item is not given]
    if not targets or not isinstance(value, ast.Call) or any(not isinstance(item, ast.Constant) for item in others):
        return ""
    return f"{' = '.join(targets)} = {ast.unparse(Put().visit(ast.parse(ast.unparse(value), mode='eval').body))}"


def _is_conditional(scope: Scope, line: int, first: int = 0) -> bool:
    """Whether an `if` below line `first` decides about it: one around it, or one that leaves above it."""
    leaves = (ast.Return, ast.Continue, ast.Break, ast.Raise)
    return any(
        first < item.lineno < line
        and (line <= (item.end_lineno or 0) or any(isinstance(part, leaves) for part in nodes_of(item)))
        for item in own_nodes(scope)
        if isinstance(item, (ast.If, ast.Match))
    )


def _is_set_in(loop: Loop, scope: Scope, target: str, line: int) -> bool:
    """Whether each round begins with another value: what the loop goes through, or what a line above sets."""
    root = target.partition(".")[0].partition("[")[0]
    lines = [at for at, _ in lines_that_bind(scope, root)] if root != "self" else []
    sets = (item for item in own_nodes(scope) if isinstance(item, ast.Assign))
    lines += [item.lineno for item in sets if any(name == target for name, _ in set_by(item))]
    return any(loop.lineno <= at < line for at in lines)


def _outlives(scope: Scope, target: str) -> bool:
    """Whether it is there after the call of its function: an item or attribute of what came from outside, a global."""
    if not isinstance(scope, _NAMED):
        return False
    root = ast.parse(target, mode="eval").body
    plain = isinstance(root, ast.Name)
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    declared = any(isinstance(item, (ast.Global, ast.Nonlocal)) and root.id in item.names for item in own_nodes(scope))
    return declared or (not plain and not lines_that_bind(scope, root.id))


def _is_returned(scope: Scope, target: str) -> bool:
    """`wrapped = Wrapper(env)`, `return wrapped`."""
    return target.isidentifier() and any(
        isinstance(item, ast.Return) and is_name(item.value, target) for item in own_nodes(scope)
    )


def _of_caller(files: Files, scope: Scope, taker: Taker, given: ast.expr, depth: int) -> list[Wrap]:
    """Of a function that gives back what has its parameter inside: the lines that call it so."""
    name = given.id if isinstance(given, ast.Name) else None
    if name is None or not isinstance(scope, _NAMED) or name not in parameters(scope) or not depth:
        return []
    bound = [value for _, value in lines_that_bind(scope, name)]
    if any(not isinstance(value, ast.Call) for value in bound):
        return []
    named = [item for tree in files.values() for item in nodes_of(tree) if isinstance(item, _NAMED)]
    if sum(item.name == scope.name for item in named) != 1:
        return []
    return _wraps(files, [Taker(scope.name, scope, name, taker.attribute, taker.owner)], depth - 1)
