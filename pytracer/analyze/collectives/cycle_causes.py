"""Why two ranks wait for each other in two groups: one left out a call that the other makes, or their orders differ.

Both had completed the same calls of both groups. The rank whose line comes first in the function in which they part is
at a call that the other one has passed: the condition that decides about it is named, if there is one alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import capital, list_words
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.deciders import called_by, is_led_by_library
from pytracer.analyze.collectives.deciding_tests import DECIDE, EMPTY, change_of_test
from pytracer.analyze.collectives.one_rank_hooks import hook_words
from pytracer.analyze.collectives.parted_ranks import find_parting
from pytracer.analyze.collectives.quiet_handlers import quiet_handler
from pytracer.analyze.collectives.rank_branches import branch_advice
from pytracer.analyze.collectives.same_rounds import has_same_rounds
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.collectives.ways import Side, aligned, completed, parted, quoted, way_to
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.choices import COMPREHENSIONS, choices_around
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, last_of, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView
from pytracer.report.job import PythonFrame

_RANKS = 2
_OF_LISTS = frozenset({"cat", "stack", "concat", "concatenate", "vstack", "hstack", "len", "sum", "max", "min"})
SAME_ORDER = "Make all ranks use these groups in the same order."
_COMPARE = (
    "Compare what the ranks call before these lines: one left out a call that the other makes, or they use the groups "
    "in another order. Let all ranks make the same calls, in the same order."
)


class CycleCause(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to change."""

    subject: str | None
    advice: str


class _Test(msgspec.Struct, frozen=True):
    """A condition of the function of `frame`, that decides about the call below."""

    frame: PythonFrame
    tree: ast.Module
    test: ast.expr


def cycle_cause(job: JobView, waits: Sequence[Wait]) -> CycleCause:
    """What to say of ranks that wait for each other in a cycle of groups."""
    views = [view for wait in waits for view in views_of(job, wait.waiters[:1])]
    if len(waits) != _RANKS or len(views) != _RANKS:
        return CycleCause(None, _COMPARE if len({site_of(item.call) for item in waits}) > 1 else SAME_ORDER)
    hook = hook_words(views, [wait.call.op for wait in waits])
    if hook is not None:
        return CycleCause(*hook)
    one, other = (Side(view, way_to(view, wait.call), wait.call) for view, wait in zip(views, waits, strict=True))
    one, other = aligned(*completed(one, other))
    if site_of(one.call) == site_of(other.call) or _by_one_line(one, other):
        return CycleCause(None, SAME_ORDER)
    fork = parted(one.way, other.way)
    if fork is None or min(len(one.way), len(other.way)) <= fork:
        return CycleCause(None, _COMPARE)
    first, second = sorted((one, other), key=lambda side: side.way[fork].line or 0)
    if _orders_differ(first, second, fork):
        return CycleCause(None, SAME_ORDER)
    found = _left_out(first, second, fork) if _has_same_past(first, second) else None
    return found if found is not None else CycleCause(None, _COMPARE)


def _by_one_line(one: Side, other: Side) -> bool:
    """Whether one line calls both functions, in a loop and below no condition: it comes to them in another order."""
    for mine, theirs, (inner, inside) in zip(
        one.way, other.way, zip(one.way[1:], other.way[1:], strict=False), strict=False
    ):
        if mine != theirs or mine.line is None:
            return False
        if (inner.file, inner.function) != (inside.file, inside.function):
            tree = syntax_tree(one.view.process.snapshot, mine)
            return tree is not None and bool(loops_around(tree, mine.line)) and not deciding_ifs(tree, mine.line)
    return False


def _has_same_past(one: Side, other: Side) -> bool:
    """Whether both had called the same from the same lines in both groups, as far back as both recordings go."""
    for group in (one.call.group, other.call.group):
        sites = [
            {
                item.sequence_nr: site_of(item)
                for item in side.view.process.snapshot.collectives
                if item.group == group and not item.point_to_point and item is not side.call
                if group != side.call.group or item.sequence_nr < side.call.sequence_nr
            }
            for side in (one, other)
        ]
        if max(sites[0], default=0) != max(sites[1], default=0):
            return False
        if any(sites[0][number] != sites[1][number] for number in sites[0].keys() & sites[1].keys()):
            return False
    return True


def _orders_differ(first: Side, second: Side, fork: int) -> bool:
    """Whether each has an arm of one `if`, or the first one's line is called again behind that of the second."""
    here, line = first.way[fork], second.way[fork].line or 0
    tree = syntax_tree(first.view.process.snapshot, here)
    if tree is None or here.line is None:
        return False
    if any(around and spans(item, line) for item, around in deciding_ifs(tree, here.line)):
        return True
    calls = [item for item in own_nodes(scope_of(tree, here.line)) if isinstance(item, ast.Call)]
    mine, theirs = (
        {ast.unparse(item.func) for item in calls if item.lineno == number and called_name(item) == name}
        for number, name in ((here.line, called_by(first, fork)), (line, called_by(second, fork)))
    )
    return any(
        (ast.unparse(item.func) in mine and item.lineno > line)
        or (ast.unparse(item.func) in theirs and item.lineno < here.line and mine.isdisjoint(theirs))
        for item in calls
    )


def _left_out(first: Side, second: Side, fork: int) -> CycleCause | None:
    """The call of the rank whose line comes first, which the other one has passed by; in a loop also the reverse."""
    mine, theirs = ([*_tests(side, fork, other)] for side, other in ((first, second), (second, first)))
    again = any(_is_in_loop(side, fork) for side in (first, second))
    if again and (theirs or any(True for _ in _loops(second, first, fork))):
        return None if mine or not theirs else _said(second, first, fork, theirs)
    return _said(first, second, fork, mine) if mine else _fewer_rounds(first, second, fork)


