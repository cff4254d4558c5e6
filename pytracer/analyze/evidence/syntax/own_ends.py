"""Whether a loop comes to its end by what it changes itself, and not by what others do: `while at < n`, `at += 1`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from pytracer.analyze.evidence.syntax.bindings import each_set, set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, LOOPS, Loop, breaks_of
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import clauses_of, nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans
from pytracer.analyze.evidence.syntax.tries import hushes
from pytracer.analyze.evidence.syntax.unbounded import body_of, is_unbounded

_PURE = frozenset({"len", "min", "max", "abs", "int"})
_OF_NUMBERS = {"min": 2, "max": 2, "abs": 1, "int": 1}  # the least number of arguments, else it is of a container
_TAKES = frozenset({"pop", "popleft", "popitem", "heappop"})
_PUTS = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "put", "heappush", "setdefault"})
_MAYBE = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)


def ends_alone(tree: ast.Module, line: int) -> bool:
    """Whether that is so of each loop around a line, also of those with the line in their head."""
    scope = scope_of(tree, line)
    loops = (item for item in own_nodes(scope) if isinstance(item, LOOPS) and spans(item, line))
    rounds = (item for item in nodes_of(tree) if isinstance(item, COMPREHENSIONS) and spans(item, line))
    asked = (part.iter for item in rounds for part in item.generators)
    return all(_Ends(scope, item).alone for item in loops) and not any(_is_endless(item) for item in asked)


def _is_endless(iterated: ast.expr) -> bool:
    """`itertools.count()`, `iter(ask, None)`."""
    loop = ast.For(target=ast.Name("_", ast.Store()), iter=iterated, body=[], orelse=[])
    return _asks_for_items(iterated) or is_unbounded(loop)


class _Ends:
    """Of one loop of a function."""

    def __init__(self, scope: Scope, loop: Loop) -> None:
        self._scope = scope
        self._loop = loop

    @property
    def alone(self) -> bool:
        """Whether each pass changes what every condition reads on which the loop goes on or is left."""
        loop = self._loop
        if isinstance(loop, ast.AsyncFor):
            return False
        guards = self._guards()
        if guards is None or (isinstance(loop, ast.For) and _asks_for_items(loop.iter)):
            return False
        if not guards and is_unbounded(loop):
            return False
        heads = [loop.test] if isinstance(loop, ast.While) and not is_unbounded(loop) else []
        return all(self._is_changed(item) for test in [*heads, *guards] for item in clauses_of(test))

    def _guards(self) -> list[ast.expr] | None:
        """The conditions below which it is left; None where there is none, or an exception or pattern decides, too."""
        found: list[ast.expr] = []
        returns = (item for item in body_of(self._loop) if isinstance(item, ast.Return))
        for end in (*breaks_of(self._loop), *returns):
            around = [item for item in body_of(self._loop) if end in own_nodes(item)]
            tests = [item.test for item in around if isinstance(item, (ast.If, ast.While))]
            if not tests or any(_may_fail(item) for item in around):
                return None
            found += tests
        return found

    def _is_changed(self, test: ast.expr) -> bool:
        calls = [item for item in nodes_of(test) if isinstance(item, ast.Call)]
        if any(called_name(item) not in _PURE for item in calls):
            return False
        names = {name for name in _read(test) if self._is_steady(name)}
        loop = self._loop
        if isinstance(loop, ast.For) and variable(loop.target) in names:
            return isinstance(loop.iter, ast.Call) and called_name(loop.iter) in ("range", "count")
        return _kept(loop.body, lambda part: any(self._changes(part, name) for name in names)) == (False, False)

    def _is_steady(self, name: str) -> bool:
        """Whether nothing in the loop gives a variable another kind of value: `done = True` and `done = False`."""
        body = body_of(self._loop)
        added = {type(item.op) for item in body if isinstance(item, ast.AugAssign) and holds(item.target, name)}
        bound = [value for item in body for to, value in set_by(item) if holds(to, name)]
        plain = any(value is None or not self._moves(value, name) for value in bound)
        return len(added) + bool(bound) <= 1 and not plain

    def _moves(self, value: ast.expr, name: str) -> bool:
        """Whether it is computed, and of another number."""
        return self._is_computed(value, {name}) and any(isinstance(item, ast.Name) for item in nodes_of(value))

    def _changes(self, node: ast.AST, name: str) -> bool:
        if isinstance(node, ast.AugAssign):
            return variable(node.target) == name and self._is_computed(node.value, {name})
        if isinstance(node, ast.Assign):
            given = [value for to, value in each_set(node.targets, node.value) if holds(to, name)]
            return bool(given) and all(self._moves(value, name) for value in given)
        if isinstance(node, ast.Call) and called_name(node) in _TAKES:
            return name in _owners(node) and not self._fills(name)
        return False

    def _fills(self, name: str) -> bool:
        """Whether it puts back what it takes out, as far as it knows: `left.append(rank)`."""
        calls = (item for item in body_of(self._loop) if isinstance(item, ast.Call))
        return any(called_name(item) in _PUTS and name in _owners(item) for item in calls)

    def _is_computed(self, value: ast.expr, own: set[str]) -> bool:
        """Whether it is made of numbers of this function alone."""
        if isinstance(value, ast.Constant):
            return True
        if isinstance(value, ast.Name):
            return value.id in own or self._is_number(value.id, own)
        if isinstance(value, ast.Call):
            least = _OF_NUMBERS.get(called_name(value) or "")
            plain = isinstance(value.func, ast.Name) and not value.keywords
            return (
                least is not None
                and plain
                and len(value.args) >= least
                and all(self._is_computed(item, own) for item in value.args)
            )
        if variable(value) in own:
            return True
        parts = [item for item in ast.iter_child_nodes(value) if isinstance(item, ast.expr)]
        return isinstance(value, _ARITHMETIC) and all(self._is_computed(item, own) for item in parts)

    def _is_number(self, name: str, own: set[str]) -> bool:
        """Whether all that bind a name of the function give it a number that it computes, or counts."""
        scope = self._scope
        if isinstance(scope, ast.Module) or any(
            isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names for item in own_nodes(scope)
        ):
            return False
        given = scope.args
        passed = [item for item in (*given.posonlyargs, *given.args, *given.kwonlyargs) if item.arg == name]
        if any(not isinstance(item.annotation, ast.Name) or item.annotation.id != "int" for item in passed):
            return False
        bound = [(item, value) for item in own_nodes(scope) for to, value in set_by(item) if holds(to, name)]
        added = [item for item in own_nodes(scope) if isinstance(item, ast.AugAssign) and variable(item.target) == name]
        inside = {*body_of(self._loop)} - {*self._loop.body}
        if any(item in inside for item in [*added, *(item for item, _ in bound)]):
            return False  # perhaps counted where another one is ready
        return (
            bool(passed or bound)
            and all(self._is_given_number(item, value, name, own) for item, value in bound)
            and all(self._is_computed(item.value, own | {name}) for item in added)
        )

    def _is_given_number(self, item: ast.AST, value: ast.expr | None, name: str, own: set[str]) -> bool:
        if isinstance(item, ast.For):
            ranged = isinstance(item.iter, ast.Call) and called_name(item.iter) == "range"
            return ranged and variable(item.target) == name
        return value is not None and self._is_computed(value, own | {name})


def _asks_for_items(iterated: ast.expr) -> bool:
    return isinstance(iterated, ast.Call) and called_name(iterated) == "iter" and len(iterated.args) > 1


def _may_fail(node: ast.AST) -> bool:
    """Whether what is below it may be left by an exception, or by a pattern that does not fit."""
    return hushes(node) or isinstance(node, ast.Match) or bool(getattr(node, "handlers", ()))


def _read(node: ast.AST) -> Iterator[str]:
    """Its variables, without what is only looked up in: `flags[at]`, `counter.value`."""
    name = variable(node)
    if name is not None:
        yield name
    elif not isinstance(node, (ast.Subscript, ast.Attribute, *_MAYBE)):
        for item in ast.iter_child_nodes(node):
            yield from _read(item)


def _owners(call: ast.Call) -> list[str]:
    """`stack` of `stack.pop()`, `heap` of `heappop(heap)`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    given: Sequence[ast.AST] = [*([owner] if owner is not None else []), *call.args[:1]]
    return [name for item in given if (name := variable(item)) is not None]


def _kept(body: Sequence[ast.stmt], changes: Callable[[ast.AST], bool]) -> tuple[bool, bool]:
    """Whether a way without a change leads through a block, and whether one leads to the next pass from inside it."""
    again = False
    for item in body:
        if not isinstance(item, ast.If):
            inner = item.orelse if isinstance(item, LOOPS) else [item]
            again = again or any(isinstance(part, ast.Continue) for one in inner for part in nodes_of(one))
        if isinstance(item, (ast.Continue, ast.Break, ast.Return, ast.Raise)):
            return False, again
        if isinstance(item, ast.If):
            ways = [_kept(item.body, changes), _kept(item.orelse, changes)]
            through, again = any(way[0] for way in ways), again or any(way[1] for way in ways)
        else:
            through = not any(changes(part) for part in _surely(item))  # what stands in a block may be left out
        if not through:
            return False, again
    return True, again


def _surely(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that run whenever it does."""
    yield node
    for item in ast.iter_child_nodes(node):
        if not isinstance(item, (*_MAYBE, ast.stmt)):
            yield from _surely(item)
