"""Where two ranks of one program parted: the function in which they are at different lines, and what decides there.

Their stacks are alike from the outside in, up to one function. What lies between its two lines in the source - a loop
that one rank left, an `except` that goes on, an `if` - is what came out differently.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, count_words
from pytracer.analyze.collectives.call_sites import counts_at, site_of
from pytracer.analyze.collectives.deciders import Decider, called_by
from pytracer.analyze.collectives.deciding_tests import DECIDE, change_of_test
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.differing_bounds import differing_bound
from pytracer.analyze.collectives.exchanges import exchange
from pytracer.analyze.collectives.later_rounds import passed_by
from pytracer.analyze.collectives.local_numbers import advice_at, local_number, number_at, own_words
from pytracer.analyze.collectives.one_rank_exits import one_rank_exit
from pytracer.analyze.collectives.one_rank_states import one_rank_state
from pytracer.analyze.collectives.one_rank_tests import came_out_alike, one_rank_words, values_of_both
from pytracer.analyze.collectives.one_rank_values import OneRankValue
from pytracer.analyze.collectives.quiet_handlers import quiet_handler, quiet_place
from pytracer.analyze.collectives.rank_branches import branch_words
from pytracer.analyze.collectives.rank_objects import RankObject, decided_by_rank
from pytracer.analyze.collectives.rounds import batches_of, join_words
from pytracer.analyze.collectives.stop_flags import stop_flag, way_out
from pytracer.analyze.collectives.tested_values import Tested, settled, tested, tested_words
from pytracer.analyze.collectives.used_up_loops import has_more_rounds, used_up_loop
from pytracer.analyze.collectives.ways import Side, aligned, completed, in_step, parted, quoted, way_to
from pytracer.analyze.evidence.slicing.by_rank import SizeSource, rounds_source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.loops import LOOPS, Loop, deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_RANK = Pattern(r"\b\w*rank\w*\b|\bworld_?size\b", re.IGNORECASE)
_NEAR = 8  # collectives of a round
_ROUNDS = (
    "make it the same on all ranks (drop what is left over, or pad it; DistributedDataParallel's join() allows it to "
    "differ where DDP alone calls). "
)
_OR_LEFT_OUT = "Or the rounds are the same, and a call inside is left out in some (no_sync(), a branch): count both."


class Parting(msgspec.Struct, frozen=True):
    """What to say of it. `inferred`: only that one rank had left a loop; counts of its calls say more than that.

    `subject`: the same for the headline, where nothing else can have happened. `one_rank`: a value decided that only
    one rank has as it is meant to be. `skipped`: an `if` on the way to one call alone was looked at.
    """

    advice: str
    inferred: bool = False
    subject: str | None = None
    one_rank: bool = False
    skipped: bool = False


def find_parting(first: ProcessView, mine: Collective, second: ProcessView, theirs: Collective) -> Parting | None:
    """What decided that the two ranks are at different lines, as far as the source shows it.

    Args:
        first: a rank.
        mine: the call that it stands in, or that failed.
        second: another one.
        theirs: its call.
    """
    one, other = Side(first, way_to(first, mine), mine), Side(second, way_to(second, theirs), theirs)
    sides = aligned(*completed(one, other))
    at = parted(sides[0].way, sides[1].way)
    if at is None:
        return None
    both = (sides, sides[::-1])
    for look in (_in_handler, _of_exchange, _passed_by, _left_loop, _skipped):
        found = next((item for one, other in both if (item := look(one, other, at)) is not None), None)
        if found is not None:
            return found
    return None


def _of_exchange(one: Side, other: Side, at: int) -> Parting | None:
    """Each rank has a line of its own for its part."""
    found = exchange(one.view, one.call, other.view) if min(len(one.way), len(other.way)) > at else None
    return Parting(found.advice, subject=found.subject, one_rank=True) if found is not None else None


def _passed_by(one: Side, other: Side, at: int) -> Parting | None:
    """The other one is in a later round."""
    found = passed_by(one, other, at)
    known = _skipped(one, other, at) if found is not None else None
    if found is None or (known is not None and known.one_rank):
        return known
    return Parting(found.advice, subject=found.subject, skipped=True)


def _in_handler(one: Side, other: Side, at: int) -> Parting | None:
    """One rank is in a handler of a signal, which the interpreter called between two lines of its own."""
    snapshot = one.view.process.snapshot
    for caller, frame in list(zip(one.way, one.way[1:], strict=False))[at:] if len(one.way) > at + 1 else ():
        tree, name = syntax_tree(snapshot, caller), (frame.function or "").rpartition(".")[2]
        if tree is None or caller.file != frame.file or caller.line is None:
            continue
        line = _handler_line(tree, name)
        if line is None or any(called_name(item) == name for item in calls_on(tree, caller.line)):
            continue
        return Parting(
            f"{capital(one.name)} was in {name}(), a signal's handler (line {line}): the signal came to {one.name} "
            f"and not to {other.name}. A handler must not communicate: let it set a flag, all_reduce() the flag (MAX) "
            "in each step, and save or leave where all ranks see it set."
        )
    return None


def _handler_line(tree: ast.Module, name: str) -> int | None:
    """Of `signal.signal(signal.SIGUSR1, save)`."""
    for item in nodes_of(tree):
        if not isinstance(item, ast.Call) or len(item.args) < 2:
            continue
        sets = ast.unparse(item.func) in ("signal.signal", "signal")
        if sets and ast.unparse(item.args[1]).rpartition(".")[2] == name:
            return item.lineno
    return None


def _left_loop(inside: Side, outside: Side, at: int) -> Parting | None:
    """One rank is in a loop, the other one behind it; or in a function with one that the other one has left."""
    if min(len(inside.way), len(outside.way)) <= at:
        return None
    here, there, snapshot = inside.way[at], outside.way[at], inside.view.process.snapshot
    tree = syntax_tree(snapshot, here)
    if (
        tree is None
        or here.line is None
        or there.line is None
        or scope_of(tree, here.line) != scope_of(tree, there.line)
    ):
        return None
    loops = [
        item
        for item in rounds_around(tree, here.line, called_by(inside, at))
        if (item.end_lineno or 0) < there.line and _may_have_entered(inside, outside, tree, item, there.line)
    ]
    if not loops:
        again = any((item.end_lineno or 0) >= there.line for item in loops_around(tree, here.line))
        return _left_call(inside, outside, at) if here.line < there.line and not again else None
    bound = next((found for item in loops if (found := differing_bound(inside, outside, at, item)) is not None), None)
    if bound is not None:
        return Parting(bound.advice, subject=bound.subject, one_rank=True)
    return _behind(inside, outside, at, loops[0])


def _may_have_entered(inside: Side, outside: Side, tree: ast.Module, loop: Loop, behind: int) -> bool:
    """Whether no `if` around the loop leads to it alone, or the rank behind it has called from its line, too."""
    branch = any(around and not spans(item, behind) for item, around in deciding_ifs(tree, loop.lineno))
    site = site_of(inside.call)
    return not branch or any(site_of(item) == site for item in outside.view.process.snapshot.collectives)


def _left_call(inside: Side, outside: Side, at: int) -> Parting | None:
    """The rank that is inside is in a loop that something ends, in a function which both have called there."""
    for deeper in range(at + 1, len(inside.way)):
        frame = inside.way[deeper]
        tree = syntax_tree(inside.view.process.snapshot, frame)
        loops = loops_around(tree, frame.line) if tree is not None and frame.line is not None else []
        loop = next((item for item in loops if any(True for _ in _ends(item)) or way_out(item) is not None), None)
        if loop is not None:
            return _behind(inside, outside, deeper, loop)
    return None


def behind_loop(inside: Side, outside: Side, frame: PythonFrame, loop: Loop) -> Parting | None:
    """As find_parting, of a loop of a function on the way of the rank inside that the other one had left."""
    return _behind(inside, outside, inside.way.index(frame), loop) if frame in inside.way else None


def _behind(inside: Side, outside: Side, at: int, loop: Loop) -> Parting | None:
    here, snapshot = inside.way[at], inside.view.process.snapshot
    text = quoted(snapshot, here, loop.lineno)
    if text is None:
        return None
    words = f"{outside.name} was behind the loop of line {loop.lineno} ({text}), {inside.name} still in it"
    alone = one_rank_exit(inside, outside, at, loop)
    if alone is not None:
        return Parting(alone.advice, subject=alone.subject, one_rank=True)
    ways = dict.fromkeys([*((item.lineno, item.test) for item in _ends(loop)), *filter(None, [way_out(loop)])])
    for line, test in ways:
        known = decided_by_rank(snapshot, inside.way[::-1], len(inside.way) - 1 - at, line, test)
        if known is not None:
            by = f"`{known.name}` of line {line} ({quoted(snapshot, here, line)}) {known.subject}"
            return Parting(f"{capital(words)}. {capital(known.advice)}", subject=by, one_rank=True)
        frames = inside.way[::-1]
        state = one_rank_state(snapshot, frames, len(frames) - 1 - at, loop, line, test, [outside.number])
        if state is not None:
            return Parting(f"{capital(words)}. {state.advice}", subject=f"{words}: {state.subject}", one_rank=True)
    asked = _asked_inside(inside, outside, at, loop, words)
    if asked is not None:
        return asked
    left = _left_by(inside, outside, at, loop)
    if left is not None:
        return left
    ends = [item for item in _ends(loop) if item.lineno != here.line]
    ended = _ended_by(inside, outside, at, loop, ends)
    if ended is not None:
        return ended
    skips = quiet_handler(snapshot, inside.way[at:], outside.name, absent=outside.view)
    used_up = used_up_loop(inside, outside, at, loop, ends) if skips is None else None
    if used_up is not None:
        return Parting(used_up.advice, subject=used_up.subject, one_rank=True)
    if ends:
        shown = " or ".join(f"line {item.lineno} ({quoted(snapshot, here, item.lineno)})" for item in ends[:2])
        number = number_at(snapshot, inside.way, at, ends[0]) if len(ends) == 1 else None
        decided = number.advice if number is not None else DECIDE
        said = f"See whether {shown}, which ends it, came out differently: {decided}{_and(skips)}"
        return Parting(f"{capital(words)}. {said}")
    if skips is not None:
        return Parting(f"{capital(words)}. {skips}", subject=_fewer_calls(inside, outside, at))
    frames = inside.way[::-1]
    batches = batches_of(snapshot, here, loop, frames)
    if batches is not None:
        said = f"{capital(words)}. {batches.advice(here.file)}{join_words(snapshot, frames[0])}. {_OR_LEFT_OUT}"
        return Parting(said, inferred=True)
    source = _rounds_source(inside, at, loop)
    by = f" (line {source.line}: `{source.text}`)" if source is not None else ""
    more = f"may depend on the rank{by}" if by or _RANK.search(text) else "may differ"
    return Parting(f"{capital(words)}. Its number of rounds {more}: {_ROUNDS}{_OR_LEFT_OUT}", inferred=True)


def _asked_inside(inside: Side, outside: Side, at: int, loop: Loop, words: str) -> Parting | None:
    """An `if` on the way from the loop to the call that asks for what one rank alone has; of the last round, too.

    Of a loop whose rounds need not be as many on both it is said for sure where their values are known to differ.
    """
    snapshot = inside.view.process.snapshot
    uneven = _rounds_source(inside, at, loop) is not None
    for position in range(len(inside.way) - 1, at - 1, -1):
        frame = inside.way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for item, around in deciding_ifs(tree, frame.line):
            text = quoted(snapshot, frame, item.lineno) if position > at or spans(loop, item.lineno) else None
            known = _of_one_rank(inside.view, inside.way, position, item) if text is not None else None
            if known is not None and text is not None:
                by = Decider(frame, tree, item, around)
                alike = came_out_alike(inside, outside, by)
                if alike or (alike is None and uneven):
                    continue
                values = values_of_both(inside, outside, by, known)
                sure = alike is False or values != "" or _is_of_settings(inside, at, loop)
                subject = one_rank_words(inside, outside, by, known, f"line {item.lineno} ({text})") if sure else None
                return Parting(f"{capital(words)}. {capital(known.advice)}", subject=subject, one_rank=sure)
    return None


def _is_of_settings(side: Side, at: int, loop: Loop) -> bool:
    """`range(args.epochs)`: of no call, as len() of a rank's data, and not of the rank."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)) or not isinstance(loop.iter, ast.Call):
        return False
    frames = side.way[::-1]
    slice_ = Slice(side.view.process.snapshot, frames)
    spot = slice_.spot(len(frames) - 1 - at)
    if called_name(loop.iter) != "range" or spot is None:
        return False
    asked = [part for item in loop.iter.args for part in nodes_of(item) if isinstance(part, ast.expr)]
    made = [slice_.made(item, spot, calls=True).node for item in asked]
    return not any(isinstance(part, ast.Call) or is_of_rank(part) for item in made for part in nodes_of(item))


