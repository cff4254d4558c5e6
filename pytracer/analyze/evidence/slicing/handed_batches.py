"""Whether what a rule collects is handed on as it is: not cut, padded, or dealt out to the ranks on the way."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.syntax.bindings import is_empty_container, set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_AS_IT_IS = ("iter", "list", "tuple")
_REORDERS = ("shuffle", "sort")
_MOST = 4


def is_handed_on(owner: ast.AST, rule: ast.FunctionDef, batches: str | None, batch: str) -> bool:
    """Whether the rounds of a loop over a generator, over what a function returns, or over a class are the batches.

    Args:
        owner: That function, or the class, which has `__iter__`.
        rule: The function, or the method, that makes the batches.
        batches: The list that it puts them into; None where it yields each.
        batch: Its name of one.
    """
    methods, entry = [rule], rule if not isinstance(owner, ast.ClassDef) else None
    if isinstance(owner, ast.ClassDef):
        methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)]
        entry = method_of(owner, ("__iter__",))
    if entry is None:
        return False
    known = set[str]()
    if batches is not None:
        if not _is_kept(_places(methods, rule, batches), batches, batch):
            return False
        known = {batches}
    elif rule is entry:
        return True
    if rule is not entry:
        if batches is None or (not batches.startswith("self.") and _returns(rule, known)):
            known = {f"self.{rule.name}()"}
        elif not batches.startswith("self."):
            return False
    for _ in range(_MOST):
        known |= set(_renamed(methods, entry, known, batch))
    return _returns(entry, known)


def _places(methods: Sequence[ast.FunctionDef], rule: ast.FunctionDef, name: str) -> Sequence[ast.FunctionDef]:
    """The functions that can change what is called so."""
    return methods if name.startswith("self.") else [rule]


def _plain(node: ast.expr | None) -> str:
    """`self.batches` of `iter(list(self.batches))`; `self._batches()` whatever it is given."""
    while isinstance(node, ast.Call) and called_name(node) in _AS_IT_IS and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Call) and variable(node.func) is not None:
        return f"{variable(node.func)}()"
    return (variable(node) or "") if node is not None else ""


def _renamed(methods: Sequence[ast.FunctionDef], entry: ast.FunctionDef, known: set[str], batch: str) -> Iterator[str]:
    """Variables that are set to nothing else, and not changed: `batches` of `batches = self._batches()`."""
    for method in methods:
        for item in own_nodes(method):
            for target, value in set_by(item):
                name = variable(target)
                if name is None or name in known or value is None or _plain(value) not in known:
                    continue
                if method is not entry and not name.startswith("self."):
                    continue
                places = methods if name.startswith("self.") else [method]
                if _is_kept(places, name, batch, known):
                    yield name


def _is_kept(functions: Sequence[ast.FunctionDef], name: str, batch: str, known: set[str] | None = None) -> bool:
    """Whether a list is only filled, put in another order, and read as a whole."""
    allowed = set[int]()
    for item in (part for function in functions for part in nodes_of(function)):
        for target, value in set_by(item):
            is_made = _plain(value) in known if known is not None else is_empty_container(value)
            if variable(target) == name and is_made:
                allowed.add(id(target))
        if isinstance(item, ast.Call):
            allowed |= _allowed(item, batch)
        elif isinstance(item, (ast.Return, ast.YieldFrom)) and item.value is not None:
            allowed.add(id(item.value))
        elif isinstance(item, ast.For):
            allowed.add(id(item.iter))
        elif isinstance(item, ast.Assign):
            allowed.add(id(item.value))
    parts = (
        part for function in functions for part in nodes_of(function) if isinstance(part, (ast.Name, ast.Attribute))
    )
    return all(id(part) in allowed for part in parts if variable(part) == name)


def _allowed(call: ast.Call, batch: str) -> set[int]:
    """Where a call leaves a list as long: `batches.append(batch)`, `shuffle(batches)`, `len(batches)`."""
    name, func = called_name(call), call.func
    if isinstance(func, ast.Attribute) and (name == "sort" or (name == "append" and len(call.args) == 1)):
        given = call.args[0] if name == "append" else None
        return {id(func.value)} if given is None or _plain(given) == batch else set()
    return {id(item) for item in call.args} if name in (*_AS_IT_IS, *_REORDERS, "len") else set()


def _returns(function: ast.FunctionDef, known: set[str]) -> bool:
    """Whether all that it gives is what is known: by `return`, `yield from`, or a `yield` in each round."""
    found = False
    for item in own_nodes(function):
        if isinstance(item, (ast.Return, ast.YieldFrom)):
            if _plain(item.value) not in known:
                return False
            found = True
        elif isinstance(item, ast.Yield):
            if not any(_yields_each(loop, item, known) for loop in own_nodes(function)):
                return False
            found = True
    return found


def _yields_each(loop: ast.AST, given: ast.Yield, known: set[str]) -> bool:
    if not isinstance(loop, ast.For) or _plain(loop.iter) not in known:
        return False
    plain = all(isinstance(item, (ast.Assign, ast.Expr)) for item in loop.body)
    return plain and any(isinstance(item, ast.Expr) and item.value is given for item in loop.body)
