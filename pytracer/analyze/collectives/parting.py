"""What two ranks of one program parted by, as it is told."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import count_words
from pytracer.analyze.collectives.call_sites import counts_at
from pytracer.analyze.collectives.deciding_tests import change_of_test
from pytracer.analyze.collectives.one_rank_values import OneRankValue
from pytracer.analyze.collectives.quiet_handlers import quiet_place
from pytracer.analyze.collectives.rank_objects import RankObject, decided_by_rank
from pytracer.analyze.collectives.tested_values import Tested
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.syntax.loops import last_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


class Parting(msgspec.Struct, frozen=True):
    """What to say of it. `inferred`: only that one rank had left a loop; counts of its calls say more than that.

    `subject`: the same for the headline, where nothing else can have happened. `one_rank`: a value decided that only
    one rank has as it is meant to be. `skipped`: an `if` on the way to one call alone was looked at. `counted`: for the
    headline where nothing else is known, how often both had called, and an `if` that may have left out a round.
    """

    advice: str
    inferred: bool = False
    subject: str | None = None
    one_rank: bool = False
    skipped: bool = False
    counted: str | None = None


def of_values(came: Tested, words: str, decides: ast.If, text: str, tree: ast.Module) -> Parting:
    """The values that variables of an `if` had on both ranks tell that it decided."""
    advice = came.reason or f"{came.values}: {change_of_test(decides, tree)}"
    return Parting(
        f"{words}: {advice}", subject=f"{came.values}, which line {decides.lineno} ({text}) asks for", one_rank=True
    )


def fewer_calls(one: Side, other: Side, at: int, unless: int | None = None) -> str | None:
    """How often both had called from the line of the first, where the other has fewer, and what may have caught there.

    `rank 1 had called 7 times from line 46, rank 0 8 times, and line 48 (`except ...`) goes on after an error there`.
    """
    found = quiet_place(one.view.process.snapshot, one.way[at:], unless, other.view)
    calls = _calls_of_both(one, other) if found is not None else None
    if found is None or calls is None:
        return None
    frame, handler = found
    where = line_in(frame.file, handler.lineno, one.way[-1].file)
    text = quoted(one.view.process.snapshot, frame, handler.lineno)
    return f"{calls}, and {where} ({text}) goes on after an error there"


def fewer_rounds(one: Side, other: Side, frame: PythonFrame, decides: ast.If, text: str) -> str | None:
    """The same of an `if` that goes on to the next round of a loop around it: `if bad(batch): continue`."""
    calls = _calls_of_both(one, other) if isinstance(last_of(decides.body), ast.Continue) else None
    if calls is None or counts_at(one.call, (other.view,)) == [0]:
        return None
    where = line_in(frame.file, decides.lineno, one.way[-1].file)
    return f"{calls}, and {where} ({text}) may have left out a round there"


def _calls_of_both(one: Side, other: Side) -> str | None:
    """How often both had called from the line of the first; None where the other one had not called less often."""
    counts = counts_at(one.call, (one.view, other.view))
    if counts is None or counts[0] <= counts[1]:
        return None
    line = one.way[-1].line
    return f"{other.name} had called {count_words(counts[1], 'time')} from line {line}, {one.name} {counts[0]} times"


def of_one_rank(
    view: ProcessView, way: Sequence[PythonFrame], position: int, decides: ast.If
) -> OneRankValue | RankObject | None:
    """What an `if` of the frame at `position` of a way asks for, where only one rank has it."""
    depth = len(way) - 1 - position
    return decided_by_rank(view.process.snapshot, way[::-1], depth, decides.lineno, decides.test)