def _ended_by(inside: Side, outside: Side, at: int, loop: Loop, ends: Sequence[ast.If]) -> Parting | None:
    """The only one of the conditions that end a loop which held for the rank behind it, and not for the one in it."""
    here, snapshot = inside.way[at], inside.view.process.snapshot
    tree = syntax_tree(snapshot, here)
    came = [(item, tested(inside, outside, at, item.test, item.lineno, loop)) for item in ends]
    held = [(item, found) for item, found in came if found is not None and found.theirs and not found.mine]
    if len(held) != 1 or tree is None or not held[0][1].values:
        return None
    ((item, found),) = held
    text = quoted(snapshot, here, item.lineno) or ""
    words = f"{capital(outside.name)} had left the loop by line {item.lineno} ({text}), {inside.name} was still in it"
    return _of_values(found, words, item, text, tree)


def _fewer_calls(one: Side, other: Side, at: int, unless: int | None = None) -> str | None:
    """How often both had called from the line of the first, where the other has fewer, and what may have caught there.

    `rank 1 had called 7 times from line 46, rank 0 8 times, and line 48 (`except ...`) goes on after an error there`.
    """
    found = quiet_place(one.view.process.snapshot, one.way[at:], unless, other.view)
    counts = counts_at(one.call, (one.view, other.view))
    if found is None or counts is None or counts[0] <= counts[1]:
        return None
    (frame, handler), here = found, one.way[-1]
    where = line_in(frame.file, handler.lineno, here.file)
    text = quoted(one.view.process.snapshot, frame, handler.lineno)
    calls = (
        f"{other.name} had called {count_words(counts[1], 'time')} from line {here.line}, {one.name} {counts[0]} times"
    )
    return f"{calls}, and {where} ({text}) goes on after an error there"


