"""A collective that some ranks called once more than others, where it met another one of the same operation.

A backend pairs collectives by their number. A barrier that one rank alone calls meets the next barrier of the others,
from another line: both complete, and the ranks are out of step until a call finds no partner, or one of another kind.
What decided about the first such pair is the reason, and not where the ranks stood at last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import count_words, list_words
from pytracer.analyze.collectives.call_sites import Site, calls_by_site, numbered_calls, site_of
from pytracer.analyze.collectives.calls_behind import ended_loop, may_have_left_out
from pytracer.analyze.collectives.deciders import Deciding, deciders
from pytracer.analyze.collectives.description import group_words, place_of, span_words
from pytracer.analyze.collectives.left_out_calls import left_out
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.collectives.parted_branches import one_rank_reason
from pytracer.analyze.collectives.rank_branches import RankBranch, rank_branch_of
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.evidence.slicing.callers import calls_of, only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_MOST = 8  # calls that one rank made more
_CALLERS = 4
_NOT_COMMUNICATING = "what does not communicate"


class ExtraCall(msgspec.Struct, frozen=True):
    """`subject`: who called what that others did not, and why as far as that is known; `met`: what it met instead.

    `advice`: what to change. `known`: whether the source shows what decided.
    """

    subject: str
    met: str
    advice: str
    known: bool

    @property
    def cause(self) -> str:
        """Both, behind another sentence."""
        return f"before, {self.subject}; it met {self.met}"


class _Extra(msgspec.Struct, frozen=True):
    """`names`: in words, the ranks that called and the others. `again`: as if by one round more of a loop."""

    there: Side
    absent: Side
    names: tuple[str, str]
    count: int
    again: bool


def extra_call(
    some: Sequence[ProcessView],
    others: Sequence[ProcessView],
    match: GroupMatch | None,
    before: int,
    *,
    ended: bool = False,
) -> ExtraCall | None:
    """The first call of a group that some ranks made beside others, where both call the same from there on.

    Args:
        some: Ranks that called the same collectives from the same lines as one another.
        others: The same of others.
        match: The group.
        before: Collectives with this number and larger ones are no pair that met.
        ended: Whether the others had made all their calls, which are fewer.
    """
    if match is None or not some or not others:
        return None
    sides = [_Calls(views, match.name) for views in (some, others)]
    if not all(side.alike for side in sides):
        return None
    number = _first_apart(sides[0].calls, sides[1].calls, before)
    if number is None:
        return None
    ahead = _shift(sides[0].calls, sides[1].calls, number)
    shifts = (ahead, None if ended else _shift(sides[1].calls, sides[0].calls, number))
    if (shifts[0] is None) == (shifts[1] is None):
        return None
    there, absent = sides if shifts[0] is not None else sides[::-1]
    count = shifts[0] or shifts[1] or 0
    pair = (there.views[0].process.rank or 0, absent.views[0].process.rank or 0)
    again = _is_repeated(there.calls, number, count)
    found = _Extra(
        _side(there.views[0], there.calls[number], pair if again else None),
        _side(absent.views[0], absent.calls[number], None),
        (there.words, absent.words),
        count,
        again,
    )
    return _explained(found, match)


class _Calls:
    """Of ranks that go the same way."""

    def __init__(self, views: Sequence[ProcessView], group: str | None) -> None:
        each = [numbered_calls(view, group) for view in views]
        self.views = views
        self.calls = each[0]
        self.alike = all(_sites(item) == _sites(each[0]) for item in each[1:])
        self.words = span_words([view.process.rank or 0 for view in views])


# ---- which call it is


def _sites(calls: dict[int, Collective]) -> dict[int, tuple[str, Site | None]]:
    return {number: (call.op, site_of(call)) for number, call in calls.items()}


def _first_apart(mine: dict[int, Collective], theirs: dict[int, Collective], before: int) -> int | None:
    """The first pair of one operation from two lines; None where the calls differ from the first one on."""
    numbers = sorted(number for number in mine.keys() & theirs.keys() if number < before)
    for number in numbers:
        one, other = site_of(mine[number]), site_of(theirs[number])
        if one is None or other is None:
            return None
        if one != other:
            return number if number != numbers[0] and mine[number].op == theirs[number].op else None
    return None


def _shift(ahead: dict[int, Collective], behind: dict[int, Collective], number: int) -> int | None:
    """How many calls one rank made more, where all its later ones are those of the other with a larger number."""
    mine, theirs = _sites(ahead), _sites(behind)
    for count in range(1, _MOST + 1):
        pairs = [(mine[at + count], item) for at, item in theirs.items() if at >= number and at + count in mine]
        if pairs and all(one == other for one, other in pairs):
            return count
    return None


def _is_repeated(calls: dict[int, Collective], number: int, count: int) -> bool:
    """Whether the rank had made the same calls twice just before: then they may be one round more of a loop."""
    sites = _sites(calls)
    rounds = [[sites.get(number + at - count * back) for at in range(count)] for back in range(3)]
    return rounds[0] == rounds[1] == rounds[2]


# ---- why


def _side(view: ProcessView, call: Collective, without: tuple[int, int] | None) -> Side:
    """With the callers of its line, as far as a function has only one in the program.

    `without`: not those below an `if` that leads the first of two ranks alone there.
    """
    way = way_to(view, call)
    while way and len(way) < 2 * _CALLERS:
        callers = [
            item for item in _callers(view, way[0]) if without is None or rank_branch_of(view, item, without) is None
        ]
        if len(callers) != 1 or callers[0] in way:
            break
        way = (callers[0], *way)
    return Side(view, way, call)


def _callers(view: ProcessView, frame: PythonFrame) -> Iterator[PythonFrame]:
    """The lines of the program that call the function of a frame, the only one of its name."""
    stack = [item for item in view.exception_stack if item.file] if view.raised else view.python_stack or []
    files = program_files(view.process.snapshot, [frame, *stack])
    name = (frame.function or "").rpartition(".")[2]
    defined = only_function(files, name)
    for item in calls_of(files, *defined) if defined is not None else ():
        line = item.call.lineno
        if item.passed is None:
            yield PythonFrame(file=item.file, function=qualified_name(item.tree, scope_of(item.tree, line)), line=line)


def _explained(found: _Extra, match: GroupMatch) -> ExtraCall | None:
    frame, site, met = place_of(found.there.call), site_of(found.there.call), place_of(found.absent.call)
    if frame is None or site is None or met is None:
        return None
    call, inside = found.there.call, library_call(found.there.view, found.there.call)
    what = f"{call.op}{f' in {inside}()' if inside is not None else ''} at {place_words(frame)}"
    there, absent = found.names
    calls = "a call" if found.count == 1 else f"{count_words(found.count, 'call')}"
    subject = f"{there} made {calls} that {absent} did not"
    subject += f": {what}" if found.count == 1 else f", from {what} on"
    at = line_in(met.file, met.line or 0, frame.file)
    pair = f"the {call.op} of {absent} at {at} (collective {call.sequence_nr} of {group_words(match)})"
    reason = _value(found) or _branch(found, site, frame) or _left_out(found)
    if reason is None:
        return ExtraCall(subject, pair, _unknown(found, frame), known=False)
    return ExtraCall(f"{subject}{reason.subject}", pair, reason.advice, known=True)


class _Reason(msgspec.Struct, frozen=True):
    subject: str
    advice: str


def _value(found: _Extra) -> _Reason | None:
    """A condition on the way there that asks something which is not the same on all ranks."""
    told = one_rank_reason(found.there.view, found.there.way)
    return _Reason(f"; {told[0]}", told[1]) if told is not None else None


def _branch(found: _Extra, site: Site, frame: PythonFrame) -> _Reason | None:
    """A branch on the rank around the line, or around the only such call of its function."""
    view, call = found.there.view, found.there.call
    pair = (found.there.number, found.absent.number)
    known = calls_by_site(found.absent.view, call.group, call.sequence_nr)
    own = rank_branch_of(view, frame, pair) if known is not None and not known[site] else None
    if own is not None:
        return _reason(own, frame, call.op, "what communicates there", frame)
    branches = list(_branches_above(view, frame, pair, 0))
    if len(branches) != 1 or (found.again and deciders(found.there, found.absent) != []):
        return None  # a round more of a loop looks the same, unless that has as many on all ranks
    caller, function, branch = branches[0]
    what = f"{(function or '').rpartition('.')[2]}()"
    return _reason(branch, caller, what, f"the {call.op} of {line_in(frame.file, frame.line or 0, caller.file)}", frame)


def _reason(branch: RankBranch, at: PythonFrame, calls: str, what: str, frame: PythonFrame) -> _Reason:
    """`at`: the line that the branch decides about; `calls`: what that calls."""
    where = line_in(at.file, at.line or 0, frame.file)
    head = f"{branch.head_before} ({line_in(at.file, branch.line, frame.file)})"
    subject = f", as {where} calls {calls} {head}" if at != frame else f", {head}"
    op = calls if at == frame else ""
    return _Reason(
        subject, f"{branch.words}, so that only some ranks call {what}: {branch.way_out(op, _NOT_COMMUNICATING)}"
    )


def _branches_above(
    view: ProcessView, frame: PythonFrame, pair: tuple[int, int], depth: int
) -> Iterator[tuple[PythonFrame, str | None, RankBranch]]:
    """The calls of its function that a branch on the rank decides about, or of the functions that call it."""
    for caller in _callers(view, frame) if depth < _CALLERS else ():
        branch = rank_branch_of(view, caller, pair)
        if branch is not None:
            yield caller, frame.function, branch
        elif caller.function != frame.function:
            yield from _branches_above(view, caller, pair, depth + 1)


def _left_out(found: _Extra) -> _Reason | None:
    """By the conditions and loops between the two lines."""
    there, absent = found.there, found.absent
    items = deciders(there, absent)
    deciding: list[Deciding] = [(there, absent, item) for item in items or ()]
    told = left_out(deciding) or ended_loop(deciding) or may_have_left_out(deciding)
    if told is None:
        return None
    return _Reason(f"; {told.subject}" if told.subject is not None else "", told.advice)


def _unknown(found: _Extra, frame: PythonFrame) -> str:
    line = f"line {frame.line}"
    callers = list(_callers(found.there.view, frame))
    shown = [line_in(item.file, item.line or 0, frame.file) for item in callers[:_CALLERS]]
    called = f" ({frame.function} is called at {list_words(shown)})" if len(shown) > 1 else ""
    return (
        f"Find out what led {found.names[0]} alone to {line}{called}, or {found.names[1]} past it: an `if` that "
        "comes out differently, a round more of a loop, an error that is caught. All ranks must make that call, or "
        "none."
    )
