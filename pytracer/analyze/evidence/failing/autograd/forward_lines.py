"""Which lines of a function made a value of what a module returned, as far as gradients flow through them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, parameters, spans_body

_CUTS = frozenset({"detach", "item", "tolist"})
_NO_GRAPH = Pattern(r"\b(?:no_grad|inference_mode)\b|set_grad_enabled\((?:mode=)?False\)")
_INDEX = Pattern(r"\[(\d+)\]")
_FUNCTIONS = 3  # that call each other


def forward_lines(at: FailingLine, spot: Spot, value: ast.expr, parameter: str) -> list[int] | None:
    """The lines above that made a value of what the module of a parameter returned; none where it calls that itself.

    None where nothing shows that it did, or a round of a loop before may have: then no line is the first.

    Args:
        at: The line that failed.
        spot: Where `value` is in the program.
        value: The expression there.
        parameter: As that function calls it: `self.critic.2.weight`.
    """
    search = _Search(at)
    found = search.goes_through(value, spot, (parameter,), 0)
    return sorted(search.lines) if found and not search.carried else None


class _Search:
    """Follows variables back. `lines`: those found; `carried`: whether one of them is below the line that reads it."""

    def __init__(self, at: FailingLine) -> None:
        self._at = at
        self._known: dict[tuple[int, str, int], bool] = {}
        self.lines: set[int] = set()
        self.carried = False

    def goes_through(self, value: ast.AST, spot: Spot, paths: Sequence[str], hops: int) -> bool:
        """Without a short cut: each line is to be found."""
        if is_without_graph(spot.scope, spot.line):
            return False
        found = False
        for part in with_graph(value):
            name = variable(part)
            if (
                calls_module(part, paths)
                or _is_parameter(part, paths)
                or (isinstance(part, ast.Call) and self._is_in_called(part, spot, paths, hops))
                or (name is not None and self._is_in_variable(name, spot, paths, hops))
            ):
                found = True
        return found

    def _is_in_variable(self, name: str, spot: Spot, paths: Sequence[str], hops: int) -> bool:
        key = (id(spot.scope), name, spot.line)
        if key in self._known:
            return self._known[key]
        self._known[key] = False
        for line, value in given(spot.scope, name, spot.line):
            if self.goes_through(value, structs.replace(spot, line=line), paths, hops):
                self._known[key] = True
                if not hops:
                    self.lines.add(line)
                    self.carried |= line >= spot.line
        return self._known[key]

    def _is_in_called(self, call: ast.Call, spot: Spot, paths: Sequence[str], hops: int) -> bool:
        """What a function of the program returns, of which its source shows it; of a library one that is given it."""
        called = self._at.slice.function(call, spot) if hops < _FUNCTIONS else None
        if called is None:
            return any(variable(item) != "self" and _is_module(item, paths) for item in passed_values(call))
        function, around = called
        inside = _paths_in(function, call, paths)
        returned = [item for item in own_nodes(function) if isinstance(item, ast.Return) and item.value is not None]
        return any(
            item.value is not None
            and self.goes_through(item.value, Spot(around.file, around.tree, function, item.lineno), inside, hops + 1)
            for item in returned
        )


def _paths_in(function: ast.FunctionDef, call: ast.Call, paths: Sequence[str]) -> list[str]:
    """How a function that is called names the parameter: by its object, an argument, or the variable of the module."""
    names, found = parameters(function), []
    held = {name: value for name in names if (value := argument_of(call, function, name)) is not None}
    if isinstance(call.func, ast.Attribute) and names[:1] == ["self"]:
        held.setdefault("self", call.func.value)
    for path in paths:
        for name, value in held.items():
            owner = ast.unparse(value)
            if path.startswith(f"{owner}."):
                found.append(f"{name}{path.removeprefix(owner)}")
        if path.partition(".")[0] not in (*names, "self"):
            found.append(path)
    return found


def _is_parameter(node: ast.AST, paths: Sequence[str]) -> bool:
    """The parameter itself: `self.critic[2].weight`."""
    return isinstance(node, (ast.Name, ast.Attribute)) and _INDEX.sub(r".\1", ast.unparse(node)) in paths


def calls_module(node: ast.AST, paths: Sequence[str]) -> bool:
    """Of the parameter, or one around that: `self.judge(x)` of `self.judge.2.weight`."""
    return isinstance(node, ast.Call) and _is_module(node.func, paths)


def _is_module(node: ast.AST, paths: Sequence[str]) -> bool:
    name = _INDEX.sub(r".\1", ast.unparse(node)).removesuffix(".forward")
    return any(path.startswith(f"{name}.") for path in paths)


def given(scope: Scope, name: str, line: int) -> list[tuple[int, ast.AST]]:
    """The lines that can have given a variable the value that it has there, or added to it, each with what it gave."""
    ways = reaching(scope, name, line, None)
    found: list[tuple[int, ast.AST]] = [(at, value) for at, value, _ in bindings_of(scope, name) if value is not None]
    fills = set(lines_that_fill(scope, name))
    for item in own_nodes(scope):
        if isinstance(item, (ast.For, ast.AsyncFor)) and holds(item.target, name):
            found.append((item.lineno, item.iter))
        elif (isinstance(item, ast.AugAssign) and variable(item.target) == name) or (
            isinstance(item, ast.Expr) and item.lineno in fills and item.lineno < line
        ):
            found.append((item.lineno, item.value))
    return [item for item in found if item[0] in fills or (item[0] < line if ways is None else item[0] in ways)]


def with_graph(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression without what a detach() cuts off."""
    if isinstance(node, ast.Call) and called_name(node) in _CUTS:
        return
    yield node
    for item in ast.iter_child_nodes(node):
        yield from with_graph(item)


def is_without_graph(scope: Scope, line: int) -> bool:
    """Below torch.no_grad()."""
    around = (item for item in own_nodes(scope) if isinstance(item, ast.With) and spans_body(item.body, line))
    return any(_NO_GRAPH.search(ast.unparse(part.context_expr)) for item in around for part in item.items)