def _left_by(inside: Side, outside: Side, at: int, loop: Loop) -> Parting | None:
    """Where one condition alone ends the loop, and both ranks had made the same calls before."""
    out, here, snapshot = way_out(loop), inside.way[at], inside.view.process.snapshot
    text = quoted(snapshot, here, out[0]) if out is not None else None
    fork = parted(inside.way, outside.way)
    if out is None or text is None or here.file is None or fork is None or not in_step(inside, outside):
        return None
    unless = outside.way[fork].line if len(outside.way) > fork else None
    if quiet_handler(snapshot, inside.way[fork:], outside.name, unless, outside.view) is not None:
        return None
    sure = out[0] == loop.lineno or _is_endless(inside, at, loop) or has_more_rounds(inside, outside, at, loop)
    flag = stop_flag(program_files(snapshot, inside.way[::-1]), here.file, *out)
    if not sure and flag is None:
        return None
    by = "" if out[0] == loop.lineno else f" by line {out[0]}"
    left = f"the loop of line {loop.lineno}{by} ({text}){f', which {flag.sets}' if flag is not None else ''}"
    agree = (
        f"{f'{flag.why} ' if flag is not None else ''}Agree before line {out[0]}: all_reduce() the flag (MAX), or "
        f"broadcast it from one rank, so that all leave in the same round.{_barrier_words(inside)}"
    )
    if not sure:
        return Parting(f"{capital(outside.name)} may have left {left}; {inside.name} was still in it. {agree}")
    values = tested_words(inside, outside, at, loop, out[1])
    plain = flag is None and not any(isinstance(item, ast.BoolOp) for item in nodes_of(out[1]))
    number = local_number(snapshot, inside.way[::-1], len(inside.way) - 1 - at, *out) if plain else None
    said = subject = f"{outside.name} had left {left}{values}"
    if number is not None and not values:
        subject += f", by {own_words(number, inside, outside, at)}"
        said += f", by a `{number.name}` of its own"
    came = tested(inside, outside, at, out[1], out[0], loop) if flag is None else None
    if came is not None and came.theirs and not came.mine and came.reason is not None:
        left_it = f"{capital(outside.name)} had left {left}; {inside.name} was still in it"
        return Parting(f"{left_it}. {came.reason}", subject=subject, one_rank=True)
    if number is not None:
        agree = f"{capital(number.advice)}{_barrier_words(inside)}"
    return Parting(f"{capital(said)}; {inside.name} was still in it. {agree}", subject=subject)


