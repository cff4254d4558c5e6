"""An attribute of a module that has the name of a method of nn.Module, which is then called in vain."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around
from pytracer.analyze.tensors.source_lines import syntax_tree

_CALLED = Pattern(r"^'(\w+)' object is not callable")
_METHODS = Pattern(
    r"train|eval|to|apply|(?:named_)?(?:parameters|children|modules|buffers)|(?:load_)?state_dict|zero_grad"
    r"|requires_grad_|cuda|cpu|float|double|half|bfloat16|type|forward"
)
_BASES = Pattern(r"\w*Module|\w*Model|nn\.\w+|torch\.nn\.\w+")


class _Set(msgspec.Struct, frozen=True):
    file: str
    statement: ast.Assign | ast.AnnAssign
    owner: str


def hidden_method(at: FailingLine) -> str | None:
    """`self.train = train`: eval() calls train()."""
    found = _CALLED.search(at.message)
    if at.kind != "TypeError" or found is None:
        return None
    own = _replaced(at) or _property(at, found[1])
    if own is not None:
        return own
    for method in _called(at):
        sets = [
            item
            for file, tree in at.files.items()
            for item in _settings(at, file, tree, method)
            if not _is_other(item.statement.value, found[1]) and (not at.own or _is_receiver(at, item.owner))
        ]
        if len(sets) != 1:
            continue
        one = sets[0]
        where = at.in_file(one.file, one.statement.lineno)
        call = at.only(ast.Call)
        reader = f"`{source(call.func)}()` at line {at.line}" if call is not None else f"line {at.line}"
        way = "calls" if at.own else "comes to call"
        return (
            f"`{source(one.statement)}` at {where} hides {method}() of nn.Module, which {reader} {way}: rename that "
            f"attribute of {one.owner} there and where it is read."
        )
    return None


def _property(at: FailingLine, kind: str) -> str | None:
    """`self.is_train()`, which is a property of the program's own class."""
    call = at.only(ast.Call)
    if not at.own or call is None or call.args or call.keywords or not isinstance(call.func, ast.Attribute):
        return None
    name, of = call.func.attr, _class_of(at, call.func.value)
    found = [
        (file, owner, item)
        for file, tree in at.files.items()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef) and owner.name == of
        for item in owner.body
        if isinstance(item, ast.FunctionDef) and item.name == name
    ]
    if of is None or len(found) != 1 or not any("property" in ast.unparse(by) for by in found[0][2].decorator_list):
        return None
    file, owner, method = found[0]
    return (
        f"`{name}` is a property of {owner.name} ({at.in_file(file, method.lineno)}), so that `{source(call.func)}` is "
        f"its value already, a {kind}, and line {at.line} calls that: leave the parentheses out there."
    )


def _class_of(at: FailingLine, owner: ast.expr) -> str | None:
    """The class of `self`, or that which made a variable: an array of NumPy has a `size`, too."""
    if isinstance(owner, ast.Name) and owner.id == "self":
        around = class_around(at.tree, at.scope)
        return around.name if around is not None else None
    made = at.made(owner)
    node = made.node if made is not None else owner
    return called_name(node) if isinstance(node, ast.Call) else None


def _replaced(at: FailingLine) -> str | None:
    """`self.loss = self.loss(x)`: the attribute has the name of a method of the same class."""
    call = at.only(ast.Call)
    if not at.own or call is None or not isinstance(call.func, ast.Attribute):
        return None
    name = call.func.attr
    for file, tree in at.files.items():
        for owner in (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef)):
            methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)]
            method = next((item for item in methods if item.name == name and not item.decorator_list), None)
            if method is None or not _is_receiver(at, owner.name):
                continue
            sets = [item for item in nodes_of(owner) if isinstance(item, ast.Assign) and _sets(item, name)]
            if len(sets) == 1:
                return (
                    f"`{short(source(sets[0]))}` ({at.in_file(file, sets[0].lineno)}) puts a value in the place of the "
                    f"method {name}() of {owner.name} ({at.in_file(file, method.lineno)}), and `{source(call.func)}()` "
                    f"at line {at.line} finds that: give one of the two another name."
                )
    return None


def _sets(item: ast.Assign, name: str) -> bool:
    return any(ast.unparse(target) == f"self.{name}" for target in item.targets)


def _called(at: FailingLine) -> list[str]:
    """Methods of nn.Module that the line which raised it calls."""
    if at.own:
        call = at.only(ast.Call)
        names = [call.func.attr] if call is not None and isinstance(call.func, ast.Attribute) else []
        return [name for name in names if _METHODS.fullmatch(name)]
    last = at.stack[0]
    if not (last.file or "").replace("\\", "/").endswith("torch/nn/modules/module.py"):
        return []
    tree = syntax_tree(at.snapshot, last)
    if tree is None:
        return []
    calls = [item.func for item in nodes_of(tree) if isinstance(item, ast.Call) and item.lineno == last.line]
    names = [item.attr for item in calls if isinstance(item, ast.Attribute)]
    names += ["forward" for item in calls if isinstance(item, ast.Name) and item.id == "forward_call"]
    return [name for name in names if _METHODS.fullmatch(name)]


def _is_receiver(at: FailingLine, owner: str) -> bool:
    """Whether what the line calls it of is an object of that class."""
    call = at.only(ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute):
        return False
    if source(call.func.value) == "self":
        around = class_around(at.tree, at.scope)
        return around is not None and around.name == owner
    made = at.made(call.func.value)
    return made is not None and isinstance(made.node, ast.Call) and called_name(made.node) == owner


def _settings(at: FailingLine, file: str, tree: ast.Module, method: str) -> Iterator[_Set]:
    """Lines of the program's modules that set it."""
    for owner in nodes_of(tree):
        if not isinstance(owner, ast.ClassDef) or not _is_module(at, tree, owner):
            continue
        own = [item for item in owner.body if isinstance(item, (ast.Assign, ast.AnnAssign))]
        for item in nodes_of(owner):
            if not isinstance(item, (ast.Assign, ast.AnnAssign)) or item.value is None:
                continue
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            for target in targets:
                of_class = item in own and ast.unparse(target) == method
                if of_class or ast.unparse(target) == f"self.{method}":
                    yield _Set(file, item, owner.name)


def _is_module(at: FailingLine, tree: ast.Module, owner: ast.ClassDef, depth: int = 4) -> bool:
    for base in owner.bases:
        text = ast.unparse(base)
        if _BASES.fullmatch(text) or (imported_as(tree, base) or "").startswith("torch.nn."):
            return True
        within = [
            (other, item)
            for other in at.files.values()
            for item in nodes_of(other)
            if isinstance(item, ast.ClassDef) and item.name == text.rpartition(".")[2] and item is not owner
        ]
        if depth and any(_is_module(at, other, item, depth - 1) for other, item in within):
            return True
    return False


def _is_other(value: ast.expr | None, kind: str) -> bool:
    """Whether it is surely no value of that kind: a constant of another one, or a function."""
    if isinstance(value, ast.Constant):
        return type(value.value).__name__ != kind
    return isinstance(value, ast.Lambda)
