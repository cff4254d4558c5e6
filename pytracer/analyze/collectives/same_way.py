"""Ranks that wait for each other in messages of one way: all of them send, or all receive, so that none answers.

That none has called the other half of such a message is recorded. The source may show its line: the call behind this
one in the same function, with the same peer where there are several, or in a function that is called behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import capital, span_words
from pytracer.analyze.behind import Place, places_in
from pytracer.analyze.collectives.description import at_place, place_of
from pytracer.analyze.collectives.own_lines import only_call
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import LEAVES
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_ANSWERS = {"send": ("recv", "irecv"), "recv": ("send", "isend")}
_PAIR, _LISTED, _HOPS = 2, 3, 4
_PEERS = {"send": ("dst", "group_dst"), "recv": ("src", "group_src")}
_BLOCKS = ("body", "orelse", "finalbody")


class SameWay(msgspec.Struct, frozen=True):
    """`cycle`: the ranks, each with its wait. `answers`: the line of each rank's other half, where it is known."""

    cycle: tuple[int, ...]
    waits: tuple[Wait, ...]
    answers: tuple[LineWords | None, ...]

    @property
    def subject(self) -> str:
        """`Ranks 0 and 1 wait for each other, each in send() to the other, and neither has reached its recv(): ...`."""
        op = self.waits[0].call.op
        pair = len(self.cycle) == _PAIR
        shown = (*self.cycle[:8], *(("...",) if len(self.cycle) > 8 else ()), self.cycle[0])
        way = "" if pair else f" in a cycle ({' -> '.join(str(rank) for rank in shown)})"
        each = f"each in {op}() {'to' if op == 'send' else 'from'} the {'other' if pair else 'next'}"
        none, answer = "neither" if pair else "none", f"{_ANSWERS[op][0]}()"
        reached = f"{none} has reached its {answer}"
        if any(line is None for line in self.answers):
            reached = f"{none} has called {answer} for that"
        head = f"{capital(span_words(self.cycle))} wait for each other{way}, {each}"
        if len({self._at(wait) for wait in self.waits}) == len(set(self.answers)) == 1:
            line = self.answers[0]
            return f"{head}{self._at(self.waits[0])}, and {reached}{f' of {line}' if line is not None else ''}"
        return f"{head}, and {reached}: {'; '.join(self._sides())}"

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines of the other halves."""
        return places_in(self.answers)

    def _sides(self) -> Iterator[str]:
        """`rank 0 at stages.py:31 in exchange, before the recv() of line 40`: of each line once."""
        answer = _ANSWERS[self.waits[0].call.op][0]
        said: dict[str, list[int]] = {}
        for rank, wait, line in zip(self.cycle, self.waits, self.answers, strict=True):
            before = f", before the {answer}() of {line}" if line is not None else ""
            said.setdefault(f"{self._at(wait)}{before}", []).append(rank)
        for words, ranks in [*said.items()][:_LISTED]:
            yield f"{span_words(ranks)}{words or ' at a line that is not recorded'}"
        if len(said) > _LISTED:
            yield f"{len(said) - _LISTED} more lines"

    def _at(self, wait: Wait) -> str:
        nth = wait.counts[0] if wait.counts is not None else 1
        return f"{at_place(wait.call)} (message {nth})" if nth > 1 else at_place(wait.call)


def same_way(job: JobView, cycle: Sequence[int], waits: Sequence[Wait]) -> SameWay | None:
    """None where a rank does something else; or receives another number of its messages: one may have left one out."""
    ops = {wait.call.op for wait in waits}
    views = [next(iter(views_of(job, wait.waiters[:1])), None) for wait in waits]
    found = [view for view in views if view is not None]
    if len(ops) != 1 or not ops <= {*_ANSWERS} or len(found) != len(cycle) or len(cycle) < _PAIR:
        return None
    if ops == {"recv"} and len({wait.counts for wait in waits}) != 1:
        return None
    if not all(_is_blocking(view, wait.call) for view, wait in zip(found, waits, strict=True)):
        return None
    answers = tuple(_answer(view, wait.call) for view, wait in zip(found, waits, strict=True))
    return SameWay(tuple(cycle), tuple(waits), answers)


def _is_blocking(view: ProcessView, call: Collective) -> bool:
    """Whether the line calls it itself: isend() and batch_isend_irecv() wait later, or in a library."""
    frame, snapshot = place_of(call), view.process.snapshot
    return syntax_tree(snapshot, frame) is None or only_call(snapshot, call) is not None


def _answer(view: ProcessView, call: Collective) -> LineWords | None:
    """The line of the other half behind a call, from its own function outwards; None where several may be it."""
    snapshot, way, sent = view.process.snapshot, way_to(view, call), only_call(view.process.snapshot, call)
    if not way or sent is None:
        return None
    if _came_before(syntax_tree(snapshot, way[-1]), call.op, sent):
        return None  # what comes later is another message's
    files = program_files(snapshot, way[::-1])
    peer = _peer(sent, call.op)
    for frame in reversed(way[-_HOPS:]):
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            return None
        calls = _calls_behind(tree, frame.line)
        found = [part for item in calls for part in _answers(item, call.op, {frame.file or "": tree, **files}, frame)]
        if frame is way[-1] and len(found) > 1 and peer is not None:
            found = [part for part in found if _is_same(_peer(part[1], _ANSWERS[call.op][0]), peer)]
        if found:
            return line_in(found[0][0], found[0][1].lineno, way[-1].file) if len(found) == 1 else None
    return None


def _came_before(tree: ast.Module | None, op: str, sent: ast.Call) -> bool:
    """Whether the function of a call has an other half above it."""
    nodes = own_nodes(scope_of(tree, sent.lineno)) if tree is not None else ()
    return any(
        isinstance(item, ast.Call) and called_name(item) in _ANSWERS[op] and item.lineno < sent.lineno for item in nodes
    )


def _answers(
    item: ast.Call, op: str, files: Mapping[str, ast.Module], frame: PythonFrame
) -> list[tuple[str | None, ast.Call]]:
    """A call that is the other half of one, or those of the program's function that it calls; with the file."""
    if called_name(item) in _ANSWERS[op]:
        return [(frame.file, item)]
    called = called_function(files, files[frame.file or ""], item)
    inside = [part for part in own_nodes(called[1]) if isinstance(part, ast.Call)] if called is not None else []
    return [(called[0], part) for part in inside if called is not None and called_name(part) in _ANSWERS[op]]


