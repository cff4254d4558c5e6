"""Lines that ranks came to a different number of times: the loop around them, and what leaves them out in some."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer._text import count_words
from pytracer.analyze.collectives.call_sites import Site, calls_of_group, site_of
from pytracer.analyze.collectives.differing_bounds import EqualHeads
from pytracer.analyze.collectives.own_lines import calls_of_line
from pytracer.analyze.collectives.quiet_handlers import goes_on
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.slicing.by_rank import rounds_source
from pytracer.analyze.evidence.slicing.own_batches import OwnBatches, own_batches
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans
from pytracer.analyze.naming import line_in, short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Unit
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_NO_SYNC = "no_sync("
_LONGEST = 60
_SAME_DECISION = "Decide that by what is the same on all ranks (the number of the round), or all_reduce() the decision."
_FORWARDS = ("forward", "__call__")
_SAME_NUMBER = "Give all ranks as many: drop or pad the rest"
_JOIN = ", or put that loop alone below DDP's join(), which answers what DDP itself calls there"
_OWN = frozenset(
    {"all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "all_to_all", "all_to_all_single"}
    | {"barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce"}
    | {"reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list"}
)
_SAME_RANGE = "Give its range() the same numbers on all ranks."
_SAME_BEGIN = (
    "Begin at the same on all ranks: what one rank alone has, such as a folder or a file, it must broadcast "
    "(broadcast_object_list())."
)
_OF_MODELS = ("parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children")
_UNKNOWN = EqualHeads()
_LEAVING = (ast.Continue, ast.Return)
_BY_RANK = Pattern(r"\b\w*rank\w*\b", re.IGNORECASE)


def site_words(site: Site) -> str:
    """`train.py:12 in step`."""
    return f"{short_file(site[0])}:{site[2]} in {site[1]}"


def counted_words(site: Site, counts: Sequence[tuple[Side, int]], *, here: str | None = None) -> str:
    """`train.py:12 in step had called collectives 2 times on rank 0 and 3 times so far on rank 1`.

    Args:
        site: The line.
        counts: Ranks, and how often each called there; `so far` of one that was in such a call.
        here: The file that is spoken of, in which a line needs no other words.
    """
    place = site_words(site) if here is None else line_in(site[0], site[2], here)
    said = " and ".join(
        f"{count_words(count, 'time')}{' so far' if site_of(side.call) == site else ''} on {side.name}"
        for side, count in counts
    )
    return f"{place} had called collectives {said}"


def rounds_words(
    snapshot: Snapshot,
    way: Sequence[PythonFrame],
    site: Site,
    alike: bool | None = None,
    equal: EqualHeads = _UNKNOWN,
) -> str:
    """Why that may be, after `counted_words`, with what to do. What is not known is named as a choice.

    Args:
        snapshot: A rank.
        way: The frames that led to the line there, the outermost first.
        site: The line.
        alike: Whether both ranks called as many in each step that they finished; None if that is not known.
        equal: What is known to be the same on both.
    """
    frames = _inside_out(way, site)
    left_out = next((words for frame in frames if (words := _without_sync(snapshot, frame)) is not None), None)
    if left_out is not None:
        return f": {left_out} leaves them out in some rounds. {_SAME_DECISION}"
    loops = (
        item
        for any_ in (False, True)
        for frame in frames
        if (item := _loop(snapshot, frame, any_, frames, equal)) is not None
    )
    found = next(loops, None)
    leaver = next((words for frame in frames if (words := leaver_words(snapshot, frame)) is not None), None)
    if leaver is not None and all(_loop(snapshot, frame, False, frames, equal) is None for frame in frames):
        return f": see whether {leaver} came out differently in some rounds. {_SAME_DECISION}"
    if found is None:
        return (
            ": see whether a loop around it has another number of rounds there, or an early return, a `continue` or a "
            f"caught error left it out. {_same_number(snapshot, frames[0])}"
        )
    loop, made, same_rounds = found
    more = "" if alike else ", or called more"
    other = f", or {leaver} left it out in one" if leaver is not None else f", or one left it out{more}"
    begun = next((head for frame in frames if (head := _resumed(snapshot, frame, equal)) is not None), None)
    if begun is not None:
        where, begins = begun
        inner = "" if where == loop else f", or that of {loop} has more rounds"
        return f": see whether the loop of {where} {begins}{inner}{other}. {_SAME_BEGIN} {same_rounds}"
    return f": see whether the loop of {loop} has more rounds there{other}. {same_rounds}{made}"


def _resumed(snapshot: Snapshot, frame: PythonFrame, equal: EqualHeads) -> tuple[str, str] | None:
    """A loop around the line that begins at what a call gives, as one that goes on with a checkpoint does.

    `` line 50 (`for epoch in range(start, n):`) ``, `` begins at another `start` there (line 48: `...`) ``.
    """
    tree = syntax_tree(snapshot, frame)
    for loop in loops_around(tree, frame.line) if tree is not None and frame.line is not None else ():
        call = None if isinstance(loop, ast.While) else loop.iter
        if not isinstance(call, ast.Call) or called_name(call) != "range" or len(call.args) < 2 or tree is None:
            continue
        name = variable(call.args[0])
        other = name is not None and name not in equal.names
        bound = bound_value(scope_of(tree, loop.lineno), name or "", loop.lineno) if other else None
        if bound is None or bound[1] is None or not any(isinstance(item, ast.Call) for item in nodes_of(bound[1])):
            continue
        made, text = quoted(snapshot, frame, bound[0]), quoted(snapshot, frame, loop.lineno)
        return f"line {loop.lineno} ({text})", f"begins at another `{name}` there (line {bound[0]}: {made})"
    return None


def _inside_out(way: Sequence[PythonFrame], site: Site) -> list[PythonFrame]:
    """The line, and those that led there, the innermost first."""
    frames = [PythonFrame(file=site[0], function=site[1], line=site[2])]
    return frames + [frame for frame in reversed(way) if (frame.file, frame.function) != (site[0], site[1])]


def skipped_words(snapshot: Snapshot, way: Sequence[PythonFrame], site: Site) -> str | None:
    """What may have left out a line in a round; None where the source shows nothing of that kind."""
    return next(
        (words for frame in _inside_out(way, site) if (words := leaver_words(snapshot, frame)) is not None), None
    )


def leaver_words(snapshot: Snapshot, frame: PythonFrame) -> str | None:
    """`` line 26 (`except ValueError:`) ``: a `continue` or `return` before the line in its loop, or a caught error."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    loops = loops_around(tree, frame.line)
    for item in own_nodes(loops[-1] if loops else scope_of(tree, frame.line)):
        handlers = item.handlers if isinstance(item, ast.Try) else []
        for handler in handlers:
            around = item.body[0].lineno <= frame.line <= (item.body[-1].end_lineno or 0)  # type: ignore[attr-defined]
            leaves = handler.lineno < frame.line and isinstance(handler.body[-1], _LEAVING)
            if leaves or (around and goes_on(handler)):
                return _quoted_line(snapshot, frame, handler.lineno)
        if isinstance(item, ast.If) and loops and item.lineno < frame.line <= (item.body[-1].end_lineno or 0):
            return _quoted_line(snapshot, frame, item.lineno)
        before = isinstance(item, ast.If) and (item.end_lineno or 0) < frame.line
        if isinstance(item, ast.If) and before and isinstance(item.body[-1], _LEAVING):
            return _quoted_line(snapshot, frame, item.lineno)
    return None


