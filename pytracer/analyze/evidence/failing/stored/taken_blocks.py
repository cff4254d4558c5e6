"""A block of shared memory that is to be made and is there already: another process made it, or it was left."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._library_files import of_multiprocessing
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.unset_ranks import UnsetRank, unset_rank
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs

_NAME = Pattern(r"'/?([^']+)'$")
_CALLERS = 4


def taken_block(at: FailingLine) -> str | None:
    """`SharedMemory(name, create=True)`."""
    call = _call(at)
    if call is None:
        return None
    found = _NAME.search(at.message)
    name = f"The shared memory `{found[1]}`" if found is not None else "The shared memory"
    begin = f"{name} is already there when {at.here(at.line)} (`{source(call)}`) creates it"
    unset = _unset(at, call)
    if unset is not None:
        return (
            f"{begin}: {_takes(at, unset)}, and so does each process that is started like it: several of them all "
            "create the block; of a single one, an earlier run has left it. Set RANK, LOCAL_RANK and WORLD_SIZE in "
            "os.environ first in each process that is started, or hand the rank on to this line: one process creates "
            "the block, the others attach to it behind a barrier."
        )
    return (
        f"{begin}: another process of this job has made it, or one that ended before left it behind. Let one process "
        "create it (create=True on rank 0 only, a barrier, then the others attach with create=False), unlink() it at "
        "the end, and give it a name that no other run has."
    )


def taken_block_subject(at: FailingLine) -> str | None:
    """For the headline."""
    call = _call(at)
    unset = _unset(at, call) if call is not None else None
    if unset is not None:
        return f"that block of shared memory is there already; {_takes(at, unset)}"
    return "a block of shared memory of that name is there already" if call is not None else None


def _takes(at: FailingLine, unset: UnsetRank) -> str:
    line = at.place(unset.spot, unset.node.lineno)
    return f"{unset.name} is not set in this process, which {line} then takes for {unset.default}"


def _call(at: FailingLine) -> ast.Call | None:
    """The one that makes it, or that calls what does."""
    there = (at.stack[0].file or "").endswith(of_multiprocessing("shared_memory"))
    return at.only(ast.Call) if there and at.kind == "FileExistsError" else None


def _unset(at: FailingLine, call: ast.Call) -> UnsetRank | None:
    spot = at.slice.spot(0)
    return unset_rank(at, _tests(at, call, spot)) if spot is not None else None


def _tests(at: FailingLine, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What decides that this process creates it: the argument, or else the conditions around the lines."""
    create = argument_at(call, 1, "create") if called_name(call) == "SharedMemory" else None
    if create is not None and not isinstance(create, ast.Constant):
        yield create, spot
        return
    for depth in range(min(len(at.frames), _CALLERS)):
        place = at.slice.spot(depth)
        for item, _ in deciding_ifs(place.tree, place.line) if place is not None else ():
            if place is not None:
                yield item.test, place
