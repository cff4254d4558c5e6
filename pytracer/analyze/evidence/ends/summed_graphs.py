"""Sums of losses that keep the autograd graphs of all rounds: `total += loss`, in a loop that calls no backward().

From the line of a forward() whose results pile up, through the functions that return what it made (`return loss, out`),
to the loop that adds it to what only grows. None where no_grad() or inference_mode() is entered on the way, where
backward() frees the graph in each round, or is called for the sum.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec

from pytracer.analyze.evidence.ends.graph_levels import Graph, Levels
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.cut_values import names_switch
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around
from pytracer.analyze.evidence.syntax.names import elements, indexed, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans, statement_at

_FORWARD = ("forward", "__call__")
_FREES = ("backward", "grad", "manual_backward")
_EMPTIES = ("clear", "pop", "popleft", "zero_", "detach_")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEPTH = 5


class SummedGraph(msgspec.Struct, frozen=True):
    """One statement that adds up: its place, the container, the value and whether that surely has a graph."""

    file: str
    tree: ast.Module
    scope: Scope
    loop: Loop
    node: ast.stmt
    container: ast.expr
    value: ast.expr
    level: Graph


class _Result(msgspec.Struct, frozen=True):
    """What a function returns: of each element of a tuple whether it has a graph; one level for anything else."""

    file: str
    tree: ast.Module
    scope: Scope
    levels: tuple[Graph, ...]
    is_tuple: bool


def stored_sum(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Container and value of `total += x`, `total = total + x`, `sums[key] += x` and `losses.append(x)`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.target, node.value
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) == "append":
        call = node.value
        return (call.func.value, call.args[0]) if isinstance(call.func, ast.Attribute) and len(call.args) == 1 else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        target, value = node.targets[0], node.value
        if isinstance(value.op, ast.Add) and (name := ast.unparse(target)) in map(
            ast.unparse, (value.left, value.right)
        ):
            return target, value.right if ast.unparse(value.left) == name else value.left
    return None


def retains(call: ast.Call) -> bool:
    """`loss.backward(retain_graph=True)`, which frees no graph."""
    given = keyword_value(call, "retain_graph")
    return isinstance(given, ast.Constant) and given.value is True


def _freezes(tree: ast.Module) -> bool:
    """Whether anything asks for gradients or none."""
    asks = ("requires_grad", "requires_grad_")
    return any(
        item.attr in asks if isinstance(item, ast.Attribute) else isinstance(item, ast.keyword) and item.arg in asks
        for item in nodes_of(tree)
    )


class GraphSums:
    """The statements of a program that add up what the line of a function makes, with its graph."""

    def __init__(self, files: dict[str, ast.Module]) -> None:
        self._files = files
        self._layers = frozenset(name for tree in files.values() for name in _layers(tree))
        self._frees = _that_free(files)
        self._frozen = not self._frees and any(_freezes(tree) for tree in files.values())

    def of_line(self, file: str, line: int) -> list[SummedGraph]:
        """Those of one loop; nothing where several loops do so."""
        tree = self._files[file]
        scope, statement = scope_of(tree, line), statement_at(tree, line)
        if isinstance(scope, (ast.Module, ast.Lambda)) or statement is None or self._frozen:
            return []
        names = {part.id for item in _targets(statement) for part in nodes_of(item) if isinstance(part, ast.Name)}
        levels = Levels(scope, dict.fromkeys(names, Graph.SURE), self._layers, forward=scope.name in _FORWARD)
        found: list[SummedGraph] = []
        waiting = [_returned(file, tree, scope, levels, line)]
        seen, steps = {id(scope)}, 0
        while waiting and steps <= _DEPTH * len(self._files) * _DEPTH:
            result, steps = waiting.pop(0), steps + 1
            if result is None or not any(result.levels) or self._is_switched(result.tree, result.scope):
                continue
            for other, call, target in self._calls(result):
                there = self._files[other]
                inside = scope_of(there, call.lineno)
                if _below_switch(there, inside, call.lineno):
                    continue
                held = Levels(inside, _given(target, result), self._layers, forward=_name(inside) in _FORWARD)
                loops = loops_around(there, call.lineno)
                if loops:
                    found += self._sums(other, there, inside, loops[-1], held)
                if id(inside) not in seen and not isinstance(inside, (ast.Module, ast.Lambda)):
                    seen.add(id(inside))
                    waiting.append(_returned(other, there, inside, held, None))
        return found if len({id(item.loop) for item in found}) == 1 else []

    def _calls(self, result: _Result) -> Iterator[tuple[str, ast.Call, ast.expr]]:
        """Those whose result a statement binds: `loss, out = self.losses(batch)`."""
        for file, tree in self._files.items():
            for item in nodes_of(tree):
                if not isinstance(item, ast.Assign) or len(item.targets) != 1:
                    continue
                for call in nodes_of(item.value):
                    if isinstance(call, ast.Call) and self._may_be(call, result, tree):
                        yield file, call, item.targets[0]

    def _may_be(self, call: ast.Call, result: _Result, tree: ast.Module) -> bool:
        name = _name(result.scope)
        if name not in _FORWARD:
            return called_name(call) == name
        named = variable(call.func)
        if named is None or named in self._layers or (isinstance(call.func, ast.Attribute) and "self." not in named):
            return False
        bound = (target for item in nodes_of(tree) if isinstance(item, ast.Assign) for target in item.targets)
        given = scope_of(tree, call.lineno)
        is_given = not isinstance(given, ast.Module) and named in {item.arg for item in given.args.args}
        return is_given or any(variable(part) == named for target in bound for part in elements(target))

    def _sums(self, file: str, tree: ast.Module, scope: Scope, loop: Loop, held: Levels) -> Iterator[SummedGraph]:
        called = {called_name(item) for item in nodes_of(loop) if isinstance(item, ast.Call) and not retains(item)}
        if called & {*_FREES, *self._frees} or self._is_switched(tree, scope):
            return
        for node in nodes_of(loop):
            found = stored_sum(node)
            if found is None or not isinstance(node, ast.stmt) or not held.of(found[1]):
                continue
            container, value = found
            kept = _grows(scope, loop, container, node) and not _below_switch(tree, scope, node.lineno)
            kept = kept and not _is_bounded(tree, container)
            if kept and not self._is_passed_back(scope, container):
                yield SummedGraph(file, tree, scope, loop, node, container, value, held.of(value))

    def _is_passed_back(self, scope: Scope, container: ast.expr) -> bool:
        """Whether backward() is called for the sum: there, or by who gets it."""
        name = variable(indexed(container)) or ""
        levels = Levels(scope, {name: Graph.SURE}, self._layers)
        frees = {*_FREES, *self._frees}
        if _passes(scope, levels, frees):
            return True
        attribute = name.partition(".")[2] if name.startswith("self.") else None
        for item in (part for tree in self._files.values() for part in nodes_of(tree)):
            if isinstance(item, ast.Call) and called_name(item) in frees and not retains(item):
                # `self.run(data).backward()`, `self.total.backward()`
                for part in nodes_of(item):
                    is_call = isinstance(part, ast.Call) and called_name(part) == _name(scope)
                    if (is_call and part is not item) or (isinstance(part, ast.Attribute) and part.attr == attribute):
                        return True
        returned = any(
            isinstance(item, ast.Return) and item.value is not None and levels.of(item.value)
            for item in own_nodes(scope)
        )
        for tree in self._files.values() if returned else ():
            for item in nodes_of(tree):
                if isinstance(item, ast.Assign) and any(
                    isinstance(part, ast.Call) and called_name(part) == _name(scope) for part in nodes_of(item.value)
                ):
                    given = {
                        held: Graph.SURE
                        for target in item.targets
                        for part in elements(target)
                        if (held := variable(part))
                    }
                    around = scope_of(tree, item.lineno)
                    if _passes(around, Levels(around, given, self._layers), frees):
                        return True
        return False

    def _calls_switched(self, call: ast.Call, name: str) -> bool:
        """`without_grad(self.run, data)`, of a function that enters no_grad() itself."""
        given = any(isinstance(part, (ast.Name, ast.Attribute)) and ast.unparse(part).rpartition(".")[2] == name
                    for part in (*call.args, *(item.value for item in call.keywords)))  # fmt: skip
        return given and any(
            isinstance(item, ast.FunctionDef) and item.name == called_name(call) and names_switch(item)
            for tree in self._files.values()
            for item in nodes_of(tree)
        )

    def _is_switched(self, tree: ast.Module, scope: Scope, depth: int = 3) -> bool:
        """Whether a function is decorated so, switches it off itself, or one of its callers does."""
        if any(names_switch(item) for item in getattr(scope, "decorator_list", ())):
            return True
        if any(isinstance(item, ast.Expr) and names_switch(item.value) for item in own_nodes(scope)):
            return True
        name = _name(scope)
        if isinstance(scope, (ast.Module, ast.Lambda)) or depth == 0 or name in _FORWARD:
            return False
        for other in self._files.values():
            for item in nodes_of(other):
                if isinstance(item, ast.Call) and self._calls_switched(item, name):
                    return True
                if isinstance(item, ast.Call) and called_name(item) == name:
                    around = scope_of(other, item.lineno)
                    if _below_switch(other, around, item.lineno):
                        return True
                    if around is not scope and self._is_switched(other, around, depth - 1):
                        return True
        return False


def _that_free(files: dict[str, ast.Module]) -> frozenset[str]:
    """Functions that call backward(), also by others."""
    calls = [
        (getattr(scope, "name", "<module>"), called_name(item))
        for tree in files.values()
        for scope in (tree, *(item for item in nodes_of(tree) if isinstance(item, _FUNCTIONS)))
        for item in own_nodes(scope)
        if isinstance(item, ast.Call) and not retains(item)
    ]
    found, size = {name for name, called in calls if called in _FREES}, -1
    while len(found) != size:
        size = len(found)
        found |= {name for name, called in calls if called in found}
    return frozenset(found)


def _passes(scope: Scope, levels: Levels, frees: Collection[str]) -> bool:
    """Whether backward() of a function is called for such a value."""
    return any(
        isinstance(item, ast.Call) and called_name(item) in frees and not retains(item)
        and any(
            levels.of(part) for part in
            (*item.args, *([item.func.value] if isinstance(item.func, ast.Attribute) else []))
        )
        for item in own_nodes(scope)
    )  # fmt: skip


def _returned(file: str, tree: ast.Module, scope: Scope, levels: Levels, line: int | None) -> _Result | None:
    """What it returns, of all its `return` the least that is sure; `line`: what it returns itself has a graph."""
    values = [item for item in own_nodes(scope) if isinstance(item, ast.Return) and item.value is not None]
    rows = []
    for item in values:
        parts = item.value.elts if isinstance(item.value, ast.Tuple) else [item.value]
        here = line is not None and spans(item, line)
        rows.append([Graph.SURE if here else levels.of(part) for part in parts if part is not None])
    if not rows or len({len(row) for row in rows}) != 1:
        return None
    is_tuple = isinstance(values[0].value, ast.Tuple)
    if len(rows) == 1:
        return _Result(file, tree, scope, tuple(rows[0]), is_tuple)
    alike = tuple(
        column[0] if len({*column}) == 1 else min(max(column), Graph.MAYBE) for column in zip(*rows, strict=True)
    )
    return _Result(file, tree, scope, alike, is_tuple)


def _given(target: ast.expr, result: _Result) -> dict[str, Graph]:
    """What the variables of an assignment hold of a result."""
    parts = elements(target)
    if isinstance(target, (ast.Tuple, ast.List)) and result.is_tuple and len(parts) == len(result.levels):
        pairs = [*zip(parts, result.levels, strict=True)]
    else:
        every = len({*result.levels}) == 1
        level = result.levels[0] if every else Graph.MAYBE
        pairs = [(part, level) for part in parts]
    return {name: level for part, level in pairs if (name := variable(part)) is not None}


def _grows(scope: Scope, loop: Loop, container: ast.expr, node: ast.stmt) -> bool:
    """Whether it is older than the loop, begins before it, and nothing in the loop sets it anew or empties it."""
    base = indexed(container)
    name = variable(base)
    if name is None:
        return False
    sets, begun = [], name.startswith("self.")
    for item in own_nodes(scope):
        if isinstance(item, (ast.Assign, ast.AnnAssign)) and item is not node and item.value is not None:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(variable(indexed(part)) == name for target in targets for part in elements(target)):
                sets.append(item)
        func = item.func if isinstance(item, ast.Call) and spans(loop, item.lineno) else None
        emptied = isinstance(func, ast.Attribute) and func.attr in _EMPTIES
        if emptied and isinstance(func, ast.Attribute) and variable(indexed(func.value)) == name:
            return False
    deleted = (part for item in own_nodes(scope) if isinstance(item, ast.Delete) for part in item.targets)
    if any(spans(loop, part.lineno) and variable(indexed(part)) == name for part in deleted):
        return False
    begun = begun or any(item.lineno < loop.lineno for item in sets)
    return begun and not any(spans(loop, item.lineno) for item in sets)


def _layers(tree: ast.Module) -> Iterator[str]:
    """Variables that hold layers or losses of torch: `self.mse = nn.MSELoss()`, also of a tuple."""
    for item in nodes_of(tree):
        if not isinstance(item, ast.Assign):
            continue
        for target in item.targets:
            for part, value in zip(elements(target), elements(item.value), strict=False):
                kind = imported_as(tree, value.func) if isinstance(value, ast.Call) else None
                name = variable(part)
                if name is not None and kind is not None and kind.startswith("torch.nn."):
                    yield name


def _below_switch(tree: ast.Module, scope: Scope, line: int) -> bool:
    around = (item for item in own_nodes(scope) if isinstance(item, (ast.With, ast.AsyncWith)) and spans(item, line))
    decorators = getattr(scope, "decorator_list", ())
    return any(_may_switch(tree, part.context_expr) for item in around for part in item.items) or any(
        _may_switch(tree, item) for item in decorators
    )


def _may_switch(tree: ast.Module, node: ast.expr) -> bool:
    """Also of `ctx = torch.no_grad() if ... else nullcontext()`, and a function of the program that enters it."""
    if names_switch(node):
        return True
    text, called = ast.unparse(node), called_name(node) if isinstance(node, ast.Call) else variable(node)
    for item in nodes_of(tree):
        if isinstance(item, ast.Assign) and text in map(ast.unparse, item.targets) and names_switch(item.value):
            return True
        if isinstance(item, ast.FunctionDef) and item.name == (called or "").rpartition(".")[2] and names_switch(item):
            return True
    return False


def _is_bounded(tree: ast.Module, container: ast.expr) -> bool:
    """`deque(maxlen=10)`."""
    name = variable(indexed(container))
    return any(
        isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and called_name(item.value) == "deque"
        and (len(item.value.args) > 1 or any(part.arg == "maxlen" for part in item.value.keywords))
        and name in map(variable, item.targets)
        for item in nodes_of(tree)
    )  # fmt: skip


def _targets(statement: ast.stmt) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else []


def _name(scope: Scope) -> str:
    return "<module>" if isinstance(scope, (ast.Module, ast.Lambda)) else scope.name