def _calls_behind(tree: ast.Module, line: int) -> list[ast.Call]:
    """Those of its function that may run after a line without another round of a loop, in order."""
    found: list[ast.Call] = []
    scope = scope_of(tree, line)
    body: Sequence[ast.stmt] = () if isinstance(scope, ast.Lambda) else scope.body
    while (here := next((n for n, item in enumerate(body) if spans(item, line)), None)) is not None:
        rest = body[here + 1 :]
        leaves = next((n for n, item in enumerate(rest) if isinstance(item, LEAVES)), None)
        behind = rest if leaves is None else rest[: leaves + 1]
        calls = [part for item in behind for part in own_nodes(item) if isinstance(part, ast.Call)]
        found = [*calls, *(found if leaves is None else [])]
        blocks = [block for name in _BLOCKS if isinstance(block := getattr(body[here], name, None), list)]
        body = next((block for block in blocks if any(spans(item, line) for item in block)), ())
    return found


def _peer(call: ast.Call, op: str) -> ast.expr | None:
    """What `send(x, dst)`, `recv(x, src=peer)` name."""
    given = keyword_value(call, *_PEERS[op])
    return given if given is not None else call.args[1] if len(call.args) > 1 else None


def _is_same(one: ast.expr | None, other: ast.expr) -> bool:
    return one is not None and ast.dump(one) == ast.dump(other)
