"""Where two ranks of one program parted: the function in which they are at different lines, and what decides there.

Their stacks are alike from the outside in, up to one function. What lies between its two lines in the source - a loop
that one rank left, an `except` that goes on, an `if` - is what came out differently.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytracer._library_files import is_library_file
from pytracer._text import capital, shortened
from pytracer.analyze.collectives.call_sites import site_of, stacks_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.rank_branches import branch_words
from pytracer.analyze.collectives.stop_flags import stop_flag, way_out
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.slicing.by_rank import SizeSource, rounds_source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS, Loop, deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective, Snapshot
from pytracer.report.job import PythonFrame

_RANK = re.compile(r"\b\w*rank\w*\b|\bworld_?size\b", re.IGNORECASE)
_NEAR = 8  # collectives of a round
_LONGEST = 80  # characters of a quoted line
_DECIDE = "let one rank decide and broadcast it, or all_reduce() the flag, so that all take the same way."
DRAWN = re.compile(r"\brand\w*\s*\(|random|bernoulli|\bchoice\(|uniform\(")
_SEEDS = (
    "it draws from a generator of each rank's own: give it the same seed on all ranks, one of its own if the data "
    "needs different ones, or broadcast what is drawn."
)
_EXITS = ("sys.exit", "exit", "os._exit", "os.abort", "quit")
_EMPTY = (
    "a rank with nothing in it leaves out what the others wait for. Let it take part, too, with an empty or neutral "
    "tensor (zeros, a count of 0), or give every rank something."
)
_ROUNDS = (
    "make it the same on all ranks (drop what is left over, or pad it; DistributedDataParallel's join() allows it to "
    "differ). Or the rounds are the same, and a call inside is left out in some (no_sync(), a branch): count both."
)


@dataclass(frozen=True)
class _Side:
    """A rank, and the lines of its program that led to the call, the outermost first."""

    view: ProcessView
    way: tuple[PythonFrame, ...]
    call: Collective

    @property
    def name(self) -> str:
        return f"rank {self.view.process.rank}"


@dataclass(frozen=True)
class Parting:
    """What to say of it. `inferred`: only that one rank had left a loop; counts of its calls say more than that.

    `subject`: the same for the headline, where nothing else can have happened.
    """

    advice: str
    inferred: bool = False
    subject: str | None = None


def find_parting(first: ProcessView, mine: Collective, second: ProcessView, theirs: Collective) -> Parting | None:
    """What decided that the two ranks are at different lines, as far as the source shows it.

    Args:
        first: a rank.
        mine: the call that it stands in, or that failed.
        second: another one.
        theirs: its call.
    """
    sides = _aligned(_Side(first, way_to(first, mine), mine), _Side(second, way_to(second, theirs), theirs))
    at = _parted(sides[0].way, sides[1].way)
    if at is None:
        return None
    both = (sides, sides[::-1])
    for look in (_in_handler, _left_loop, _skipped):
        found = next((item for one, other in both if (item := look(one, other, at)) is not None), None)
        if found is not None:
            return found
    return None


def way_to(view: ProcessView, call: Collective) -> tuple[PythonFrame, ...]:
    """The program's frames, the outermost first; the call's own line alone where the rank did not end in it."""
    at = place_of(call)
    for stack in stacks_of(view):
        own = [frame for frame in stack if not is_library_file(frame.file)]
        if at is None or at in own:
            return tuple(reversed(own))
    return _in_function(next(stacks_of(view), ()), at) if at is not None else ()


def _in_function(stack: Sequence[PythonFrame], at: PythonFrame) -> tuple[PythonFrame, ...]:
    """Of a call that was awaited later in the same function (`work.wait()`), the frames that led there."""
    own = [frame for frame in reversed(stack) if not is_library_file(frame.file)]
    same = [number for number, frame in enumerate(own) if (frame.file, frame.function) == (at.file, at.function)]
    return (*own[: same[-1]], at) if same else (at,)


def _aligned(one: _Side, other: _Side) -> tuple[_Side, _Side]:
    """Of a rank whose stack is not known, its one line beside the same function of the other rank."""
    if len(one.way) > 1 and len(other.way) > 1:
        return one, other
    return _beside(one, other), _beside(other, one)


def _beside(one: _Side, other: _Side) -> _Side:
    if len(other.way) != 1 or len(one.way) < 2:
        return one
    single = other.way[0]
    same = (at for at, frame in enumerate(one.way) if (frame.file, frame.function) == (single.file, single.function))
    return replace(one, way=one.way[next(same, 0) :])


def _parted(mine: Sequence[PythonFrame], theirs: Sequence[PythonFrame]) -> int | None:
    """The position of the function in which both are, at different lines; or that only one of them is in."""
    for at, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if (one.file, one.function) != (other.file, other.function) or None in (one.line, other.line):
            return None
        if one.line != other.line:
            return at
    shorter = min(len(mine), len(theirs))
    return shorter if shorter and len(mine) != len(theirs) else None


def _in_handler(one: _Side, other: _Side, at: int) -> Parting | None:
    """One rank is in a handler of a signal, which the interpreter called between two lines of its own."""
    snapshot = one.view.process.snapshot
    for caller, frame in list(zip(one.way, one.way[1:], strict=False))[at:] if len(one.way) > at + 1 else ():
        tree, name = syntax_tree(snapshot, caller), (frame.function or "").rpartition(".")[2]
        if tree is None or caller.file != frame.file or caller.line is None:
            continue
        line = _handler_line(tree, name)
        if line is None or any(called_name(item) == name for item in _calls_at(tree, caller.line)):
            continue
        return Parting(
            f"{capital(one.name)} was in {name}(), a signal's handler (line {line}): the signal came to {one.name} "
            f"and not to {other.name}. A handler must not communicate: let it set a flag, all_reduce() the flag (MAX) "
            "in each step, and save or leave where all ranks see it set."
        )
    return None


def _handler_line(tree: ast.Module, name: str) -> int | None:
    """Of `signal.signal(signal.SIGUSR1, save)`."""
    for item in ast.walk(tree):
        if not isinstance(item, ast.Call) or len(item.args) < 2:
            continue
        sets = ast.unparse(item.func) in ("signal.signal", "signal")
        if sets and ast.unparse(item.args[1]).rpartition(".")[2] == name:
            return item.lineno
    return None


def _calls_at(tree: ast.Module, line: int) -> list[ast.Call]:
    return [
        item for item in ast.walk(tree) if isinstance(item, ast.Call) and item.lineno <= line <= (item.end_lineno or 0)
    ]


def _left_loop(inside: _Side, outside: _Side, at: int) -> Parting | None:
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
    loops = [item for item in loops_around(tree, here.line) if (item.end_lineno or 0) < there.line]
    if not loops:
        again = any((item.end_lineno or 0) >= there.line for item in loops_around(tree, here.line))
        return _left_call(inside, outside, at) if here.line < there.line and not again else None
    return _behind(inside, outside, at, loops[0])


def _left_call(inside: _Side, outside: _Side, at: int) -> Parting | None:
    """The rank that is inside is in a loop that something ends, in a function which both have called there."""
    for deeper in range(at + 1, len(inside.way)):
        frame = inside.way[deeper]
        tree = syntax_tree(inside.view.process.snapshot, frame)
        loops = loops_around(tree, frame.line) if tree is not None and frame.line is not None else []
        loop = next((item for item in loops if any(True for _ in _ends(item)) or way_out(item) is not None), None)
        if loop is not None:
            return _behind(inside, outside, deeper, loop)
    return None


def _behind(inside: _Side, outside: _Side, at: int, loop: Loop) -> Parting | None:
    here, snapshot = inside.way[at], inside.view.process.snapshot
    text = quoted(snapshot, here, loop.lineno)
    if text is None:
        return None
    words = f"{outside.name} was behind the loop of line {loop.lineno} ({text}), {inside.name} still in it"
    left = _left_by(inside, outside, at, loop)
    if left is not None:
        return left
    ends = [item for item in _ends(loop) if item.lineno != here.line]
    skips = _quiet(snapshot, inside.way[at:], outside.name)
    if ends:
        shown = " or ".join(f"line {item.lineno} ({quoted(snapshot, here, item.lineno)})" for item in ends[:2])
        said = f"See whether {shown}, which ends it, came out differently: {_DECIDE}{_and(skips)}"
        return Parting(f"{capital(words)}. {said}")
    if skips is not None:
        return Parting(f"{capital(words)}. {skips}")
    source = _rounds_source(inside, at, loop)
    by = f" (line {source.line}: `{short(ast.unparse(source.node))}`)" if source is not None else ""
    more = f"may depend on the rank{by}" if by or _RANK.search(text) else "may differ"
    return Parting(f"{capital(words)}. Its number of rounds {more}: {_ROUNDS}", inferred=True)


def _left_by(inside: _Side, outside: _Side, at: int, loop: Loop) -> Parting | None:
    """Where one condition alone ends the loop, and both ranks had made the same calls before."""
    out, here, snapshot = way_out(loop), inside.way[at], inside.view.process.snapshot
    text = quoted(snapshot, here, out[0]) if out is not None else None
    parted = _parted(inside.way, outside.way)
    if out is None or text is None or here.file is None or parted is None or not _in_step(inside, outside):
        return None
    unless = outside.way[parted].line if len(outside.way) > parted else None
    if _quiet(snapshot, inside.way[parted:], outside.name, unless=unless) is not None:
        return None
    sure = out[0] == loop.lineno or _is_endless(inside, at, loop)
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
    said = f"{outside.name} had left {left}"
    return Parting(f"{capital(said)}; {inside.name} was still in it. {agree}", subject=said)


def _in_step(one: _Side, other: _Side) -> bool:
    """Whether both called from the same lines before, as far back as both recordings go."""
    sites = [
        {item.sequence_nr: site_of(item) for item in side.view.process.snapshot.collectives
         if item.group == side.call.group and not item.point_to_point and item.sequence_nr < side.call.sequence_nr}
        for side in (one, other)
    ]  # fmt: skip
    both = sites[0].keys() & sites[1].keys()
    return one.call.sequence_nr == other.call.sequence_nr and len(both) > 1 and all(
        sites[0][number] == sites[1][number] for number in both
    )  # fmt: skip


def _is_endless(side: _Side, at: int, loop: Loop) -> bool:
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


def _barrier_words(side: _Side) -> str:
    """That the barrier of each round shares nothing."""
    calls = [item for item in side.view.process.snapshot.collectives if item.group == side.call.group]
    last = next(
        (item for item in reversed(calls) if item.op == "barrier" and item.sequence_nr < side.call.sequence_nr), None
    )
    frame = place_of(last) if last is not None else None
    near = last is not None and side.call.sequence_nr - last.sequence_nr <= _NEAR
    return f" The barrier() of line {frame.line} does not share it." if frame is not None and near else ""


def _rounds_source(inside: _Side, at: int, loop: Loop) -> SizeSource | None:
    """Where what the loop goes through depends on the rank, in the same file."""
    frames = inside.way[::-1]
    depth = len(frames) - 1 - at
    source = rounds_source(Slice(inside.view.process.snapshot, frames), depth, loop)
    return source if source is not None and source.spot.file == frames[depth].file else None


def _skipped(one: _Side, other: _Side, at: int) -> Parting | None:
    """One rank came to a call that the other one passed by."""
    if len(one.way) <= at:
        return None
    snapshot, elsewhere = one.view.process.snapshot, other.way[at].line if len(other.way) > at else None
    caught = _quiet(snapshot, one.way[at:], other.name, unless=elsewhere)
    if caught is not None:
        return Parting(caught)
    for position in range(len(one.way) - 1, at - 1, -1):
        frame = one.way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for item, around in deciding_ifs(tree, frame.line):
            text = quoted(snapshot, frame, item.lineno)
            same = elsewhere is not None and position == at and not (around and not _contains(item, elsewhere))
            if text is None or same:
                continue
            words = branch_words(frame, text, item.lineno, around)
            empty = _is_no_list(item.test, scope_of(tree, item.lineno), item.lineno)
            what = _EMPTY if empty else _what_to_do(item.test)
            return Parting(f"{words}, and {other.name} passed it by: {what}")
    return None


def passed_by_words(view: ProcessView, call: Collective, other: str) -> str | None:
    """The closest `if` on the way to a call that another rank, which never came there, may have left by."""
    for frame in reversed(way_to(view, call)):
        tree = syntax_tree(view.process.snapshot, frame)
        for item, around in deciding_ifs(tree, frame.line) if tree is not None and frame.line is not None else ():
            text = quoted(view.process.snapshot, frame, item.lineno)
            if text is None or "__name__" in text:
                continue
            words = branch_words(frame, text, item.lineno, around)
            empty = tree is not None and _is_no_list(item.test, scope_of(tree, item.lineno), item.lineno)
            return f"{words}, and {other} never called it: {_EMPTY if empty else _what_to_do(item.test)}"
    return None


def _is_no_list(test: ast.expr, scope: Scope, line: int) -> bool:
    """`not mine`, of a part of a list, or a list that is made above."""
    name = variable(test.operand) if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    bound = bound_value(scope, name, line) if name is not None else None
    made = bound[1] if bound is not None else None
    if isinstance(made, ast.Subscript):
        return isinstance(made.slice, ast.Slice)
    return isinstance(made, (ast.List, ast.ListComp)) or (
        isinstance(made, ast.Call) and called_name(made) in ("list", "sorted", "glob", "listdir")
    )


def _what_to_do(test: ast.expr) -> str:
    """About an `if` that one rank passed by."""
    if DRAWN.search(ast.unparse(test)) is not None:
        return _SEEDS
    if any(_asks_if_empty(item) for item in ast.walk(test)):
        return _EMPTY
    return f"see whether that came out differently there (files, options, data): {_DECIDE}"


def _asks_if_empty(test: ast.AST) -> bool:
    """`len(x) == 0`, `x.numel() > 0`, `not x.size(0)`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_size(test.operand)
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    number = test.comparators[0]
    return _is_size(test.left) and isinstance(number, ast.Constant) and number.value in (0, 1)


