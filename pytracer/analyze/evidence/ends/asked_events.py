"""The Event that a thread's own loop asks already: who sets it, who clears it again, and who waits for the thread."""

from __future__ import annotations

import ast
from itertools import pairwise

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import indexed, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters, scope_of

_LONGEST = 50
_ASKS = ("is_set", "wait")


class AskedEvent(msgspec.Struct, frozen=True):
    """`event`, which a loop asks at `line`. The others are lines with their texts."""

    event: str
    line: int
    sets: tuple[int, str] | None
    clears: tuple[int, str] | None
    waits: tuple[int, str] | None
    known: bool = True
    """Whether the lines that set it can be told from those of another Event."""
    joins_others: bool = False
    """Whether the file has a join() of a thread that may be this one."""

    def advice(self, runs: str, where: str) -> str:
        """What is missing: set(), or a join() behind it. `where`: when that is to be done."""
        asks = f"the loop of {runs}() asks `{self.event}` (line {self.line})"
        if not self.known:
            return f"{asks}: see that it is set, and then call `join()` of the thread, {where}."
        if self.sets is None:
            return f"{asks}, and no call of its set() was found: call it and then `join()` of the thread {where}."
        line, text = self.sets
        if self.clears is not None:
            taken = f"line {self.clears[0]} (`{self.clears[1]}`) takes that back before the thread need have seen it"
            return f"{asks}, line {line} sets it (`{text}`), and {taken}: `join()` the thread between the two."
        if self.waits is None:
            sets = f"line {line} sets it (`{text}`)"
            if self.joins_others:
                return f"{asks}, and {sets}: see that `join()` of the thread comes behind line {line}, {where}."
            return f"{asks}, and {sets}, but no join() of it was found: call that behind line {line}."
        waited, join = self.waits
        return (
            f"{asks}, line {line} sets it (`{text}`) and line {waited} waits for the thread (`{join}`): see that both "
            f"run before the program ends, also behind an exception, and without a timeout that is too short."
        )


def asked_event(tree: ast.Module, run: ast.FunctionDef, thread: str | None, made: ast.Call) -> AskedEvent | None:
    """None where no `while` of the function asks one. `thread`: the variable that has the thread that `made` makes."""
    for loop in (item for item in own_nodes(run) if isinstance(item, ast.While)):
        asked = [item for item in nodes_of(loop.test) if isinstance(item, ast.Call)]
        asks = [item for item in asked if called_name(item) in _ASKS and _owner(item) is not None]
        event = _owner(asks[0]) if asks else None
        if event is None:
            continue
        unknown = AskedEvent(event, asks[0].lineno, None, None, None, known=False)
        named = _outside(event, run, made)
        if named is None:
            return unknown
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and item not in asks]
        near = made.lineno if event in parameters(run) else run.lineno
        same = [item for item in calls if _is_of(tree, item, named, near)]
        sets = next((item for item in same if called_name(item) == "set"), None)
        if sets is None and any(called_name(item) == "set" and _owner(item) and not item.args for item in calls):
            return unknown
        clears = (item for item in same if called_name(item) == "clear" and sets is not None)
        cleared = next((item for item in clears if _is_next(tree, sets, item)), None)
        joins = [item for item in calls if called_name(item) == "join" and _last(_owner(item) or "path") != "path"]
        own = (item for item in joins if thread is not None and _is_of(tree, item, thread, made.lineno))
        waits = next(own, None)
        others = any(item is not waits for item in joins)
        return AskedEvent(
            event, asks[0].lineno, _told(sets), _told(cleared), _told(waits), joins_others=waits is None and others
        )
    return None


def _outside(event: str, run: ast.FunctionDef, made: ast.Call) -> str | None:
    """The name outside of the function: of a parameter, what `Thread(args=...)` passes for it."""
    names = parameters(run)
    if event not in names:
        return event
    given, words = keyword_value(made, "args"), keyword_value(made, "kwargs")
    place = names.index(event) - (names[0] == "self")
    if words is not None or not isinstance(given, (ast.Tuple, ast.List)) or not 0 <= place < len(given.elts):
        return None
    return variable(given.elts[place])


def _is_of(tree: ast.Module, call: ast.Call, name: str, near: int) -> bool:
    """Whether a method of that object is called, as far as names tell: not where another class has such a one."""
    owner = _owner(call) or ""
    if _last(owner) != _last(name):
        return False
    if "." not in name:
        return owner == name
    makers = [item for item in nodes_of(tree) if isinstance(item, ast.ClassDef) and _sets(item, _last(name))]
    ours, theirs = (class_around(tree, scope_of(tree, line)) for line in (near, call.lineno))
    if owner.startswith("self."):
        return theirs is None or theirs is ours or theirs not in makers
    return len(makers) <= 1


def _sets(owner: ast.ClassDef, attribute: str) -> bool:
    """Whether a method sets `self.stop`."""
    pairs = (pair for item in nodes_of(owner) for pair in set_by(item))
    return any(variable(target) == f"self.{attribute}" for target, _ in pairs)


def _told(call: ast.Call | None) -> tuple[int, str] | None:
    return (call.lineno, shortened(ast.unparse(call), _LONGEST)) if call is not None else None


def _owner(node: ast.AST) -> str | None:
    """`self.stop` of `self.stop.is_set()`, `monitor.stop` of `monitor.stop.set()`, `workers` of `workers[0].join()`."""
    owner = indexed(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    first = owner
    while isinstance(first, ast.Attribute):
        first = first.value
    return ast.unparse(owner) if owner is not None and isinstance(first, ast.Name) else None


def _is_next(tree: ast.Module, first: ast.Call | None, second: ast.Call) -> bool:
    """Whether a statement that is this call follows that of the other one at once."""
    for node in nodes_of(tree):
        body = getattr(node, "body", None)
        for before, after in pairwise(body) if isinstance(body, list) else ():
            values = [item.value if isinstance(item, ast.Expr) else None for item in (before, after)]
            if values == [first, second]:
                return True
    return False


def _last(name: str) -> str:
    """`stop` of `self.stop`, and of `monitor.stop`."""
    return name.rpartition(".")[2]