def _fewer_rounds(there: Side, absent: Side, fork: int) -> CycleCause | None:
    """Where nothing but loops can have decided about its call."""
    loops = [*dict.fromkeys(_loops(there, absent, fork))]
    if not loops or _else_decides(there, absent, fork) is not None:
        return None
    here, passed = there.way[-1], absent.way[fork]
    return CycleCause(
        None,
        f"{capital(absent.name)} has gone on to {line_in(passed.file, passed.line or 0, here.file)} without the "
        f"{there.call.op} of line {here.line}: the loop of {list_words(loops, conjunction='or')} had fewer rounds "
        "there. Give all ranks as many, or let those that are done take part with an empty or neutral tensor.",
    )


def _else_decides(there: Side, absent: Side, fork: int) -> str | None:
    """What to say of a branch on the rank, or of a handler that goes on; empty of a library that decides."""
    if is_led_by_library(there, fork):
        return ""
    below = branch_advice(there.view, there.call)
    caught = quiet_handler(
        there.view.process.snapshot, there.way[fork:], absent.name, absent.way[fork].line, absent.view
    )
    return below or caught


def _is_in_loop(side: Side, fork: int) -> bool:
    """Whether the function in which they part, or one that led there, calls in a loop."""
    snapshot = side.view.process.snapshot
    trees = [(syntax_tree(snapshot, frame), frame.line) for frame in side.way[: fork + 1]]
    return any(tree is not None and line is not None and loops_around(tree, line) for tree, line in trees)


def _tests(side: Side, fork: int, other: Side) -> Iterator[_Test]:
    """What decides about its call from where they part, the innermost first."""
    for position in range(len(side.way) - 1, fork - 1, -1):
        frame = side.way[position]
        tree = syntax_tree(side.view.process.snapshot, frame)
        if tree is None or frame.line is None:
            continue
        yield from (_Test(frame, tree, test) for test in choices_around(tree, frame.line, called_by(side, position)))
        beside = other.way[position].line if position == fork else None
        for item, around in deciding_ifs(tree, frame.line):
            passes = not around and (isinstance(last_of(item.body), ast.Raise) or (beside or 0) > item.lineno)
            if not passes and not (beside is not None and around and spans(item, beside)):
                yield _Test(frame, tree, item.test)


def _said(there: Side, absent: Side, fork: int, tests: Sequence[_Test]) -> CycleCause | None:
    by, snapshot = tests[0], there.view.process.snapshot
    known = _else_decides(there, absent, fork)
    parting = find_parting(there.view, there.call, absent.view, absent.call)
    line = there.way[-1].line
    if parting is not None and parting.one_rank:
        return CycleCause(parting.subject, parting.advice)
    if known is not None:
        return CycleCause(None, known) if known else None
    text = quoted(snapshot, by.frame, by.test.lineno)
    if text is None:
        return None
    where = line_in(by.frame.file, by.test.lineno, there.way[-1].file)
    what = f"the {there.call.op} of line {line}"
    passed = absent.way[fork]
    at = line_in(passed.file, passed.line or 0, there.way[-1].file)
    sure = len(tests) == 1
    loops = [*dict.fromkeys(_loops(there, absent, fork))]
    subject = f"{absent.name} came to {at} without {what}, which {where} ({text}) decides about"
    asks = f"{capital(where)} ({text}) decides about {what}"
    came = "it came out differently there" if sure else "see whether it came out differently there"
    fewer = f", or the loop of {list_words(loops, conjunction='or')} had fewer rounds" if loops else ""
    advice = (
        f"{asks}, and {absent.name} has gone on to {at} without it: {came}{fewer}. {capital(_change(by))} The groups' "
        "order is not what differs."
    )
    return CycleCause(subject if sure else None, advice)


def _loops(there: Side, absent: Side, fork: int) -> Iterator[str]:
    """The lines of loops below where they part that may have other rounds on the other rank; comprehensions, too."""
    snapshot, here = there.view.process.snapshot, there.way[-1].file
    for position in range(fork, len(there.way)):
        frame = there.way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        beside = absent.way[position].line if position == fork else None
        around = (item for item in loops_around(tree, frame.line) if beside is None or not spans(item, beside))
        lines = [item.lineno for item in around if not has_same_rounds(there, absent, position, item)]
        for item in nodes_of(scope_of(tree, frame.line)):
            if isinstance(item, COMPREHENSIONS) and spans(item, frame.line):
                lines.append(item.lineno)
        yield from (line_in(frame.file, line, here) for line in lines)


def _change(by: _Test) -> str:
    """What to do about what is asked."""
    decides = next(
        (item for item in nodes_of(by.tree) if isinstance(item, ast.If) and item.test is by.test),
        ast.copy_location(ast.If(by.test, [ast.Pass()], []), by.test),
    )
    change = change_of_test(decides, by.tree)
    return EMPTY if change == DECIDE and _is_list(by) else change


def _is_list(by: _Test) -> bool:
    """Whether it asks a variable whose items the function puts together or counts: `torch.cat(chunks)`."""
    test = by.test.operand if isinstance(by.test, ast.UnaryOp) and isinstance(by.test.op, ast.Not) else by.test
    name = variable(test)
    return name is not None and any(
        isinstance(item, ast.Call)
        and called_name(item) in _OF_LISTS
        and any(variable(arg) == name for arg in item.args)
        for item in own_nodes(scope_of(by.tree, by.test.lineno))
    )
