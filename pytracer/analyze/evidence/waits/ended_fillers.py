"""The thread that fills the queue which its process waits for: it ended in order, and who takes was not told.

A mark (`None`) that is put only below a condition is never put where the source has fewer items than that expects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.leaving import Obstacle
from pytracer.analyze.evidence.syntax.loops import counting_loop, deciding_ifs
from pytracer.analyze.evidence.syntax.names import last_name, names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import class_around, qualified_name, scope_of, spans
from pytracer.analyze.evidence.waits.ended_threads import no_other_could
from pytracer.analyze.evidence.waits.kept_errors import KeptError, kept_error
from pytracer.analyze.evidence.waits.parent_threads import ThreadStart, thread_starts
from pytracer.analyze.evidence.waits.queue_marks import (
    PutMark,
    put_mark,
    puts_into,
    swallowed,
    taken_before,
    taking,
)
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 50
_MOST_LINES = 3


class Bound(msgspec.Struct, frozen=True):
    """A value of the condition, and the expression that made it: `self.max_len`, `len(self)` of line 103."""

    name: str
    text: str
    line: LineWords


class EndedFiller(msgspec.Struct, frozen=True):
    """`function` of a thread has all lines that fill the queue. `mark`: at which the taker stops, None: not known."""

    file: str
    function: str
    lines: tuple[int, ...]
    loop: int | None
    started: LineWords
    mark: str | None
    put: PutMark | None
    bounds: tuple[Bound, ...]
    names: tuple[str, ...]
    """Of the condition, as its line has them."""
    caught: Obstacle | None = None
    """An `except` that may have hidden an error of the thread."""
    kept: KeptError | None = None
    """Where that keeps it."""
    taken: int | None = None
    """The line that had put the mark, on every way: an earlier pass has taken it."""

    @property
    def words(self) -> str:
        """After the wait: who should have ended it."""
        if self.taken is not None:
            return (
                f"the only thread that fills it ({self.function}) had ended in order, and the mark `{self.mark}` that "
                f"it puts last (line {self.taken}) had been taken before: {self.started} starts it once, and this is "
                "another pass"
            )
        many = len(self.lines) > 1
        listed = list_words([str(item) for item in self.lines[:_MOST_LINES]])
        thread = f"the only thread that fills it ({self.function}, line{'s' * many} {listed}) had ended"
        thread += " in order" if self.caught is None else ""
        if self.put is None:
            unmarked = f", and no line puts the mark `{self.mark}` at which the taker stops"
            return f"{thread}{unmarked if self.mark is not None else ''}"
        return f"{thread}; line {self.put.line} puts the mark `{self.put.text}` {self._only(self.put)}"

    @property
    def advice(self) -> str:
        """Where the mark belongs, and what to compare."""
        if self.taken is not None:
            return (
                f"Start the thread anew for each pass, with a queue of its own: move what {self.started} does to where "
                "the items are taken, or make that object for each epoch. Or let the thread go on for all passes, with "
                "a mark after each."
            )
        where = f"behind its loop (line {self.loop}) or in a `finally`" if self.loop is not None else "in a `finally`"
        where = "in a `finally`" if self.put is not None and self.put.only.caught else where
        mark = self.put.text if self.put is not None else self.mark or "None"
        count = "" if self.mark is not None else ", and stop there"
        put = f"Let {self.function} put `{mark}` on every way, {where}{count}. "
        why = ""
        if self.put is not None and self.put.only.around:
            made = list_words([f"`{item.name}` is `{item.text}` ({item.line})" for item in self.bounds])
            why = f"See why `{self.put.only.text}` did not hold before the thread ended{f': {made}' if made else ''}. "
        elif self.put is None and self.mark is None:
            why = "Compare how many items it puts with how many are taken here. "
        if self.caught is not None:
            kept = f": it keeps the error in {self.kept.words}" if self.kept is not None else ""
            first = f"See first what `{self.caught.text}` (line {self.caught.line}) caught there{kept}. "
            if self.put is None and self.mark is None:
                put, why = "Let it put the error into the queue, and raise that where it is taken. ", ""
            put = f"{first}{put}"
        return f"{put}{why}get(timeout=...) with a look at is_alive() of the thread does not wait for ever."

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines to show."""
        if self.taken is not None:
            mark: Place = (self.file, self.taken)
            return (mark,) if self.started.line is None else ((self.started.file, self.started.line), mark)
        own = (self.put.only.line, self.put.line) if self.put is not None else self.lines[:_MOST_LINES]
        return tuple((self.file, line) for line in own)

    @property
    def elsewhere(self) -> tuple[tuple[Place, tuple[str, ...]], ...]:
        """What the condition reads."""
        return (((self.file, self.put.only.line), self.names),) if self.put is not None and self.names else ()

    def _only(self, put: PutMark) -> str:
        if put.only.caught:
            return f"unless `{put.only.text}` (line {put.only.line}) catches an error before"
        if put.only.around:
            return f"only where `{put.only.text}` (line {put.only.line})"
        return f"unless `{put.only.text}` (line {put.only.line}) leaves before"


