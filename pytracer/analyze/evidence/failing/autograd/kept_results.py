"""Results that an object keeps from its last forward(), with the graph that made them: who stores them, and where."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import is_empty_container
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_NORMS = ("weight_norm", "spectral_norm")
_NO_COPY = "support the deepcopy protocol"
WITHOUT_GRAPH = Pattern(r"\bdetach|\.item\(|\.numpy\(|\.tolist\(|\bno_grad\b|\.data\b")
_NUMBERS = ("float", "int", "len", "bool", "str")
FILLS = ("append", "extend", "insert", "appendleft", "add", "update", "setdefault")


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
    made = None if stored is not None else _made_first(at, name, kind)
    if made is not None:
        return (
            f"`{name}` of {kind} ({made}) is the result of an operation, with its graph, and only parameters and plain "
            "tensors can be copied. Compute it in forward() (or as a property), so that it follows the parameters that "
            "it is made of; where it shall not be trained, `.detach()` it there."
        )
    copied = f"`{short(ast.unparse(call))}`" if call is not None else f"Line {at.line}"
    normed = _normed(at, name) if stored is None else None
    if normed is not None:
        return (
            f"{copied} meets `{name}` of a {kind}, which {normed} computes anew in each forward, with its graph, so "
            "that it cannot be copied: use torch.nn.utils.parametrizations for that, whose modules can, or copy "
            "before the first forward."
        )
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


def _normed(at: FailingLine, name: str) -> str | None:
    """`weight_norm(nn.Conv1d(...))` of torch.nn.utils itself, whose hook sets the weight before each forward."""
    if name != "weight" or any(_prunes(item) for tree in at.files.values() for item in nodes_of(tree)):
        return None  # pruning sets it so, too
    calls = (
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _NORMS and "parametrizations" not in ast.unparse(tree)
    )
    file, call = next(calls, (None, None))
    if call is None:
        return None
    return f"{called_name(call)}() ({at.in_file(file, call.lineno)})"


def _prunes(item: ast.AST) -> bool:
    return isinstance(item, (ast.Name, ast.Attribute)) and "prune" in ast.unparse(item)


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
    found = [item for item in stores(at) if attribute_of(item.node) == name]
    own = [item for item in found if item.owner.name == kind]
    owners = {item.owner.name for item in own or found}
    if not own and len(owners) == 1:  # older recordings have the class of the outermost object
        kind = owners.pop()
    chosen = own or (found if kind in {item.owner.name for item in found} else [])
    return name, kind, chosen[0] if len(chosen) == 1 else None


def _made_first(at: FailingLine, name: str, kind: str) -> str | None:
    """The one line of __init__() that sets it: `` line 12: `self.scaled = base * 0.02` ``."""
    found = [
        f"{at.in_file(file, item.lineno)}: `{short(ast.unparse(item))}`"
        for file, tree in at.files.items()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef) and owner.name == kind
        for method in methods_of(owner)
        if method.name == "__init__"
        for item in own_nodes(method)
        if isinstance(item, ast.Assign) and attribute_of(item) == name
    ]
    set_at = {
        (file, item.lineno)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Attribute) and item.attr == name and isinstance(item.ctx, ast.Store)
    }
    return found[0] if len(found) == len(set_at) == 1 else None


def _read_at(at: FailingLine, stored: Stored) -> int | None:
    """The one line of another method that reads it."""
    name = attribute_of(stored.node)
    lines = {
        item.lineno
        for method in methods_of(stored.owner)
        if method is not stored.method and method.name != "__init__"
        for item in own_nodes(method)
        if isinstance(item, ast.Attribute) and variable(item) == f"self.{name}" and isinstance(item.ctx, ast.Load)
    }
    return lines.pop() if len(lines) == 1 and stored.file == at.frame.file else None


def stores(at: FailingLine) -> Iterator[Stored]:
    """All that put into an attribute of `self` what may have a graph."""
    for file, tree in at.files.items():
        for owner in (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef)):
            for method in methods_of(owner):
                for node, value in _stored_in(method):
                    yield Stored(file, owner, method, node, value)


def _stored_in(method: ast.FunctionDef) -> Iterator[tuple[ast.stmt, ast.expr]]:
    cut = [
        item
        for item in own_nodes(method)
        if isinstance(item, ast.With) and any(WITHOUT_GRAPH.search(ast.unparse(part)) for part in item.items)
    ]
    if method.name == "__init__" or any(WITHOUT_GRAPH.search(ast.unparse(by)) for by in method.decorator_list):
        return
    for node in own_nodes(method):
        value = _value(node)
        if value is None or not isinstance(node, ast.stmt) or attribute_of(node) is None:
            continue
        number = isinstance(value, ast.Call) and called_name(value) in _NUMBERS
        if (
            number
            or is_empty_container(value)
            or isinstance(value, ast.Constant)
            or WITHOUT_GRAPH.search(ast.unparse(node))
        ):
            continue
        if not any(spans(item, node.lineno) for item in cut):
            yield node, value


def _value(node: ast.AST) -> ast.expr | None:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return node.value
    call = node.value if isinstance(node, ast.Expr) else None
    return call.args[-1] if isinstance(call, ast.Call) and call.args and called_name(call) in FILLS else None


def attribute_of(node: ast.AST) -> str | None:
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
        name = path_of(item)
        if name is not None:
            return name.removeprefix("self.")
    return None


def path_of(node: ast.AST) -> str | None:
    """`self.hidden`, and `self.state.hidden` of an object that it holds."""
    item = node
    while isinstance(item, ast.Attribute):
        item = item.value
    return ast.unparse(node) if isinstance(node, ast.Attribute) and variable(item) == "self" else None


def methods_of(owner: ast.ClassDef) -> list[ast.FunctionDef]:
    """Those of a class itself."""
    return [item for item in owner.body if isinstance(item, ast.FunctionDef)]
