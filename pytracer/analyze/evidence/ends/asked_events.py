"""The Event that a thread's own loop asks already: who sets it, who clears it again, and who waits for the thread."""

from __future__ import annotations

import ast
from itertools import pairwise

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_LONGEST = 50
_ASKS = ("is_set", "wait")


class AskedEvent(msgspec.Struct, frozen=True):
    """`event`, which a loop asks at `line`. The others are lines with their texts."""

    event: str
    line: int
    sets: tuple[int, str] | None
    clears: tuple[int, str] | None
    waits: tuple[int, str] | None

    def advice(self, runs: str, where: str) -> str:
        """What is missing: set(), or a join() behind it. `where`: when that is to be done."""
        asks = f"the loop of {runs}() asks `{self.event}` (line {self.line})"
        if self.sets is None:
            return f"{asks}, and no call of its set() was found: call it and then `join()` of the thread {where}."
        line, text = self.sets
        if self.clears is not None:
            taken = f"line {self.clears[0]} (`{self.clears[1]}`) takes that back before the thread need have seen it"
            return f"{asks}, line {line} sets it (`{text}`), and {taken}: `join()` the thread between the two."
        if self.waits is None:
            sets = f"line {line} sets it (`{text}`)"
            return f"{asks}, and {sets}, but no join() of it was found: call that behind line {line}."
        waited, join = self.waits
        return (
            f"{asks}, line {line} sets it (`{text}`) and line {waited} waits for the thread (`{join}`): see that both "
            f"run before the program ends, also behind an exception, and without a timeout that is too short."
        )


def asked_event(tree: ast.Module, run: ast.FunctionDef, thread: str | None) -> AskedEvent | None:
    """None where no `while` of the function asks one. `thread`: the variable that has the thread."""
    for loop in own_nodes(run):
        asked = (
            [item for item in nodes_of(loop.test) if isinstance(item, ast.Call)] if isinstance(loop, ast.While) else []
        )
        asks = [item for item in asked if called_name(item) in _ASKS and _owner(item) is not None]
        event = _owner(asks[0]) if asks else None
        if event is None:
            continue
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and item not in asks]
        same = [item for item in calls if _last(_owner(item) or "") == _last(event)]
        sets = next((item for item in same if called_name(item) == "set"), None)
        clears = (item for item in same if called_name(item) == "clear" and sets is not None)
        cleared = next((item for item in clears if _is_next(tree, sets, item)), None)
        joins = (item for item in calls if called_name(item) == "join" and thread is not None)
        waits = next((item for item in joins if _last(_owner(item) or "") == _last(thread or "")), None)
        return AskedEvent(event, asks[0].lineno, _told(sets), _told(cleared), _told(waits))
    return None


def _told(call: ast.Call | None) -> tuple[int, str] | None:
    return (call.lineno, shortened(ast.unparse(call), _LONGEST)) if call is not None else None


def _owner(node: ast.AST) -> str | None:
    """`self.stop` of `self.stop.is_set()`."""
    return variable(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


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