def _is_endless(side: Side, at: int, loop: Loop) -> bool:
    """Whether it has as many rounds on all ranks: `while True`, or a range that the program gives as a number."""
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant)
    if not isinstance(loop.iter, ast.Call) or called_name(loop.iter) not in ("range", "count"):
        return False
    frames = side.way[::-1]
    slice_ = Slice(side.view.process.snapshot, frames)
    spot = slice_.spot(len(frames) - 1 - at)
    made = [slice_.made(item, spot, calls=True).node for item in loop.iter.args] if spot is not None else [None]
    return all(isinstance(item, ast.Constant) for item in made)


def _barrier_words(side: Side) -> str:
    """That the barrier of each round shares nothing."""
    calls = [item for item in side.view.process.snapshot.collectives if item.group == side.call.group]
    last = next(
        (item for item in reversed(calls) if item.op == "barrier" and item.sequence_nr < side.call.sequence_nr), None
    )
    frame = place_of(last) if last is not None else None
    near = last is not None and side.call.sequence_nr - last.sequence_nr <= _NEAR
    return f" The barrier() of line {frame.line} does not share it." if frame is not None and near else ""


def _rounds_source(inside: Side, at: int, loop: Loop) -> SizeSource | None:
    """Where what the loop goes through depends on the rank, in the same file."""
    frames = inside.way[::-1]
    depth = len(frames) - 1 - at
    source = rounds_source(Slice(inside.view.process.snapshot, frames), depth, loop)
    return source if source is not None and source.spot.file == frames[depth].file else None


