"""Containers that have a bound: by who takes out of them, by a length that is asked for, a key that goes around."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer.analyze.evidence.ends.growing_containers import EMPTIES
from pytracer.analyze.evidence.ends.kept_parts import targets_of
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_WAITS = frozenset({"qsize", "full", "join"})
_QUEUES = frozenset({"Queue", "LifoQueue", "PriorityQueue", "SimpleQueue", "JoinableQueue"})


class Bounds:
    """Of the containers of a program, which are met by their last name: `trainer.logs` is `self.logs`."""

    def __init__(self, files: Mapping[str, ast.Module]) -> None:
        self._nodes = [item for tree in files.values() for item in nodes_of(tree)]

    def has_no_limit(self, queue: ast.expr) -> bool:
        """Whether each line that makes a queue makes it without `maxsize`."""
        waits = (item.func for item in self._nodes if isinstance(item, ast.Call) and called_name(item) in _WAITS)
        if any(isinstance(item, ast.Attribute) and last_name(item.value) == last_name(queue) for item in waits):
            return False
        made = [item.value for item in self._bindings(queue)]
        return bool(made) and all(
            isinstance(value, ast.Call)
            and called_name(value) in _QUEUES
            and all(isinstance(item, ast.Constant) and not item.value for item in passed_values(value))
            for value in made
        )

    def is_bounded(self, tree: ast.Module, container: ast.expr, node: ast.stmt) -> bool:
        """Whether any object empties it, its length decides about the statement, or its key goes around."""
        name = last_name(container)
        for item in self._nodes:
            taken = item.func if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) else None
            if taken is not None and taken.attr in EMPTIES and last_name(taken.value) == name:
                return True
            if isinstance(item, ast.Delete) and any(last_name(part) == name for part in item.targets):
                return True
            if isinstance(item, ast.Assign) and any(_begins(part, name) for part in item.targets):
                return True
        if any(_asks_length(item.test, name) for item, _ in deciding_ifs(tree, node.lineno)):
            return True
        key = node.targets[0] if isinstance(node, ast.Assign) else None
        return isinstance(key, ast.Subscript) and self._goes_around(key.slice)

    def most(self, tree: ast.Module, container: ast.expr, node: ast.stmt) -> ast.expr | None:
        """How many it may have: `maxlen` of a deque, or what its length is compared with around the statement.

        Also where that decides that one is taken out: `if len(rows) > size: rows.pop(0)`.
        """
        name = last_name(container)
        for made in self._bindings(container):
            if isinstance(made.value, ast.Call) and called_name(made.value) == "deque":
                return keyword_value(made.value, "maxlen") or next(iter(made.value.args[1:]), None)
        asked = [item.test for item, _ in deciding_ifs(tree, node.lineno)]
        asked += [item.test for item in self._nodes if isinstance(item, ast.If) and _takes_out(item, name)]
        found = {ast.unparse(most): most for test in asked if (most := _compared(test, name)) is not None}
        return next(iter(found.values())) if len(found) == 1 else None

    def _goes_around(self, key: ast.expr) -> bool:
        """`buffer[step % size]`; `buffer[self.position]` of what a line sets by `%`, or to 0 under a condition."""
        if any(isinstance(item, ast.Mod) for item in nodes_of(key)):
            return True
        sets = [*self._bindings(key)] if last_name(key) is not None else []
        begins = [item for item in self._nodes if isinstance(item, ast.If) for item in item.body]
        return any(
            any(isinstance(part, ast.Mod) for part in nodes_of(item))
            or (isinstance(item.value, ast.Constant) and any(item is one for one in begins))
            for item in sets
        )

    def _bindings(self, container: ast.expr) -> Iterator[ast.Assign | ast.AnnAssign]:
        name = last_name(container)
        for item in self._nodes:
            if isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None:
                bound = [part for part in targets_of(item) if not isinstance(part, ast.Subscript)]
                if any(last_name(part) == name for part in bound):
                    yield item


def _asks_length(test: ast.expr, name: str | None) -> bool:
    return any(
        isinstance(item, ast.Call) and called_name(item) == "len" and any(last_name(part) == name for part in item.args)
        for item in nodes_of(test)
    )


def _begins(target: ast.expr, name: str | None) -> bool:
    """`logger.rows = []` of another object's list, `rows[:] = []`, `rows[:-9] = []`."""
    if isinstance(target, ast.Subscript):
        return isinstance(target.slice, ast.Slice) and last_name(target) == name
    return isinstance(target, ast.Attribute) and target.attr == name and variable(target) is None


def _takes_out(item: ast.If, name: str | None) -> bool:
    calls = (part.func for part in nodes_of(item) if isinstance(part, ast.Call))
    return any(
        isinstance(part, ast.Attribute) and part.attr in EMPTIES and last_name(part.value) == name for part in calls
    )


def _compared(test: ast.expr, name: str | None) -> ast.expr | None:
    """`size` of `len(rows) < size`."""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return None
    sides = (test.left, test.comparators[0])
    return next((other for one, other in (sides, sides[::-1]) if _asks_length(one, name)), None)
