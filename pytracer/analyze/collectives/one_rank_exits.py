"""A `break` or `return` below a branch on the rank, by which one rank alone leaves a loop before a call in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import capital
from pytracer.analyze.collectives.call_sites import numbered_calls, site_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.rank_branches import RankBranch, rank_branch_of
from pytracer.analyze.collectives.same_rounds import has_same_rounds
from pytracer.analyze.collectives.ways import Side, in_step, quoted
from pytracer.analyze.evidence.syntax.calls import calls_on, passed_values
from pytracer.analyze.evidence.syntax.loops import Loop, breaks
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame


class OneRankExit(msgspec.Struct, frozen=True):
    """`subject`: which rank left what by which line, for the headline; `advice`: what to change."""

    subject: str
    advice: str


def one_rank_exit(inside: Side, outside: Side, at: int, loop: Loop) -> OneRankExit | None:
    """Where nothing else can have led the one rank out of the loop.

    Args:
        inside: The rank that is still in the loop.
        outside: The one that has left it.
        at: Which frame of their ways, the outermost first, has the loop.
        loop: The loop.
    """
    here = inside.way[at]
    tree = syntax_tree(inside.view.process.snapshot, here)
    if tree is None or here.line is None or not in_step(inside, outside):
        return None
    ways = [item for item in own_nodes(loop) if isinstance(item, ast.Return) or breaks(loop, item)]
    before = _is_mid_round(inside)
    if before:
        ways = [item for item in ways if _line(item) < here.line]
    elif not has_same_rounds(inside, outside, at, loop):
        return None
    found = [(item, branch) for item in ways if (branch := _branch(item, inside, outside, here, loop)) is not None]
    if len(found) != len(ways) or not found:
        return None
    (item, branch), word = found[0], type(found[0][0]).__name__.lower()
    where = f"the loop of line {loop.lineno} by the `{word}` of line {_line(item)}, {branch.head_before}"
    call = f", before the {inside.call.op} of line {here.line}" if before else ""
    subject = f"{outside.name} left {where} (line {branch.line}){call}"
    return OneRankExit(
        subject, f"{capital(outside.name)} alone left {where}. {_advice(inside, here, tree, loop, word)}"
    )


def _is_mid_round(inside: Side) -> bool:
    """Whether the call before, which both ranks made, was from another line: then the other did not pass this one."""
    last = numbered_calls(inside.view, inside.call.group).get(inside.call.sequence_nr - 1)
    return last is not None and site_of(last) != site_of(inside.call) and place_of(inside.call) == inside.way[-1]


def _branch(item: ast.AST, inside: Side, outside: Side, here: PythonFrame, loop: Loop) -> RankBranch | None:
    """The branch in the loop that leads the rank alone to a `break` or `return`."""
    frame = PythonFrame(file=here.file, function=here.function, line=_line(item))
    branch = rank_branch_of(outside.view, frame, (outside.number, inside.number))
    return branch if branch is not None and branch.around and spans(loop, branch.line) else None


def _advice(inside: Side, here: PythonFrame, tree: ast.Module, loop: Loop, word: str) -> str:
    line, frame = inside.way[-1].line or 0, inside.way[-1]
    common = next(_common(tree, loop, line), None) if frame == here else None
    text = quoted(inside.view.process.snapshot, frame, common.lineno) if common is not None else None
    if common is not None and text is not None:
        return (
            f"Remove that `{word}`: line {common.lineno} ({text}) ends the loop on all ranks, behind the "
            f"{inside.call.op} of line {line}."
        )
    return (
        f"Set a flag there instead, all_reduce() the flag (MAX) on all ranks behind the branch, and `{word}` by it on "
        "all of them in the same round."
    )


def _common(tree: ast.Module, loop: Loop, line: int) -> Iterator[ast.If]:
    """The `if` behind a line that ends the loop, by what that line shares."""
    shared = {name for call in calls_on(tree, line) for item in passed_values(call) for name in names_of(item)}
    for item in own_nodes(loop):
        ends = isinstance(item, ast.If) and item.lineno > line and any(breaks(loop, part) for part in item.body)
        if ends and isinstance(item, ast.If) and any(variable(part) in shared for part in nodes_of(item.test)):
            yield item


def _line(item: ast.AST) -> int:
    return getattr(item, "lineno", 0)
