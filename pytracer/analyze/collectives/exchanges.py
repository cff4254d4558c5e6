"""Two lines from which ranks call the two parts of one exchange: one rank loops and sends, another loops and receives.

`for name, full in checkpoint.items(): broadcast(full)` on rank 0, `for name in model.state_dict(): broadcast(...)` on
the others: one key more on one side, or another order, and a rank waits in a call that the others never make.

That they are parts of one is recorded: what the one rank calls from its line, the other calls from its own, at the same
numbers. The source shows that the branch that leads to the one line leads away from the other.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer.analyze.collectives.call_sites import numbered_calls, site_of
from pytracer.analyze.collectives.rank_branches import asks_rank
from pytracer.analyze.collectives.rank_values import line_of_call
from pytracer.analyze.collectives.rounds import leaver_words
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.loops import Loop, deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans, spans_body
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_HOPS = 8


class Part(msgspec.Struct, frozen=True):
    """The line of one rank's calls; `loop`: the innermost around them on its side; `file`: of the loop.

    `skips`: what may leave out a call in a round of it. `held`: what it goes through, as recorded.
    """

    rank: str
    frame: PythonFrame
    loop: Loop | None
    file: str | None
    skips: str | None
    held: str | None = None

    @property
    def over(self) -> str:
        """`full_sd.items()`: what the loop goes through, or the condition of a `while`."""
        if self.loop is None:
            return ""
        return short(ast.unparse(self.loop.test if isinstance(self.loop, ast.While) else self.loop.iter))

    @property
    def over_words(self) -> str:
        """`` `full_sd.items()` (line 12) ``."""
        line = self.loop.lineno if self.loop is not None else None
        held = f"; {self.held}" if self.held is not None else ""
        return f"`{self.over}` ({line_in(self.file, line, self.frame.file)}{held})"

    @property
    def loops_words(self) -> str:
        """`` loops over `full_sd.items()` (line 12) ``."""
        return f"loops {'while' if isinstance(self.loop, ast.While) else 'over'} {self.over_words}"


class Exchange(msgspec.Struct, frozen=True):
    """Both parts; `more`: at the number of the one's call, the other was elsewhere."""

    one: Part
    other: Part
    more: bool

    @property
    def subject(self) -> str | None:
        """For the headline: where the two need not come to as many."""
        if self._differ and self.more:
            return (
                f"{self.one.rank} {self.one.loops_words} and calls at least once more than {self.other.rank}, which "
                f"{self.other.loops_words}"
            )
        if self._differ:
            return f"{self.one.rank} {self.one.loops_words}, {self.other.rank} {self.other.loops_words}"
        skipping = [part for part in (self.one, self.other) if part.skips is not None]
        return f"{skipping[0].rank} may have left out a call by {skipping[0].skips}" if len(skipping) == 1 else None

    @property
    def advice(self) -> str:
        """What to compare, or one list for both."""
        lines = (
            f"{place_words(self.one.frame)} on {self.one.rank} and {place_words(self.other.frame)} on "
            f"{self.other.rank} are two parts of one exchange"
        )
        if self._differ:
            return (
                f"Let both go through the same items in the same order: {self.one.over_words} on {self.one.rank} and "
                f"{self.other.over_words} on {self.other.rank} need not have as many, nor in one order. Take those of "
                "one of the two on all ranks (of a model, its state_dict()), or broadcast the list of them first, and "
                "print what one side has alone."
            )
        skips = next((part.skips for part in (self.one, self.other) if part.skips is not None), None)
        if skips is not None:
            return f"{lines}: see whether {skips} left out a call. Both must call for each item, or skip the same ones."
        return f"{lines}: count how often each is reached, and what decides that. Both must call as often."

    @property
    def _differ(self) -> bool:
        return self.one.loop is not None and self.other.loop is not None and self.one.over != self.other.over


def exchange(view: ProcessView, call: Collective, other: ProcessView) -> Exchange | None:
    """Of a rank's call, the part that another rank calls from a line of its own.

    Args:
        view: The rank.
        call: The collective that it is in, or that failed.
        other: The other one.
    """
    theirs = _counterpart(view, call, other)
    if theirs is None:
        return None
    mine, others = led_way(view, call), led_way(other, theirs)
    for at, here in enumerate(mine):
        for beside, there in enumerate(others):
            tree = _shared(view, here, there)
            if tree is not None and _are_apart(tree, here.line or 0, there.line or 0):
                at_number = numbered_calls(other, call.group).get(call.sequence_nr)
                more = at_number is None or site_of(at_number) != site_of(theirs)
                parts = _part(view, call, mine[at:], there), _part(other, theirs, others[beside:], here)
                return Exchange(*parts, more)
    return None