def ended_filler(view: ProcessView, wait: ProcessWait) -> EndedFiller | None:
    """None where another thread may fill the queue, an error ended one, or the mark is put on every way."""
    at = wait.at
    if wait.kind != "queue" or at is None or at.line is None or not no_other_could(view) or view.thread_exceptions:
        return None
    own = program_stack(view)
    files = program_files(view.process.snapshot, own)
    tree = files.get(at.file or "")
    taken = taking(tree, at.line) if tree is not None else None
    name = last_name(taken.queue) if taken is not None else None
    if tree is None or taken is None or name is None or at.file is None:
        return None
    puts = puts_into(tree, names_of_object(tree, name))
    scopes = {scope_of(tree, item.lineno) for item in puts}
    scope = scopes.pop() if len(scopes) == 1 else None
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or scope is scope_of(tree, at.line):
        return None
    started = _started(files, at, own, scope)
    if started is None:
        return None
    put, is_known = put_mark(tree, puts, taken.mark)
    before = taken_before(tree, puts, taken, at.line, started) if not is_known else None
    if before is None and not is_known:
        return None
    spot = Spot(at.file, tree, scope, put.only.line if put is not None else scope.lineno)
    caught = swallowed(tree, puts)
    names = _names(spot) if put is not None and put.only.around else ()
    plain = [item for item in puts if put is None or item.lineno != put.line]
    return EndedFiller(
        at.file,
        qualified_name(tree, scope),
        tuple(dict.fromkeys(item.lineno for item in plain)),
        counting_loop(tree, (plain or puts)[0].lineno),
        started,
        taken.mark,
        put,
        tuple(_bounds(Slice(view.process.snapshot, own), spot, names, at.file)),
        names,
        caught,
        kept_error(tree, caught.line) if caught is not None else None,
        before,
    )


def beside_words(ranks: Sequence[ProcessView], filler: EndedFiller) -> str:
    """`, while that of rank 0 was at line 69`: the same thread of other ranks, which had not ended."""
    for view in ranks:
        ending = asked_to_end(view.process)
        frames = [item for _, stack in (ending.python_threads if ending is not None else ()) for item in stack]
        here = (item for item in frames if item.file == filler.file and item.function == filler.function)
        found = next((item.line for item in here if item.line is not None), None)
        if found is not None:
            return f", while that of rank {view.process.rank} was at line {found}"
    return ""


def _started(
    files: Mapping[str, ast.Module], at: PythonFrame, own: Sequence[PythonFrame], scope: ast.AST
) -> LineWords | None:
    """The line that started a thread of this function, on the way to the wait; None where it may not have run."""
    for item in thread_starts(files):
        function = item.run_function(files)
        for line in _starts_at(item) if function is scope else ():
            if any(around for _, around in deciding_ifs(item.tree, line)):
                continue
            if _is_behind(files, item, line, at, own):
                return line_in(item.file, line, at.file)
    return None


def _starts_at(start: ThreadStart) -> Iterator[int]:
    """Where `start()` of a thread is called: beside its constructor, in it, or of the variable that has it."""
    if start.starts_itself:
        yield start.call.lineno
    for item in nodes_of(start.tree):
        if not isinstance(item, ast.Call) or called_name(item) != "start" or not isinstance(item.func, ast.Attribute):
            continue
        owner = item.func.value
        if owner is start.call or (start.made_as is not None and variable(owner) == start.made_as):
            yield item.lineno


def _is_behind(
    files: Mapping[str, ast.Module], start: ThreadStart, line: int, at: PythonFrame, own: Sequence[PythonFrame]
) -> bool:
    """Whether a line has run: above that of a frame, in its function, or in the constructor of the waiting object."""
    scope = scope_of(start.tree, line)
    above = [frame.line for frame in own if frame.file == start.file and frame.line is not None and line < frame.line]
    if any(scope_of(start.tree, item) is scope for item in above):
        return True
    waiting = files[at.file or ""]
    owner = class_around(waiting, scope_of(waiting, at.line or 0))
    return owner is not None and isinstance(scope, ast.FunctionDef) and scope.name == "__init__" and scope in owner.body


def _names(spot: Spot) -> tuple[str, ...]:
    """The variables of the condition."""
    tests = [item.test for item in nodes_of(spot.scope) if isinstance(item, ast.If) and spans(item.test, spot.line)]
    return tuple(names_of(tests[0])) if tests else ()


def _bounds(back: Slice, spot: Spot, names: Sequence[str], here: str) -> Iterator[Bound]:
    """Those that another line has given: not what the loop itself counts."""
    for name in names:
        made = back.made(ast.parse(name, mode="eval").body, spot, calls=False)
        if made.through and ast.unparse(made.node) != name:
            text = shortened(ast.unparse(made.node), _LONGEST)
            yield Bound(name, text, line_in(made.spot.file, made.line, here))