def _quoted_line(snapshot: Snapshot, frame: PythonFrame, line: int) -> str:
    text = quoted(snapshot, frame, line)
    return f"line {line} ({text})" if text is not None else f"line {line}"


def calls_within_steps(
    first: ProcessView, second: ProcessView, group: str | None, site: Site
) -> tuple[int, int, int] | bool | None:
    """A step that one rank had finished in which it called fewer from a line than the other: the step, and how many.

    True where they called as many in each step that both finished; None where no such step is recorded.
    """
    if first.step is None and second.step is None:
        return None
    counts = [_by_step(view, group, site) for view in (first, second)]
    last = [max((*count, view.step or 0)) for count, view in zip(counts, (first, second), strict=True)]
    common = sorted(counts[0].keys() & counts[1].keys())
    for step in common:
        mine, theirs = counts[0][step], counts[1][step]
        fewer = 0 if mine < theirs else 1
        if mine != theirs and last[fewer] > step:
            return step, mine, theirs
    return True if any(step < min(last) for step in common) else None


def _by_step(view: ProcessView, group: str | None, site: Site) -> Counter[int]:
    """Collectives that were called before the first step count as those of step 0."""
    return Counter(item.step or 0 for item in calls_of_group(view, group) if site_of(item) == site)


def _without_sync(snapshot: Snapshot, frame: PythonFrame) -> str | None:
    """A `with` around the line, or beside it in the same loop, by which DDP does not synchronize."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    loops = loops_around(tree, frame.line)
    scope = loops[-1] if loops else scope_of(tree, frame.line)
    for item in own_nodes(scope):
        if isinstance(item, (ast.With, ast.AsyncWith)) and any(_NO_SYNC in ast.unparse(part) for part in item.items):
            text = quoted(snapshot, frame, item.lineno)
            if text is not None:
                return f"line {item.lineno} ({text})"
    return None


def _loop(
    snapshot: Snapshot, frame: PythonFrame, any_: bool, frames: Sequence[PythonFrame], equal: EqualHeads
) -> tuple[str, str, str] | None:
    """The innermost one whose rounds may differ, or `any_`; where what it goes through is made; and what to do."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    inner = frames[frames.index(frame) - 1 : frames.index(frame)] if frame in frames else ()
    called = (inner[0].function or "").rpartition(".")[2] if inner else None
    loops = rounds_around(tree, frame.line, called)
    layers = getattr(scope_of(tree, frame.line), "name", "") in _FORWARDS
    loop = next(
        (
            item
            for item in reversed(loops)
            if any_
            or not (is_fixed(item) or (layers and _is_over_own(item)) or (frame.file, item.lineno) in equal.loops)
        ),
        None,
    )
    if loop is None and _has_comprehension(tree, frame.line):
        return f"line {frame.line} ({quoted(snapshot, frame, frame.line)})", "", _same_number(snapshot, frames[0])
    return loop_words(snapshot, frame, loop, frames) if loop is not None else None


