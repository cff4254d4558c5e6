"""Where two ranks of one program parted: the function in which they are at different lines, and what decides there.

Their stacks are alike from the outside in, up to one function. What lies between its two lines in the source - a loop
that one rank left, an `except` that goes on, an `if` - is what came out differently.
"""

from __future__ import annotations

import ast

from pytracer._text import capital
from pytracer.analyze.collectives.exchanges import exchange
from pytracer.analyze.collectives.later_rounds import passed_by
from pytracer.analyze.collectives.parted_branches import skipped_call
from pytracer.analyze.collectives.parted_loops import left_loop
from pytracer.analyze.collectives.parting import Parting
from pytracer.analyze.collectives.ways import Side, aligned, completed, parted, way_to
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective


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
    for look in (_in_handler, _of_exchange, _passed_by, left_loop, skipped_call):
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
    known = skipped_call(one, other, at) if found is not None else None
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
