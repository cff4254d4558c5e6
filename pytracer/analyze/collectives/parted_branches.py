"""Ranks that parted by an `if` or an `except`: one came to a call that the other one passed by."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import capital
from pytracer.analyze.collectives.deciders import Decider
from pytracer.analyze.collectives.local_numbers import advice_at
from pytracer.analyze.collectives.one_rank_tests import one_rank_words
from pytracer.analyze.collectives.paired_branches import is_paired
from pytracer.analyze.collectives.parting import Parting, fewer_calls, fewer_rounds, of_one_rank, of_values
from pytracer.analyze.collectives.quiet_handlers import quiet_handler
from pytracer.analyze.collectives.rank_branches import branch_words
from pytracer.analyze.collectives.tested_values import settled, tested
from pytracer.analyze.collectives.ways import Side, quoted, way_to
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame


def skipped_call(one: Side, other: Side, at: int) -> Parting | None:
    """One rank came to a call that the other one passed by."""
    if len(one.way) <= at:
        return None
    snapshot, elsewhere = one.view.process.snapshot, other.way[at].line if len(other.way) > at else None
    caught = quiet_handler(snapshot, one.way[at:], other.name, elsewhere, other.view)
    if caught is not None:
        return Parting(caught, subject=fewer_calls(one, other, at, elsewhere))
    for position in range(len(one.way) - 1, at - 1, -1):
        frame = one.way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for item, around in deciding_ifs(tree, frame.line):
            text = quoted(snapshot, frame, item.lineno)
            same = elsewhere is not None and position == at and not (around and not spans(item, elsewhere))
            if text is None or same or is_paired(tree, item, frame.line):
                continue
            came = tested(one, other, at, item.test, item.lineno) if position == at else None
            always = settled(one, other, position, item.test, item.lineno) if came is None else None
            if always is not None and always.mine == always.theirs:
                continue  # it comes out alike at any time
            came = always or came
            below = any(spans(part, frame.line) for part in item.body)  # else in its `else`, or behind it
            if came is not None and not (came.mine == below and came.theirs != below):
                came = None  # another moment's values
            words = branch_words(frame, text, item.lineno, around)
            known = of_one_rank(one.view, one.way, position, item)
            if came is not None and came.values and (known is None or f"`{known.name}`" not in came.values):
                return of_values(came, f"{words}, and {other.name} passed it by", item, text, tree)
            if known is not None:
                by = one_rank_words(
                    one, other, Decider(frame, tree, item, around), known, f"line {item.lineno} ({text})"
                )
                return Parting(
                    f"{words}, and {other.name} passed it by. {capital(known.advice)}", subject=by, one_rank=True
                )
            return Parting(
                f"{words}, and {other.name} passed it by: {advice_at(snapshot, one.way, position, item, tree)}",
                skipped=True,
                counted=fewer_rounds(one, other, frame, item, text) if not around else None,
            )
    return None


def passed_by_words(view: ProcessView, call: Collective, other: str) -> str | None:
    """The closest `if` on the way to a call that another rank, which never came there, may have left by."""
    way = way_to(view, call)
    for position, frame in reversed(list(enumerate(way))):
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for item, around in deciding_ifs(tree, frame.line):
            text = quoted(view.process.snapshot, frame, item.lineno)
            if text is None or "__name__" in text:
                continue
            words = branch_words(frame, text, item.lineno, around)
            known = of_one_rank(view, way, position, item)
            what = "it" if frame == way[-1] else f"the {call.op} of {line_in(way[-1].file, way[-1].line, frame.file)}"
            if known is not None:
                return f"{words}, and {other} never called {what}. {capital(known.advice)}"
            decided = advice_at(view.process.snapshot, way, position, item, tree)
            return f"{words}, and {other} never called {what}: {decided}"
    return None


def one_rank_way(view: ProcessView, call: Collective) -> tuple[str, str] | None:
    """An `if` on the way to a call that asks a value which only one rank has: for the headline, and what to do."""
    return one_rank_reason(view, way_to(view, call))


def one_rank_reason(view: ProcessView, way: Sequence[PythonFrame]) -> tuple[str, str] | None:
    """As one_rank_way, of the lines that led to a call."""
    for position, frame in reversed(list(enumerate(way))):
        tree = syntax_tree(view.process.snapshot, frame)
        for item, _ in deciding_ifs(tree, frame.line) if tree is not None and frame.line is not None else ():
            text = quoted(view.process.snapshot, frame, item.lineno)
            known = of_one_rank(view, way, position, item)
            if known is not None and text is not None:
                return f"`{known.name}` of line {item.lineno} ({text}) {known.subject}", capital(known.advice)
    return None
