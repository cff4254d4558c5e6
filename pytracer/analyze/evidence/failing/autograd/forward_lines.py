"""Which lines of a function made a value of what a module returned, as far as gradients flow through them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL, argument_of, method_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.cut_values import (
    is_of_indices,
    is_without_graph,
    sets_no_graph,
    with_graph,
)
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, parameters, spans_body

_INDEX = Pattern(r"\[(\d+)\]")
_OWN_FORWARDS = ("self", "self.forward", "self.__call__", "super().forward", "super().__call__")
_FUNCTIONS = 3  # that call each other
_LIBRARIES = ("torch.", "contextlib.", "tempfile.", "time.", "nullcontext", "warnings.")
_MODES = frozenset({"autocast", "record_function", "profile", "device", "open", "no_sync", "enable_grad", "range"})
ALL = ".*"  # of a module whose parameters an optimizer has


def forward_lines(at: FailingLine, spot: Spot, value: ast.expr, parameter: str) -> list[int] | None:
    """The lines above that made a value of what the module of a parameter returned; none where it calls that itself.

    None where nothing shows that it did, where a round of a loop before may have (then no line is the first), or where
    the module goes into what is not followed.

    Args:
        at: The line that failed.
        spot: Where `value` is in the program.
        value: The expression there.
        parameter: As that function calls it: `self.critic.2.weight`.
    """
    search = _Search(at)
    found = search.goes_through(value, spot, (parameter,), 0)
    return sorted(search.lines) if found and not search.carried and not search.unsure else None


def is_of_another_module(at: FailingLine, spot: Spot, value: ast.expr, parameter: str) -> bool:
    """Whether all of a value can be followed, and none of it goes through the module of that parameter.

    Args:
        at: As of forward_lines().
        spot: As there.
        value: As there.
        parameter: As there.
    """
    search = _Search(at)
    return not search.goes_through(value, spot, (parameter,), 0) and not search.unsure


class _Search:
    """Follows variables back.

    `lines`: those found; `carried`: whether one of them is below the line that reads it; `unsure`: whether what is not
    followed may have called the module.
    """

    def __init__(self, at: FailingLine) -> None:
        self._at = at
        self._known: dict[tuple[int, str, int], bool] = {}
        self.lines: set[int] = set()
        self.carried = False
        self.unsure = False

    def goes_through(self, value: ast.AST, spot: Spot, paths: Sequence[str], hops: int) -> bool:
        """Without a short cut: each line is to be found."""
        if is_without_graph(spot.scope, spot.line) or self._is_in_own_mode(spot):
            return False
        found = False
        for part in with_graph(value):
            name = variable(part)
            if (
                self._calls(part, paths)
                or _is_parameter(part, paths)
                or (isinstance(part, ast.Call) and self._is_in_called(part, spot, paths, hops))
                or (name is not None and self._is_in_variable(name, spot, paths, hops))
            ):
                found = True
        return found

    def _calls(self, part: ast.AST, paths: Sequence[str]) -> bool:
        """A call of the module; of one around that only its forward() shows whether it goes through."""
        if not calls_module(part, paths) or not isinstance(part, ast.Call):
            return False
        name = _path(part.func).removesuffix(".forward")
        direct = any(
            path == f"{name}{ALL}" or (path.startswith(f"{name}.") and not path.endswith(ALL)) for path in paths
        )
        self.unsure |= not direct
        return direct

    def _is_in_own_mode(self, spot: Spot) -> bool:
        """Below a context manager of the program that enters torch.no_grad(); one that is not followed may."""
        around = [
            item for item in own_nodes(spot.scope) if isinstance(item, ast.With) and spans_body(item.body, spot.line)
        ]
        for call in [part.context_expr for item in around for part in item.items]:
            if not isinstance(call, ast.Call) or ast.unparse(call.func).startswith(_LIBRARIES):
                continue
            found = self._at.slice.defined(call.func, spot)
            if found is not None and sets_no_graph(found[0]):
                return True
            self.unsure |= found is None and called_name(call) not in _MODES
        return False

    def _is_in_variable(self, name: str, spot: Spot, paths: Sequence[str], hops: int) -> bool:
        key = (id(spot.scope), name, spot.line)
        if key in self._known:
            return self._known[key]
        self._known[key] = False
        cuts = [line for line in _lines_that_detach(spot.scope, name) if line < spot.line]
        for line, value in given(spot.scope, name, spot.line):
            if any(line < cut for cut in cuts):
                self.unsure = True
            elif self.goes_through(value, structs.replace(spot, line=line), paths, hops):
                self._known[key] = True
                if not hops:
                    self.lines.add(line)
                    self.carried |= line >= spot.line
        return self._known[key]

    def _is_in_called(self, call: ast.Call, spot: Spot, paths: Sequence[str], hops: int) -> bool:
        """What a function of the program returns, of which its source shows it."""
        called = self._function(call, spot)
        if called is None:
            self.unsure |= calls_self(call) or _is_given_module(call, paths)
            return False
        function, around = called
        if hops >= _FUNCTIONS or any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(function)):
            self.unsure = True
            return False
        inside = _paths_in(function, call, paths)
        returned = [item for item in own_nodes(function) if isinstance(item, ast.Return) and item.value is not None]
        ways = [
            self.goes_through(item.value, Spot(around.file, around.tree, function, item.lineno), inside, hops + 1)
            for item in returned
            if item.value is not None
        ]
        return any(ways)

    def _function(self, call: ast.Call, spot: Spot) -> tuple[ast.FunctionDef, Spot] | None:
        """That is called; of `self(x)` the object's own forward()."""
        if not calls_self(call) or isinstance(call.func, ast.Attribute):
            return self._at.slice.function(call, spot)
        owner = class_around(spot.tree, spot.scope)
        method = method_of(owner, MADE_ON_CALL) if owner is not None else None
        return (method, spot) if method is not None else None


