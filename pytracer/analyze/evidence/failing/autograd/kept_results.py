"""Results that an object keeps from its last forward(), with the graph that made them: who stores them, and where."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL
from pytracer.analyze.evidence.syntax.bindings import is_empty_container
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters

_NO_COPY = "support the deepcopy protocol"
_WITHOUT_GRAPH = Pattern(r"\bdetach|\.item\(|\.numpy\(|\.tolist\(|\bno_grad\b|\.data\b")
_NUMBERS = ("float", "int", "len", "bool", "str")
_FILLS = ("append", "extend", "insert", "appendleft", "add", "update", "setdefault")


class Stored(msgspec.Struct, frozen=True):
    """A statement that puts a value into an attribute of an object."""

    file: str
    owner: ast.ClassDef
    method: ast.FunctionDef
    node: ast.stmt
    value: ast.expr

    def words(self, at: FailingLine) -> str:
        """``line 32: `self.scales.append(x.std())` ``."""
        text = short(ast.unparse(self.node))
        return f"{at.in_file(self.file, self.node.lineno)}: `{text}`"


def copied_result(at: FailingLine) -> str | None:
    """copy.deepcopy() of an object whose attribute holds a result with a graph."""
    found = _copied(at)
    if found is None:
        return None
    name, kind, stored = found
    call = at.only(ast.Call)
    copied = f"`{short(ast.unparse(call))}`" if call is not None else f"Line {at.line}"
    by = f" ({stored.words(at)})" if stored is not None else ""
    read = _read_at(at, stored) if stored is not None else None
    how = (
        f"empty it before line {at.line}, as {at.here(read)} needs its graph, or keep `.detach()` of it"
        if read is not None
        else f"keep `.detach()` of it there, or drop it before line {at.line}"
    )
    return (
        f"{copied} meets a tensor in `{name}` of a {kind}{by} that an operation has made, with its graph, and only "
        f"parameters and plain tensors can be copied: {how}."
    )


def copied_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _copied(at)
    if found is None:
        return None
    name, kind, stored = found
    by = f" ({stored.words(at)})" if stored is not None else ""
    return f"`{name}` of {kind}{by} holds the result of an operation, with its graph"


def _copied(at: FailingLine) -> tuple[str, str, Stored | None] | None:
    """Its name, the class of the object, and the statement that stores it, where that is the only one."""
    path, kind = at.compared.get("copied"), at.compared.get("copied of")
    if _NO_COPY not in at.message or path is None or kind is None:
        return None
    name = path.rpartition(".")[2]
    found = [item for item in stores(at) if _attribute_of(item.node) == name]
    own = [item for item in found if item.owner.name == kind]
    owners = {item.owner.name for item in own or found}
    if not own and len(owners) == 1:  # older recordings have the class of the outermost object
        kind = owners.pop()
    chosen = own or (found if kind in {item.owner.name for item in found} else [])
    return name, kind, chosen[0] if len(chosen) == 1 else None


def _read_at(at: FailingLine, stored: Stored) -> int | None:
    """The one line of another method that reads it."""
    name = _attribute_of(stored.node)
    lines = {
        item.lineno
        for method in _methods(stored.owner)
        if method is not stored.method and method.name != "__init__"
        for item in own_nodes(method)
        if isinstance(item, ast.Attribute) and variable(item) == f"self.{name}" and isinstance(item.ctx, ast.Load)
    }
    return lines.pop() if len(lines) == 1 and stored.file == at.frame.file else None


def stores(at: FailingLine) -> Iterator[Stored]:
    """All that put into an attribute of `self` what may have a graph."""
    for file, tree in at.files.items():
        for owner in (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef)):
            for method in _methods(owner):
                for node, value in _stored_in(method):
                    yield Stored(file, owner, method, node, value)


def _stored_in(method: ast.FunctionDef) -> Iterator[tuple[ast.stmt, ast.expr]]:
    cut = [
        item
        for item in own_nodes(method)
        if isinstance(item, ast.With) and any(_WITHOUT_GRAPH.search(ast.unparse(part)) for part in item.items)
    ]
    if method.name == "__init__" or any(_WITHOUT_GRAPH.search(ast.unparse(by)) for by in method.decorator_list):
        return
    for node in own_nodes(method):
        value = _value(node)
        if value is None or not isinstance(node, ast.stmt) or _attribute_of(node) is None:
            continue
        number = isinstance(value, ast.Call) and called_name(value) in _NUMBERS
        if (
            number
            or is_empty_container(value)
            or isinstance(value, ast.Constant)
            or _WITHOUT_GRAPH.search(ast.unparse(node))
        ):
            continue
        if not any(item.lineno <= node.lineno <= (item.end_lineno or 0) for item in cut):
            yield node, value


def _value(node: ast.AST) -> ast.expr | None:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return node.value
    call = node.value if isinstance(node, ast.Expr) else None
    return call.args[-1] if isinstance(call, ast.Call) and call.args and called_name(call) in _FILLS else None


def _attribute_of(node: ast.AST) -> str | None:
    """`scales` of `self.scales = x`, `self.scales[0] = x`, `y, self.scales = f()` and `self.scales.append(x)`."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = [part for item in node.targets for part in (item.elts if isinstance(item, ast.Tuple) else [item])]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        func = node.value.func
        targets = [func.value] if isinstance(func, ast.Attribute) else []
    for target in targets:
        item = target
        while isinstance(item, ast.Subscript):
            item = item.value
        name = variable(item)
        if name is not None and name.startswith("self."):
            return name.removeprefix("self.")
    return None


