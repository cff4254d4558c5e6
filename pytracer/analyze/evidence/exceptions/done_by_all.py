"""A file operation that works once and that every rank does on the same path: another rank had done it before.

`os.remove(old)`, `shutil.rmtree(folder)`, `os.rename(new, old)`, `os.mkdir(folder)`, where the source proves that all
ranks come to the line, and with the same path. That another rank came through is shown by a collective that it called
behind the line and this rank did not. Ranks of other hosts do not count: their disks may be others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.stored.operations import Operation, failed_operation
from pytracer.analyze.evidence.slicing.alike import is_alike_on_all_ranks
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_questions import ASKS_OF_PATH
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.kin import on_one_machine
from pytracer.analyze.naming import LineWords, name_words
from pytracer.analyze.view import JobView, ProcessView

_ASKS = frozenset({*ASKS_OF_PATH, "listdir", "glob", "iterdir"})


class DoneByAll(msgspec.Struct, frozen=True):
    """`first`: who had done it. `way`: the lines of the callers."""

    at: FailingLine
    operation: Operation
    first: str
    asked: str | None
    way: tuple[LineWords, ...]

    @property
    def subject(self) -> str:
        """Behind the headline."""
        here = f"every rank {self.operation.verb} that {self.operation.kind} there"
        return f"{here}, and {self.first} had probably done so before"

    @property
    def advice(self) -> str:
        """One rank, or a call that may be done twice."""
        line, call = self.at.line, source(self.operation.call)
        way = f", or on the way to it ({list_words([*self.way])})" if self.way else ""
        what = {"makes": "make", "moves": "move", "removes": "remove"}[self.operation.verb]
        finds = "find it there" if self.operation.makes else "find it gone"
        asked = f" {self.asked}" if self.asked is not None else ""
        other = f" Or let it be done twice: {self.operation.tolerant}." if self.operation.tolerant is not None else ""
        return (
            f"As far as the source shows, no condition on the rank is around line {line}{way}: each rank runs `{call}` "
            f"with the same path, one succeeds, and the others {finds}.{asked} "
            f"Let rank 0 alone {what} it (`if dist.get_rank() == 0:` around "
            f"line {line}), and behind that all ranks call dist.barrier().{other}"
        )

    @property
    def behind(self) -> Behind:
        """The line, and those by which it is reached."""
        return Behind.of([], self.at.frame, *self.way)


def done_by_all(job: JobView, view: ProcessView) -> DoneByAll | None:
    """None unless all ranks are proven to come to the line with the same path, and another one to have passed it."""
    others = [item for item in _ranks(job, view) if not _failed_alike(item, view)]
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack) if others else None
    operation = failed_operation(at) if at is not None else None
    spot = at.slice.spot(0) if at is not None else None
    if at is None or operation is None or spot is None:
        return None
    came = [item for item in others if came_further(job, view, item) and _started_alike(item, view)]
    if not came or not is_alike_on_all_ranks(at, operation.call, operation.path, makes=operation.makes):
        return None
    way = [item for depth in range(len(at.frames)) if (item := at.slice.spot(depth)) is not None]
    asked = _asked(at, operation, spot)
    first = name_words(came) if len(came) == 1 else "another rank"
    lines = tuple(at.place(item, item.line) for item in way[1:] if not isinstance(item.scope, ast.Module))
    return DoneByAll(at, operation, first, asked, lines)


def _ranks(job: JobView, view: ProcessView) -> Iterator[ProcessView]:
    """The others of its host; none of a process that is no rank."""
    for item in job.views if view.process.role == "rank" and view.exception is not None else ():
        own = item.process.role == "rank" and item.process.rank not in (None, view.process.rank)
        if own and on_one_machine(item, view):
            yield item


def _failed_alike(other: ProcessView, view: ProcessView) -> bool:
    """Whether the other one found it so at that line, too: then neither of them did it."""
    theirs, own = other.exception, view.exception
    same = theirs is not None and own is not None and theirs.type == own.type
    return same and other.python_frame == view.python_frame


def _started_alike(other: ProcessView, view: ProcessView) -> bool:
    """Whether both have the same command line; that of a child of multiprocessing has the number of its pipe."""
    first, second = ([*filter(_is_of_program, item.process.snapshot.argv)] for item in (other, view))
    return first == second


def _is_of_program(word: str) -> bool:
    return "pipe_handle=" not in word


def came_further(job: JobView, view: ProcessView, other: ProcessView) -> bool:
    """Whether it called a collective of a common group that this rank had not come to."""
    for group in job.matches.groups:
        mine, theirs = group.last.get(view.process.rank or 0), group.last.get(other.process.rank or 0)
        if mine is not None and theirs is not None and theirs > mine:
            return True
    return False


def _asked(at: FailingLine, operation: Operation, spot: Spot) -> str | None:
    """`The check at line 12 does not help: ...`, of a condition around the line that asks for the same path."""
    path = ast.unparse(operation.path)
    same = [item for item in own_nodes(spot.scope) if isinstance(item, ast.If) and item.lineno == spot.line]
    for item in [*same, *(item for item, _ in deciding_ifs(spot.tree, spot.line))]:
        for call in (part for part in nodes_of(item.test) if isinstance(part, ast.Call)):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            about = [*map(ast.unparse, call.args), *([ast.unparse(owner)] if owner is not None else [])]
            if called_name(call) in _ASKS and path in about:
                here = at.here(item.lineno)
                return f"The check at {here} does not help: the other rank comes between it and line {at.line}."
    return None
