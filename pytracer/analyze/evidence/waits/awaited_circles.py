"""Two coroutines of one event loop, each of which waits for what the other does only behind its own wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.coroutines import Coroutine, is_limited, made_by
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.naming import line_in

_ENDS = {"wait": ("Event", ("set",)), "get": ("Queue", ("put", "put_nowait"))}
_LONGEST = 50


class _Wait(msgspec.Struct, frozen=True):
    """`await thing.wait()` or `.get()` at a line of a coroutine; `method`: which of them."""

    part: Coroutine
    line: int
    thing: ast.expr
    method: str

    @property
    def text(self) -> str:
        """`self.updated.wait()`."""
        return f"{shortened(ast.unparse(self.thing), _LONGEST)}.{self.method}()"


def circle(files: Mapping[str, ast.Module], run: Sequence[Coroutine], here: str) -> ThreadReason | None:
    """None where anything else ends one of the two waits, or a pass of a loop before may have."""
    waits = [item for part in run for item in _waits(files, part)]
    for first, second in permutations(waits, 2):
        if first.part.node is second.part.node or first.line > second.line:
            continue
        by, own = _only_end(files, first), _only_end(files, second)
        if by is None or own is None or not (_is_behind(by, second) and _is_behind(own, first)):
            continue
        one, two = (_words(item, here) for item in (first, second))
        by_two = line_in(second.part.file, by.lineno, here)
        by_one = line_in(first.part.file, own.lineno, here)
        return ThreadReason(
            f"{one}, which only {by_two} in {second.part.name} ends, and {two} before that, which only {by_one} in "
            f"{first.part.name} ends: each waits for the other",
            f"Let one of the two begin: leave out its first wait (`{first.text}` or `{second.text}`), or do before the "
            f"loop what {by_two} or {by_one} does.",
            ((first.part.file, first.line), (second.part.file, second.line)),
        )
    return None


def _words(wait: _Wait, here: str) -> str:
    return f"{wait.part.name} awaits `{wait.text}` ({line_in(wait.part.file, wait.line, here)})"


def _waits(files: Mapping[str, ast.Module], part: Coroutine) -> Iterator[_Wait]:
    """Those at the beginning of a coroutine, or of each of its passes: with no other wait of it before."""
    found: list[_Wait] = []
    for item in own_nodes(part.node):
        call = item.value if isinstance(item, ast.Await) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _ENDS:
            continue
        kind, _ = _ENDS[call.func.attr]
        limited = is_limited(own_nodes(part.node), call.lineno)
        if not limited and made_by(files, call.func.value, (kind,)) is not None:
            found.append(_Wait(part, call.lineno, call.func.value, call.func.attr))
    yield from sorted(found, key=lambda item: item.line)[:1]


def _only_end(files: Mapping[str, ast.Module], wait: _Wait) -> ast.Call | None:
    """The only call of the program that ends such a wait, by the last name of the object."""
    _, methods = _ENDS[wait.method]
    name = last_name(wait.thing)
    found = [
        item
        for tree in files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in methods
        if last_name(item.func.value) == name
    ]
    return found[0] if len(found) == 1 else None


def _is_behind(end: ast.Call, wait: _Wait) -> bool:
    """Whether a call stands in the coroutine of a wait, below it and in the same loop."""
    if end not in own_nodes(wait.part.node) or end.lineno <= wait.line:
        return False
    return loops_around(wait.part.tree, end.lineno) == loops_around(wait.part.tree, wait.line)