def loop_words(
    snapshot: Snapshot, frame: PythonFrame, loop: Loop, frames: Sequence[PythonFrame]
) -> tuple[str, str, str] | None:
    """`` line 54 (`for x in rows:`) ``, where what it goes through is made, and how to have as many rounds on all.

    `frames`: the lines of the program, the innermost first, with that of the loop's function.
    """
    tree, text = syntax_tree(snapshot, frame), quoted(snapshot, frame, loop.lineno)
    if text is None or tree is None:
        return None
    name = None if isinstance(loop, ast.While) else variable(loop.iter)
    bound = bound_value(scope_of(tree, loop.lineno), name, loop.lineno) if name is not None else None
    made = _rounds_by_rank(snapshot, frames[frames.index(frame) :], loop)
    if not made and bound is not None and bound[1] is not None and bound[0] < loop.lineno:
        made = f" `{name}` is made at line {bound[0]} ({quoted(snapshot, frame, bound[0])})."
    return (
        f"line {loop.lineno} ({text})",
        made,
        _SAME_RANGE
        if counts_numbers(loop)
        else _same_number(snapshot, frames[0], batches_of(snapshot, frame, loop, frames)),
    )


def batches_of(snapshot: Snapshot, frame: PythonFrame, loop: Loop, frames: Sequence[PythonFrame]) -> OwnBatches | None:
    """What the loop goes through, where the program makes it by a rule of its own; see loop_words()."""
    return own_batches(Slice(snapshot, frames), frames.index(frame), loop) if frame in frames else None


def _same_number(snapshot: Snapshot, frame: PythonFrame, batches: OwnBatches | None = None) -> str:
    """What to do about other numbers of rounds: join() of DDP answers no collective that a line calls itself."""
    same = batches.advice(frame.file) if batches is not None else _SAME_NUMBER
    return f"{same}{join_words(snapshot, frame)}."


def join_words(snapshot: Snapshot, frame: PythonFrame) -> str:
    """`, or put that loop alone below DDP's join() ...`; empty where the line calls a collective itself, or FSDP."""
    own = any(called_name(item) in _OWN for item in calls_of_line(snapshot, frame))
    return "" if own or snapshot.recorded(Unit) else _JOIN