def _is_size(value: ast.expr) -> bool:
    if isinstance(value, ast.Subscript):
        return ast.unparse(value.value).endswith(".shape")
    return isinstance(value, ast.Call) and called_name(value) in ("len", "numel", "size")


def _quiet(snapshot: Snapshot, way: Sequence[PythonFrame], other: str, unless: int | None = None) -> str | None:
    """An `except` around a line of the way that goes on as if nothing were: what it hides from the other ranks.

    `unless`: a line of the first frame's function; a `try` that is around both says nothing.
    """
    for position in range(len(way) - 1, -1, -1):
        frame = way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for item in own_nodes(scope_of(tree, frame.line)):
            if not isinstance(item, ast.Try) or not _within(item.body, frame.line):
                continue
            if position == 0 and unless is not None and _contains(item, unless):
                continue
            handler = next((handler for handler in item.handlers if goes_on(handler)), None)
            if handler is not None:
                return (
                    f"{place_words(frame)} is in a `try` whose `except` (line {handler.lineno}) goes on: an error "
                    f"that {other} alone caught there would cost it this collective. Look for it in that rank's "
                    "output; then let the error end the rank, or all ranks skip together."
                )
    return None


def goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether it may reach its end: nothing raises or ends the process there, or only in some cases."""
    for item in handler.body:
        call = item.value if isinstance(item, ast.Expr) else None
        exits = isinstance(call, ast.Call) and ast.unparse(call.func) in _EXITS
        if isinstance(item, ast.Raise) or exits:
            return False
    return True


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


def _within(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or 0)


def _contains(node: ast.stmt, line: int | None) -> bool:
    return line is not None and node.lineno <= line <= (node.end_lineno or 0)


def quoted(snapshot: Snapshot, frame: PythonFrame, line: int) -> str | None:
    """A line of the frame's file in backticks, cut where it is long; None where it is not known."""
    text = line_text(snapshot, PythonFrame(file=frame.file, line=line, function=frame.function))
    return f"`{shortened(text, _LONGEST)}`" if text is not None else None


def _and(words: str | None) -> str:
    return f" {words}" if words is not None else ""
