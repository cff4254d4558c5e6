"""Ranks that parted by a loop: one is in it still, the other one has left it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.deciders import Decider, called_by
from pytracer.analyze.collectives.deciding_tests import DECIDE
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.differing_bounds import differing_bound
from pytracer.analyze.collectives.local_numbers import local_number, number_at, own_words
from pytracer.analyze.collectives.one_rank_exits import one_rank_exit
from pytracer.analyze.collectives.one_rank_states import one_rank_state
from pytracer.analyze.collectives.one_rank_tests import came_out_alike, one_rank_words, values_of_both
from pytracer.analyze.collectives.parting import Parting, fewer_calls, of_one_rank, of_values
from pytracer.analyze.collectives.quiet_handlers import quiet_handler
from pytracer.analyze.collectives.rank_objects import decided_by_rank
from pytracer.analyze.collectives.rounds import batches_of, join_words
from pytracer.analyze.collectives.stop_flags import stop_flag, way_out
from pytracer.analyze.collectives.tested_values import tested, tested_words
from pytracer.analyze.collectives.used_up_loops import has_more_rounds, is_in_later_round, used_up_loop
from pytracer.analyze.collectives.ways import Side, in_step, parted, quoted
from pytracer.analyze.evidence.slicing.by_rank import SizeSource, rounds_source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.loops import LOOPS, Loop, deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame

_RANK = Pattern(r"\b\w*rank\w*\b|\bworld_?size\b", re.IGNORECASE)
_NEAR = 8  # collectives of a round
_ROUNDS = (
    "make it the same on all ranks (drop what is left over, or pad it; DistributedDataParallel's join() allows it to "
    "differ where DDP alone calls). "
)
_OR_LEFT_OUT = "Or the rounds are the same, and a call inside is left out in some (no_sync(), a branch): count both."


def left_loop(inside: Side, outside: Side, at: int) -> Parting | None:
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
        return Parting(f"{capital(words)}. {skips}", subject=fewer_calls(inside, outside, at))
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
            known = of_one_rank(inside.view, inside.way, position, item) if text is not None else None
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
    owners = {id(part.value) for part in asked if isinstance(part, ast.Attribute)}
    made = [slice_.made(item, spot, calls=True).node for item in asked if id(item) not in owners]
    return not any(
        (isinstance(part, ast.Call) and not (part is item and called_name(part) == "add_argument")) or is_of_rank(part)
        for item in made
        for part in nodes_of(item)
    )


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
    return of_values(found, words, item, text, tree)


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
    sure = sure or (_is_of_settings(inside, at, loop) and is_in_later_round(inside, outside, at, loop))
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
