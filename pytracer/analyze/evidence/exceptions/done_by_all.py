"""A file operation that works once and that every rank does on the same path: another rank had done it before.

`os.remove(old)`, `shutil.rmtree(folder)`, `os.rename(new, old)`, `os.mkdir(folder)` without a condition on the rank
around it or on the way to it. That another rank came through is shown by a collective that it called behind the line
and this rank did not; or this rank has itself seen, by a condition around the line, that the path was as it needs it.
Ranks of other hosts do not count: their disks may be others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.reach import function_of, parts_of
from pytracer.analyze.evidence.failing.stored.operations import Operation, failed_operation
from pytracer.analyze.evidence.slicing.own_paths import may_be_own
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_rank, reads_rank
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.kin import on_one_machine
from pytracer.analyze.naming import LineWords, name_words
from pytracer.analyze.view import JobView, ProcessView

_ASKS = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "lexists", "listdir", "glob", "iterdir"})
_DEEPEST = 4


class DoneByAll(msgspec.Struct, frozen=True):
    """`first`: who had done it, or may have; `alone`: no other one can have. `way`: the lines of the callers."""

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
            f"No condition on the rank is around line {line}{way}: each rank runs `{call}` with the same path, one "
            f"succeeds, and the others {finds}.{asked} Let rank 0 alone {what} it (`if dist.get_rank() == 0:` around "
            f"line {line}), and behind that all ranks call dist.barrier().{other}"
        )

    @property
    def behind(self) -> Behind:
        """The line, and those by which it is reached."""
        return Behind.of([], self.at.frame, *self.way)


def done_by_all(job: JobView, view: ProcessView) -> DoneByAll | None:
    """None where the path or the way to the line may be this rank's alone, or nobody else can be shown to have come."""
    others = [item for item in _ranks(job, view) if not _failed_alike(item, view)]
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack) if others else None
    operation = failed_operation(at) if at is not None else None
    spot = at.slice.spot(0) if at is not None else None
    if at is None or operation is None or spot is None:
        return None
    way = [item for depth in range(len(at.frames)) if (item := at.slice.spot(depth)) is not None]
    if any(_is_for_some(at, item) for item in way) or may_be_own(at, operation.path, spot):
        return None
    came = [item for item in others if _came_further(job, view, item)]
    asked = _asked(at, operation, spot)
    if not came and asked is None:
        return None
    sure = came if came else others
    first = name_words(sure) if len(sure) == 1 else "another rank"
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


def _came_further(job: JobView, view: ProcessView, other: ProcessView) -> bool:
    """Whether it called a collective of a common group that this rank had not come to."""
    for group in job.matches.groups:
        mine, theirs = group.last.get(view.process.rank or 0), group.last.get(other.process.rank or 0)
        if mine is not None and theirs is not None and theirs > mine:
            return True
    return False


def _is_for_some(at: FailingLine, spot: Spot) -> bool:
    """Whether the rank may decide that this one comes to the line; also by a flag of which the source shows nothing."""
    tests = [item.test for item, _ in deciding_ifs(spot.tree, spot.line)]
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.If, ast.While, ast.IfExp)) and spans(item, spot.line):
            tests.append(item.test)
        elif isinstance(item, ast.BoolOp) and spans(item, spot.line):
            tests.append(item)
        elif isinstance(item, ast.Match) and spans(item, spot.line):
            tests.append(item.subject)
    loops = (item.iter for item in loops_around(spot.tree, spot.line) if not isinstance(item, ast.While))
    if any(reads_rank(item) for item in loops):
        return True
    return any(_by_rank(at, test, spot, _DEEPEST) for test in tests)


def _by_rank(at: FailingLine, node: ast.AST, spot: Spot, left: int) -> bool:
    """Whether a condition has the rank in it, by the variables and functions that it is made of."""
    if reads_rank(node):
        return True
    if not left:
        return False
    for part in _flags(node):
        if isinstance(part, ast.Call):
            found = function_of(at, part, spot)
            returned = [item.value for item in own_nodes(found[0]) if isinstance(item, ast.Return)] if found else []
            ifs = [item.test for item in own_nodes(found[0]) if isinstance(item, ast.If)] if found else []
            inner = [item for item in (*returned, *ifs) if item is not None]
            if found is not None and any(_by_rank(at, item, found[1], left - 1) for item in inner):
                return True
            continue
        reached = [*parts_of(at, part, spot)]
        made = [item for item in reached if item.node is not part]
        if not made:
            return True
        if any(reads_rank(item.node) for item in made if not isinstance(item.node, ast.Call) or is_rank(item.node)):
            return True
    return False


def _flags(node: ast.AST) -> Iterator[ast.expr]:
    """Variables and calls whose truth is asked, not what a comparison reads."""
    if isinstance(node, ast.BoolOp):
        for item in node.values:
            yield from _flags(item)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _flags(node.operand)
    elif isinstance(node, (ast.Name, ast.Attribute)) or (isinstance(node, ast.Call) and called_name(node) not in _ASKS):
        yield node


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