def _has_comprehension(tree: ast.Module, line: int) -> bool:
    """`[compute_loss(model, x, y) for x, y in loader]`, which calls something in each round."""
    return any(
        isinstance(item, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp))
        and spans(item, line)
        and any(isinstance(part, ast.Call) for part in nodes_of(getattr(item, "elt", None) or item.value))  # type: ignore[union-attr]
        for item in nodes_of(tree)
    )


def _is_over_own(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """`for layer in self.layers`: of a forward() those of the model, as many on all ranks."""
    return not isinstance(loop, ast.While) and any(
        isinstance(item, ast.Name) and item.id == "self" for item in nodes_of(loop.iter)
    )


def _rounds_by_rank(snapshot: Snapshot, frames: Sequence[PythonFrame], loop: Loop) -> str:
    """Where what a loop of the first of the frames goes through may get another length by the rank."""
    source = rounds_source(Slice(snapshot, frames), 0, loop)
    if source is None or source.spot.file != frames[0].file:
        return ""
    return f" Its rounds may depend on the rank (line {source.line}: `{source.text}`)."


def counts_numbers(loop: Loop) -> bool:
    """`for epoch in range(start, epochs)`; not over the length of something."""
    call = None if isinstance(loop, ast.While) else loop.iter
    if not isinstance(call, ast.Call) or called_name(call) != "range":
        return False
    return not any(isinstance(part, ast.Call) for item in call.args for part in nodes_of(item))


def is_fixed(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """`for _ in range(4)`, over the parameters of a model, or `rows[:1]`: with as many rounds on all ranks."""
    call = None if isinstance(loop, ast.While) else loop.iter
    if isinstance(call, ast.Subscript) and isinstance(call.slice, ast.Slice):
        end, begin = call.slice.upper, call.slice.lower
        return begin is None and isinstance(end, ast.Constant) and end.value == 1
    if isinstance(call, ast.Call) and called_name(call) in _OF_MODELS:
        return True
    if not isinstance(call, ast.Call) or called_name(call) != "range":
        return False
    return all(isinstance(item, ast.Constant) for item in call.args)


def _by_rank(snapshot: Snapshot, frame: PythonFrame, scope: Scope, value: ast.AST, line: int) -> str:
    """Of what a loop goes through: the variable in it that is made by the number of the rank."""
    for name in names_of(value):
        bound = bound_value(scope, name, line)
        if bound is not None and bound[1] is not None and bound[0] < line and _BY_RANK.search(ast.unparse(bound[1])):
            return f" of `{name}`, by the rank (line {bound[0]}: {quoted(snapshot, frame, bound[0])})"
    return ""


def rank_order_words(snapshot: Snapshot, frame: PythonFrame | None) -> str | None:
    """A loop around the line that goes through something in an order of the rank's own."""
    tree = syntax_tree(snapshot, frame)
    for loop in loops_around(tree, frame.line) if tree is not None and frame is not None and frame.line else ():
        name = None if isinstance(loop, ast.While) else variable(loop.iter)
        bound = bound_value(scope_of(tree, loop.lineno), name, loop.lineno) if tree is not None and name else None
        if tree is None or frame is None or bound is None or bound[1] is None:
            continue
        said = f"Line {loop.lineno} ({quoted(snapshot, frame, loop.lineno)}) goes through `{name}`, which is made "
        if _BY_RANK.search(ast.unparse(bound[1])):
            return f"{said}by the rank (line {bound[0]}: {quoted(snapshot, frame, bound[0])})"
        by_rank = _by_rank(snapshot, frame, scope_of(tree, loop.lineno), bound[1], bound[0])
        if by_rank:
            return f"{said}at line {bound[0]}{by_rank}"
    return None


def key_order_words(snapshot: Snapshot, frame: PythonFrame) -> str | None:
    """A loop over a dict around the line: it goes in the order in which the keys came."""
    tree = syntax_tree(snapshot, frame)
    for loop in reversed(loops_around(tree, frame.line)) if tree is not None and frame.line is not None else ():
        call = None if isinstance(loop, ast.While) else loop.iter
        owner = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        if not isinstance(call, ast.Call) or called_name(call) not in ("items", "keys", "values") or owner is None:
            continue
        if variable(owner) is not None:
            return (
                f"Line {loop.lineno} ({quoted(snapshot, frame, loop.lineno)}) goes through a dict in the order in "
                f"which its keys came, which is the rank's own if data decides it: go through "
                f"sorted({ast.unparse(owner)})."
            )
    return None
