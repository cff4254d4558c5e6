"""A loop that reads from a pipe, a socket or a file until enough is there: at its end a read gives nothing.

`recv()` of a closed connection, and `readline()` or `read()` at the end, return an empty value at once, again and
again. A loop that does not ask for that goes round for ever.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import names_read
from pytracer.analyze.evidence.syntax.endless import only_exit
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, body_of, is_unbounded, leaves, short_text

_READS = frozenset({"recv", "read", "readline", "recv_into", "recvfrom", "read1"})
_ENDS = frozenset({"poll", "select"})


def ended_stream(loop: EndlessLoop) -> Reason | None:
    """None where something in the loop asks whether the read gave anything, or more than the read changes its test."""
    only = only_exit(loop)
    test = only.test if only is not None else None
    if only is None and isinstance(loop, ast.While) and not is_unbounded(loop) and not leaves(loop):
        test = loop.test
    if test is None:
        return None
    names = names_read(test)
    reads = list(_reads(loop))
    if len(reads) != 1 or any(isinstance(item, ast.Call) and called_name(item) in _ENDS for item in body_of(loop)):
        return None
    call, name = reads[0]
    changed = {ast.unparse(target) for item in body_of(loop) for target, _ in _set(item)} & {*names}
    if name not in names or changed - {name} or _asks(loop, test, name):
        return None
    method = called_name(call)
    closed = "its end is there" if method == "read" else "the other end has closed it"
    ends = f"`{short_text(test)}` {'is true' if only is not None else 'is false'}"
    return Reason(
        f"{method}() of line {call.lineno} (`{short_text(call)}`) returns an empty value at once when {closed}, and no "
        f"line of the loop asks for that: it goes on until {ends}, which then does not come",
        f"Leave the loop, or raise, where the read of line {call.lineno} gives nothing: `if not chunk: raise "
        "EOFError(...)`. Then see why the other end closed before: a process that has ended, its exit status and its "
        "last lines.",
        by_others=True,
    )


def _reads(loop: EndlessLoop) -> Iterator[tuple[ast.Call, str]]:
    """Each read whose value is kept, with the name that it changes."""
    for item in body_of(loop):
        for target, value in _set(item):
            calls = [part for part in nodes_of(value) if isinstance(part, ast.Call)] if value is not None else []
            found = [part for part in calls if called_name(part) in _READS and isinstance(part.func, ast.Attribute)]
            if len(found) == 1:
                yield found[0], ast.unparse(target)


def _set(item: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """With what `data += sock.recv(n)` changes."""
    yield from set_by(item)
    if isinstance(item, ast.AugAssign):
        yield item.target, item.value


def _asks(loop: EndlessLoop, test: ast.expr, name: str) -> bool:
    """Whether another condition reads what the read gave, or the test itself asks whether it is empty."""
    equal = [
        item
        for item in nodes_of(test)
        if isinstance(item, ast.Compare) and any(isinstance(op, (ast.Eq, ast.NotEq)) for op in item.ops)
    ]
    if ast.unparse(test) in (name, f"not {name}") or any(name in names_read(item) for item in equal):
        return True
    others = [item.test for item in body_of(loop) if isinstance(item, (ast.If, ast.While, ast.IfExp))]
    return any(item is not test and name in names_read(item) for item in others)