def _paths_in(function: ast.FunctionDef, call: ast.Call, paths: Sequence[str]) -> list[str]:
    """How a function that is called names the parameter: by its object, an argument, or the variable of the module."""
    names, found = parameters(function), []
    held = {name: value for name in names if (value := argument_of(call, function, name)) is not None}
    if names[:1] == ["self"]:
        named = isinstance(call.func, ast.Attribute) and call.func.attr == function.name
        held.setdefault("self", call.func.value if named and isinstance(call.func, ast.Attribute) else call.func)
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
    return isinstance(node, (ast.Name, ast.Attribute)) and _path(node) in paths


def calls_module(node: ast.AST, paths: Sequence[str]) -> bool:
    """Of the parameter, or one around that: `self.judge(x)` of `self.judge.2.weight`; not the object itself."""
    return isinstance(node, ast.Call) and not calls_self(node) and _is_module(node.func, paths)


def calls_self(node: ast.AST) -> bool:
    """`self(x)`, `self.forward(x)`, `super().forward(x)`: which modules that calls its forward() shows."""
    func = node.func if isinstance(node, ast.Call) else None
    return func is not None and ast.unparse(func) in _OWN_FORWARDS


def _is_given_module(call: ast.Call, paths: Sequence[str]) -> bool:
    """`run(self.judge, x)`, `self.judge.encode(x)`."""
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return any(variable(item) != "self" and _is_module(item, paths) for item in (*owner, *passed_values(call)))


def _lines_that_detach(scope: Scope, name: str) -> list[int]:
    """`x.detach_()`."""
    return [
        item.lineno
        for item in nodes_of(scope)
        if isinstance(item, ast.Call)
        and isinstance(item.func, ast.Attribute)
        and item.func.attr == "detach_"
        and variable(item.func.value) == name
    ]


def _is_module(node: ast.AST, paths: Sequence[str]) -> bool:
    name = _path(node).removesuffix(".forward")
    return any(path.startswith(f"{name}.") for path in paths)


def _path(node: ast.AST) -> str:
    """`self.critic.2`, of `self.critic[2]`."""
    return _INDEX.sub(r".\1", ast.unparse(node))


def given(scope: Scope, name: str, line: int) -> list[tuple[int, ast.AST]]:
    """The lines that can have given a variable the value that it has there, or added to it, each with what it gave."""
    ways = reaching(scope, name, line, None)
    found: list[tuple[int, ast.AST]] = [
        (at, value)
        for at, value, part in bindings_of(scope, name)
        if value is not None and not is_of_indices(value, part)
    ]
    fills = set(lines_that_fill(scope, name))
    for item in own_nodes(scope):
        if isinstance(item, (ast.For, ast.AsyncFor)) and holds(item.target, name):
            found.append((item.lineno, item.iter))
        elif (isinstance(item, ast.AugAssign) and variable(item.target) == name) or (
            isinstance(item, ast.Expr) and item.lineno in fills and item.lineno < line
        ):
            found.append((item.lineno, item.value))
    return [item for item in found if item[0] in fills or (item[0] < line if ways is None else item[0] in ways)]