def exchange_with_any(view: ProcessView, call: Collective, others: Sequence[ProcessView]) -> Exchange | None:
    """As exchange, with the first of several ranks that has a part."""
    parts = (exchange(view, call, other) for other in others)
    return next((part for part in parts if part is not None), None)


def _counterpart(view: ProcessView, call: Collective, other: ProcessView) -> Collective | None:
    """The other rank's last call at a number of this one's calls from its line; no rank has called from both lines."""
    site = site_of(call)
    mine, theirs = numbered_calls(view, call.group), numbered_calls(other, call.group)
    if site is None or any(site_of(item) == site for item in theirs.values()):
        return None
    own = [number for number, item in mine.items() if site_of(item) == site]
    met = [theirs[number] for number in own if number in theirs and theirs[number].op == mine[number].op]
    first = site_of(met[0]) if met else None
    if first is None or any(site_of(item) == first for item in mine.values()):
        return None
    return next(item for item in reversed(met) if site_of(item) == first)


def led_way(view: ProcessView, call: Collective) -> list[PythonFrame]:
    """The lines that led to a call, the outermost first; of an earlier one by the only calls of its functions."""
    found, snapshot = [*way_to(view, call)], view.process.snapshot
    for _ in range(_HOPS if len(found) == 1 else 0):
        tree = syntax_tree(snapshot, found[0])
        function = scope_of(tree, found[0].line or 0) if tree is not None else None
        called = (
            only_call(program_files(snapshot, found), function)
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
            else None
        )
        if called is None:
            break
        scope = scope_of(called.tree, called.call.lineno)
        name = getattr(scope, "name", "<module>")
        found.insert(0, PythonFrame(file=called.file, line=called.call.lineno, function=name))
    return found


def _shared(view: ProcessView, here: PythonFrame, there: PythonFrame) -> ast.Module | None:
    """The file of two lines of one function."""
    tree = syntax_tree(view.process.snapshot, here) if here.file == there.file else None
    lines = (here.line or 0, there.line or 0)
    return tree if tree is not None and scope_of(tree, lines[0]) is scope_of(tree, lines[1]) else None


def _are_apart(tree: ast.Module, here: int, there: int) -> bool:
    """Whether an `if` on the rank leads to one line alone: the other is in its `else`, or behind a `return` in it."""
    for line, beside in ((here, there), (there, here)):
        for item, around in deciding_ifs(tree, line):
            below = spans_body(item.body, beside)
            if not asks_rank(tree, item):
                continue
            if (around and spans(item, beside) and spans_body(item.body, line) != below) or (not around and below):
                return True
    return False


def _part(view: ProcessView, call: Collective, way: Sequence[PythonFrame], beside: PythonFrame) -> Part:
    """Of the lines from the function on in which both are; `beside`: the other's line there."""
    snapshot, rank = view.process.snapshot, f"rank {view.process.rank}"
    skips = next((said for frame in reversed(way) if (said := leaver_words(snapshot, frame)) is not None), None)
    for frame in reversed(way):
        tree = syntax_tree(snapshot, frame)
        loops = loops_around(tree, frame.line) if tree is not None and frame.line is not None else []
        own = [item for item in loops if frame is not way[0] or not spans(item, beside.line or 0)]
        if own:
            return Part(rank, way[-1], own[-1], frame.file, skips, _held(view, call, frame, own[-1]))
    return Part(rank, way[-1], None, None, skips)


def _held(view: ProcessView, call: Collective, frame: PythonFrame, loop: Loop) -> str | None:
    """`` `full_sd` was OrderedDict of 11 ``: what a loop goes through, where the rank raised in it."""
    line = line_of_call(view, call)
    if line is None or isinstance(loop, ast.While) or frame not in line.frames:
        return None
    values = line.values_at(line.frames.index(frame))
    return next((f"`{name}` was {values[name]}" for name in names_of(loop.iter) if name in values), None)