def _skipped(one: Side, other: Side, at: int) -> Parting | None:
    """One rank came to a call that the other one passed by."""
    if len(one.way) <= at:
        return None
    snapshot, elsewhere = one.view.process.snapshot, other.way[at].line if len(other.way) > at else None
    caught = quiet_handler(snapshot, one.way[at:], other.name, elsewhere, other.view)
    if caught is not None:
        return Parting(caught, subject=_fewer_calls(one, other, at, elsewhere))
    for position in range(len(one.way) - 1, at - 1, -1):
        frame = one.way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for item, around in deciding_ifs(tree, frame.line):
            text = quoted(snapshot, frame, item.lineno)
            same = elsewhere is not None and position == at and not (around and not spans(item, elsewhere))
            if text is None or same:
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
            known = _of_one_rank(one.view, one.way, position, item)
            if came is not None and came.values and (known is None or f"`{known.name}`" not in came.values):
                return _of_values(came, f"{words}, and {other.name} passed it by", item, text, tree)
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
            )
    return None


def _of_values(came: Tested, words: str, decides: ast.If, text: str, tree: ast.Module) -> Parting:
    """The values that variables of an `if` had on both ranks tell that it decided."""
    advice = came.reason or f"{came.values}: {change_of_test(decides, tree)}"
    return Parting(
        f"{words}: {advice}", subject=f"{came.values}, which line {decides.lineno} ({text}) asks for", one_rank=True
    )


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
            known = _of_one_rank(view, way, position, item)
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
            known = _of_one_rank(view, way, position, item)
            if known is not None and text is not None:
                return f"`{known.name}` of line {item.lineno} ({text}) {known.subject}", capital(known.advice)
    return None


def _of_one_rank(
    view: ProcessView, way: Sequence[PythonFrame], position: int, decides: ast.If
) -> OneRankValue | RankObject | None:
    depth = len(way) - 1 - position
    return decided_by_rank(view.process.snapshot, way[::-1], depth, decides.lineno, decides.test)


def _ends(loop: Loop) -> Iterator[ast.If]:
    """The `if` statements that end it, by `break`."""
    for item in _of_loop(loop):
        if isinstance(item, ast.If) and any(isinstance(part, ast.Break) for part in item.body):
            yield item


def _of_loop(node: ast.AST) -> Iterator[ast.AST]:
    """What belongs to a loop, without the loops inside."""
    for item in _children(node):
        yield item
        if not isinstance(item, LOOPS):
            yield from _of_loop(item)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Children, without functions and classes."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    return (item for item in ast.iter_child_nodes(node) if not isinstance(item, functions))


def _and(words: str | None) -> str:
    return f" {words}" if words is not None else ""