def _methods(owner: ast.ClassDef) -> list[ast.FunctionDef]:
    return [item for item in owner.body if isinstance(item, ast.FunctionDef)]


def carried_by_object(at: FailingLine) -> tuple[str, str] | None:
    """The attribute that one call leaves with a graph, and the next call reads; None for none or several.

    In a sentence, and in a few words for the headline.
    """
    found = _last_carried(at)
    passes = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and called_name(item) == "backward"]
    if found is None or len(passes) > 1:  # two of one step may share a graph
        return None
    stored, read = found
    name = f"self.{_attribute_of(stored.node)}"
    place = at.in_file(stored.file, read)
    again = " again" if read == stored.node.lineno else ""
    how = (
        "Store `.detach()` of it"
        if isinstance(stored.node, ast.Expr)
        else f"Set `{name} = {name}.detach()` before (of a tuple, each tensor)"
    )
    words = (
        f"Most likely by what {stored.owner.name} keeps in `{name}` ({stored.words(at)}): a result with its graph, "
        f"which the next step reads{again} ({place}) after backward() has freed it. {how}, or start anew in each step."
    )
    return words, f"probably the graph of what `{name}` keeps ({stored.words(at)})"


def _last_carried(at: FailingLine) -> tuple[Stored, int] | None:
    read = [(item, line) for item in stores(at) if (line := _read_before(at, item)) is not None]
    for given in (False, True):
        found = [pair for pair in read if _is_computed(pair[0], given=given)]
        names = {(item.owner.name, _attribute_of(item.node)) for item, _ in found}
        if found:
            return found[-1] if len(names) == 1 else None
    return None


def _read_before(at: FailingLine, stored: Stored) -> int | None:
    """The line where the next step reads what this one has stored; None where it is set anew before."""
    name, filled = _attribute_of(stored.node), isinstance(stored.node, ast.Expr)
    if isinstance(stored.node, ast.AugAssign) or _is_reset(at, stored, f"self.{name}"):
        return None
    for method in _methods(stored.owner) if filled else [stored.method]:
        nodes = [*own_nodes(method)]
        not_read = {id(item.func.value) for item in nodes
                    if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute)
                    and item.func.attr in (*_FILLS, "clear")}  # fmt: skip
        reads = [
            item.lineno
            for item in nodes
            if isinstance(item, ast.Attribute) and variable(item) == f"self.{name}" and isinstance(item.ctx, ast.Load)
            if id(item) not in not_read
        ]
        cut = any(
            isinstance(item, ast.stmt) and not hasattr(item, "body") and f"self.{name}" in (text := ast.unparse(item))
            and _WITHOUT_GRAPH.search(text) for item in nodes
        )  # fmt: skip
        if cut:
            return None
        if reads and method.name != "__init__" and (filled or min(reads) <= stored.node.lineno):
            return min(reads)
    return None


def _is_computed(stored: Stored, *, given: bool) -> bool:
    """Whether a layer of the object takes part in the value; `given`: also what forward() was given."""
    layers = {
        variable(target)
        for method in _methods(stored.owner)
        if method.name == "__init__"
        for item in own_nodes(method)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)
        for target in item.targets
    } - {None}
    made = set(parameters(stored.method)[1:]) if given and stored.method.name in MADE_ON_CALL else set[str]()
    for item in (*own_nodes(stored.method), stored.node):
        value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
        value = stored.value if item is stored.node else value
        parts = [*nodes_of(value)] if value is not None else []
        called = any(isinstance(part, ast.Call) and variable(part.func) in layers for part in parts)
        if called or any(isinstance(part, ast.Name) and part.id in made for part in parts):
            if item is stored.node:
                return True
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            made |= {
                part.id for held in targets if held is not None for part in nodes_of(held) if isinstance(part, ast.Name)
            }
    return False


def _is_reset(at: FailingLine, stored: Stored, name: str) -> bool:
    """Whether the program may set it anew: the object itself, or a line that sets it from outside."""
    attribute = name.removeprefix("self.")
    resets = {
        method.name
        for method in _methods(stored.owner)
        for item in own_nodes(method)
        if method.name != "__init__" and item is not stored.node
        if (isinstance(item, ast.Assign) and _attribute_of(item) == attribute)
        or (isinstance(item, ast.Call) and ast.unparse(item.func) == f"{name}.clear")
    }
    if stored.method.name in resets:
        return True
    for tree in at.files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) in resets:
                return True
            other = isinstance(item, ast.Attribute) and variable(item) is None and isinstance(item.ctx, ast.Store)
            if other and isinstance(item, ast.Attribute) and item.attr == attribute:
                return True
    return False
