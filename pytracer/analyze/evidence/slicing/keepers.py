"""What keeps a value inside: the parameter of a class that becomes an attribute, and what a statement sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function, default_of, parameters

Files = Mapping[str, ast.Module]


class Taker(msgspec.Struct, frozen=True):
    """What is called by `name`: the function that then runs, and its parameter that is kept inside of the result.

    `function`: None of a library's, which may keep any. `fluent`: a method, whose object is the result.
    """

    name: str
    function: Function | None
    parameter: str
    attribute: str | None = None
    owner: str | None = None
    fluent: bool = False

    @property
    def links(self) -> bool:
        """Whether there may be nothing inside: the first object of a chain."""
        if self.fluent:
            return True
        default = default_of(self.function, self.parameter) if self.function is not None else None
        return is_none(default)


def classes_of(files: Files) -> list[ast.ClassDef]:
    """All classes of a program."""
    return [item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef)]


def owner_of(files: Files, attribute: str | None) -> str | None:
    """The only class of a program that sets such an attribute of its objects."""
    owners = {
        owner.name
        for owner in classes_of(files)
        for node in nodes_of(owner)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target, _ in set_by(node)
        if attribute is not None and target in (f"self.{attribute}", attribute)
    }
    return owners.pop() if len(owners) == 1 else None


def takers_of(classes: Sequence[ast.ClassDef], name: str, attribute: str) -> Iterator[Taker]:
    """Of a class, and of those that inherit its __init__."""
    owners = [item for item in classes if item.name == name]
    kept = _keeper(owners[0], attribute) if len(owners) == 1 else None
    if kept is None:
        return
    function, parameter = kept
    yield Taker(name, function, parameter, attribute, name)
    for item in classes:
        bases = {ast.unparse(base).rpartition(".")[2] for base in item.bases}
        if name in bases and initializer(item) is None:
            yield Taker(item.name, function, parameter, attribute, name)


def initializer(owner: ast.ClassDef) -> ast.FunctionDef | None:
    """Its own __init__."""
    found = (item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    return next(found, None)


def _keeper(owner: ast.ClassDef, attribute: str) -> tuple[Function, str] | None:
    """The __init__ of a class, and its parameter that it keeps as the attribute."""
    made = initializer(owner)
    if made is None:
        return _of_dataclass(owner, attribute)
    values = [
        value
        for node in nodes_of(made)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target, value in set_by(node)
        if target == f"self.{attribute}"
    ]
    name = inside_of(values[0]) if len(values) == 1 else None
    return (made, name) if name is not None and name in parameters(made) else None


def _of_dataclass(owner: ast.ClassDef, attribute: str) -> tuple[Function, str] | None:
    if not any("dataclass" in ast.unparse(item) for item in owner.decorator_list):
        return None
    targets = (item.target for item in owner.body if isinstance(item, ast.AnnAssign))
    fields = [item.id for item in targets if isinstance(item, ast.Name)]
    if attribute not in fields:
        return None
    made = ast.parse(f"def __init__(self, {', '.join(fields)}): pass").body[0]
    return (made, attribute) if isinstance(made, ast.FunctionDef) else None


def inside_of(value: ast.expr) -> str | None:
    """`x` of `x`, `iter(x)`, `list(x)` and `x or other`."""
    if isinstance(value, ast.Call) and called_name(value) in ("iter", "list", "tuple") and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.BoolOp):
        value = value.values[0]
    return value.id if isinstance(value, ast.Name) else None


def set_by(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Targets as text, each with its value: of `a.b = c`, `a.b, d = c, e`, `setattr(a, "b", c)`."""
    if isinstance(node, ast.Expr):
        call = node.value
        if isinstance(call, ast.Call) and called_name(call) == "setattr" and len(call.args) == 3:
            text = attribute_text(call)
            if text is not None:
                yield text, call.args[2]
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from ((ast.unparse(target), value) for target, value in each_set(targets, node.value))


def attribute_text(call: ast.Call) -> str | None:
    """`a.b` of `getattr(a, "b")` and `setattr(a, "b", c)`; `a[b]` where `b` is a variable."""
    if len(call.args) < 2:
        return None
    name = call.args[1].value if isinstance(call.args[1], ast.Constant) else None
    owner = ast.unparse(call.args[0])
    return f"{owner}.{name}" if isinstance(name, str) else f"{owner}[{ast.unparse(call.args[1])}]"
