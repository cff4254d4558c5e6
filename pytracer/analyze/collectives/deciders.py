"""What alone can have decided that one of two ranks left out a call that the other one makes in the same round."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.collectives.call_sites import calls_by_site, calls_of_group, site_of, stacks_of
from pytracer.analyze.collectives.deciding_tests import SAME
from pytracer.analyze.collectives.differing_bounds import equal_heads
from pytracer.analyze.collectives.held_counts import caught_none
from pytracer.analyze.collectives.paired_branches import is_paired
from pytracer.analyze.collectives.quiet_handlers import handlers_that_leave, quiet_handler
from pytracer.analyze.collectives.rounds import is_fixed
from pytracer.analyze.collectives.same_rounds import has_same_rounds
from pytracer.analyze.collectives.ways import Side, aligned, completed, in_step, parted
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.gradients import gradient_tested, is_over_parameters
from pytracer.analyze.evidence.syntax.loops import LOOPS, Loop, deciding_ifs, last_of, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.evidence.syntax.tries import hushes
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_CHOICES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
# What only hands a call on (torch 2.13).
_PASSING = Pattern(
    r"/torch/(?:nn/modules/(?:module|container)|nn/parallel/distributed|utils/_contextlib|_compile|autograd/function)\.py$"
    r"|/torch/_dynamo/|/contextlib\.py$|/functools\.py$|/pytracer/record/|/typing_extensions\.py$"
)
_NO_SYNC = "no_sync("


class Decider(msgspec.Struct, frozen=True):
    """`node`: of the file of `frame`, whose function it is in. `around`: of an `if`, whether the call is below it.

    Of an `except`: whether the call is in its `try`.
    """

    frame: PythonFrame
    tree: ast.Module
    node: ast.If | Loop | ast.ExceptHandler
    around: bool = True


Deciding = tuple[Side, Side, Decider]  # the rank that calls, that left it out, and what can have decided that


def only_decider(found: Sequence[Deciding]) -> Deciding | None:
    """Of all that can have decided that two ranks are at different calls, what alone can."""
    return found[0] if len(found) == 1 and not _ends_itself(found[0][2]) else None


def all_deciders(one: Side, other: Side) -> list[Deciding]:
    """What can have decided that two ranks are at different calls; none where that is not known."""
    one, other = completed(one, other)
    found = [(side, beside, _between(side, beside)) for side, beside in ((one, other), (other, one))]
    if any(items is None for _, _, items in found):
        return []
    return [(side, beside, item) for side, beside, items in found for item in items or ()]


def deciders(one: Side, other: Side) -> list[Decider] | None:
    """The conditions, loops and handlers between where two ranks part and the call of `one`, which the other left out.

    None where something else may have decided, or where the ranks may be in different rounds.
    """
    return _between(*completed(one, other))


def _between(one: Side, other: Side) -> list[Decider] | None:
    """See deciders(); of ways that are completed."""
    inside, outside = aligned(one, other)
    at = parted(inside.way, outside.way)
    if at is None or not _in_step(inside, outside) or is_led_by_library(inside, at):
        return None
    snapshot, elsewhere = inside.view.process.snapshot, outside.way[at].line if len(outside.way) > at else None
    found: list[Decider] = []
    same = equal_heads(inside, outside).loops if at < len(inside.way) else frozenset()
    for position in range(at, len(inside.way)):
        frame = inside.way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None or decides_itself(tree, frame.line, called_by(inside, position)):
            return None
        if _NO_SYNC in ast.unparse(scope_of(tree, frame.line)):
            return None
        beside = elsewhere if position == at else None
        found += [
            item
            for item in _of_frame(frame, tree, frame.line, beside)
            if not isinstance(item.node, LOOPS)
            or ends_early(item.node)
            or not ((frame.file, item.node.lineno) in same or has_same_rounds(inside, outside, position, item.node))
        ]
        found += [
            Decider(frame, tree, *item)
            for item in handlers_that_leave(tree, frame.line, beside)
            if not (frame.file is not None and caught_none(outside.view, frame.file, tree, item[0]))
        ]
    return _of_round(found, inside.way[-1]) if found and is_within_round(inside) else found


def decider_in_round(inside: Side, other: str) -> Decider | None:
    """The only one of what is in the innermost loop around the call, whose round another rank took part in."""
    snapshot, frame = inside.view.process.snapshot, inside.way[-1] if inside.way else None
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    if quiet_handler(snapshot, inside.way, other) is not None or not loops_around(tree, frame.line):
        return None
    if decides_itself(tree, frame.line, inside.call.op):
        return None
    found = _of_round([*_of_frame(frame, tree, frame.line, None)], frame)
    return found[0] if len(found) == 1 and not _ends_itself(found[0]) else None


def is_led_by_library(side: Side, at: int) -> bool:
    """Whether a library decides between the lines of the program, from that in the function of a position on."""
    inner = len(side.way) - 1 - at  # of the lines inside of that function
    for stack in stacks_of(side.view):
        own = [number for number, frame in enumerate(stack) if not is_library_file(frame.file)]
        if side.way[-1] not in stack or not 0 <= inner < len(own):
            continue
        between = stack[own[0] : own[inner]]
        return any(is_library_file(item.file) and not _PASSING.search(item.file or "") for item in between)
    return False


def called_by(side: Side, position: int) -> str:
    """What the line of a frame calls."""
    inner = side.way[position + 1 : position + 2]
    return (inner[0].function or "").rpartition(".")[2] if inner else side.call.op


def decides_itself(tree: ast.Module, line: int, name: str) -> bool:
    """Whether the line calls it in a comprehension, behind `and`, in a choice, or below a `case`."""
    on_line = [item for item in nodes_of(tree) if isinstance(item, (ast.expr, ast.stmt)) and spans(item, line)]
    if any(isinstance(item, (ast.If, *LOOPS)) and item.lineno == item.body[0].lineno == line for item in on_line):
        return True  # `if late: dist.barrier()`
    withs = [item for item in on_line if isinstance(item, (ast.With, ast.AsyncWith))]
    if any(isinstance(item, ast.Match) for item in on_line) or any(hushes(item) for item in withs):
        return True
    calls = [item for item in on_line if isinstance(item, ast.Call)]
    named = [item for item in calls if called_name(item) == name] or calls
    choices = [item for item in on_line if isinstance(item, _CHOICES)]
    return any(any(part is call for part in nodes_of(item)) for item in choices for call in named)


def _ends_itself(item: Decider) -> bool:
    return isinstance(item.node, LOOPS) and ends_early(item.node)


def _in_step(one: Side, other: Side) -> bool:
    """Whether both called from the same lines before; what is recorded may also begin with these two calls."""
    begun = all(calls_by_site(side.view, side.call.group) is not None for side in (one, other))
    return in_step(one, other, least=0 if begun else 2)


def _of_frame(frame: PythonFrame, tree: ast.Module, line: int, elsewhere: int | None) -> Iterator[Decider]:
    """`elsewhere`: where the other rank is in the same function; what is around both lines decides nothing."""
    loops = [item for item in loops_around(tree, line) if elsewhere is None or not spans(item, elsewhere)]
    for loop in loops:
        if ends_early(loop) or not (is_fixed(loop) or is_over_parameters(loop)):
            yield Decider(frame, tree, loop)
    for item, around in deciding_ifs(tree, line):
        leaves = None if around else last_of(item.body)
        if SAME.search(ast.unparse(item.test)) or isinstance(leaves, ast.Raise) or is_paired(tree, item, line):
            continue
        if elsewhere is not None and around and spans(item, elsewhere):
            continue
        if elsewhere is not None and elsewhere > line and isinstance(leaves, ast.Return):
            continue
        yield Decider(frame, tree, item, around)


def is_within_round(side: Side) -> bool:
    """Whether its call is not the first of a round of the innermost loop around it.

    By the step of the optimizer, in which the loop runs once; without one, by the sizes of earlier calls, where these
    come in rounds.
    """
    own = calls_from(side, side)
    if not own or own[-1].sequence_nr != side.call.sequence_nr - 1:
        return False
    if side.call.step is not None:
        mine = [item for item in own if item.step == side.call.step]
        return bool(mine) and _passed(side.call) not in [_passed(item) for item in mine]
    passed = [_passed(item) for item in own]
    for length in range(1, len(passed) // 2 + 1):
        if all(passed[n] == passed[n - length] for n in range(length, len(passed))):
            return len(passed) % length != 0
    return False


def calls_from(side: Side, like: Side) -> list[Collective]:
    """Earlier calls of a rank from the line of the call of `like`, in order."""
    found = (
        item
        for item in calls_of_group(side.view, like.call.group)
        if item.sequence_nr < like.call.sequence_nr and site_of(item) == site_of(like.call)
    )
    return sorted(found, key=lambda item: item.sequence_nr)


def _passed(call: Collective) -> tuple[tuple[int, ...], str | None]:
    return call.sizes, call.dtype


def _of_round(found: list[Decider], frame: PythonFrame) -> list[Decider]:
    """Of those only what is in the innermost loop around the line."""
    tree = next((item.tree for item in found if item.frame == frame), None)
    loops = loops_around(tree, frame.line) if tree is not None and frame.line is not None else []
    if not loops:
        return found
    return [item for item in found if item.frame == frame and spans(loops[-1], item.node.lineno)]


def ends_early(loop: Loop) -> bool:
    """Whether something in it may end it before its rounds are over."""
    return any(isinstance(item, (ast.Break, ast.Return)) for item in own_nodes(loop))


def calls_it(item: Decider, side: Side) -> bool:
    """Whether the program's own line calls the collective, in the function of the condition or loop."""
    frame = side.way[-1]
    return item.frame == frame and frame.line is not None and side.call.op in [
        called_name(call) for call in calls_on(item.tree, frame.line)
    ]  # fmt: skip


def is_about_gradient(item: Decider) -> bool:
    """Whether the call is left out where a gradient is None."""
    if not isinstance(item.node, ast.If):
        return False
    line = item.frame.line or 0
    below = item.around and any(spans(part, line) for part in item.node.body)
    scope = scope_of(item.tree, item.node.lineno)
    return gradient_tested(item.node.test, scope, item.node.lineno, absent=not below)
