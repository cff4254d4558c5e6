"""Between which lines a killed rank was: behind its last collective, before one that another rank had called.

SIGKILL leaves no stack. But where both lines are in one function, and from the first one the function always comes to
the second one, the rank was on the way between them: what runs there is the program's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words, shortened
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.array_makers import ArrayMakers, array_makers
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank, one_rank_number
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, runs, scope_of, spans
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Evidence, PythonFrame

_QUOTED, _SHOWN = 50, 3
_SHOWS = frozenset({"print", "pprint", "debug", "info", "warning", "flush"})
_WITHS = (ast.With, ast.AsyncWith)
_TRIES = (ast.Try, *((ast.TryStar,) if hasattr(ast, "TryStar") else ()))


class Step(msgspec.Struct, frozen=True):
    """A statement that calls something. `makes`: the arrays that it, or a function of the program it calls, makes."""

    node: ast.stmt
    makes: tuple[tuple[str, ArrayMakers], ...] = ()

    @property
    def words(self) -> str:
        """`` `table = to_table(blocks)` (line 87) ``."""
        return f"`{shortened(ast.unparse(self.node).partition(chr(10))[0], _QUOTED)}` (line {self.node.lineno})"


class Between(msgspec.Struct, frozen=True):
    """`rank` had completed `last`, at `first`, and never called `awaited`, at `end` of the same function."""

    rank: int
    pid: int
    waiter: int
    last: Collective
    awaited: Collective
    first: PythonFrame
    end: PythonFrame
    steps: tuple[Step, ...]

    @property
    def place(self) -> str:
        """`between lines 84 and 90 of worker (program.py)`."""
        of = f"{self.first.function} ({short_file(self.first.file)})"
        return f"between lines {self.first.line} and {self.end.line} of {of}"

    @property
    def words(self) -> str:
        """For a headline, of a rank that is named before."""
        return f"it was {self.place}"

    @property
    def evidence(self) -> Evidence:
        """Both calls, and what runs between them."""
        runs_there = list_words([item.words for item in self.steps], _SHOWN)
        there = f", where it runs {runs_there}" if runs_there else ""
        return Evidence(
            "rank-state",
            f"rank {self.rank} had completed {self.last.op} #{self.last.sequence_nr}, and never called "
            f"{self.awaited.op} #{self.awaited.sequence_nr}, in which rank {self.waiter} was: behind the one, the "
            f"function always comes to the other unless something raises, so it was {self.place}{there}",
            rank=self.rank,
            pid=self.pid,
            python=self.first,
        )

    @property
    def missing(self) -> str:
        """What is not known of it."""
        return (
            "which of these lines it executed, and whether an exception that was caught had led it out of them: "
            "SIGKILL leaves no stack"
        )

    @property
    def advice(self) -> str | None:
        """What to look at where it was killed for its memory; None where nothing is called there."""
        if not self.steps:
            return None
        made = [(step, name, item) for step in self.steps for name, item in step.makes]
        if not made:
            steps = list_words([item.words for item in self.steps], _SHOWN)
            takes = "takes" if len(self.steps) == 1 else "take"
            return f"Rank {self.rank} was {self.place} then: see how much memory {steps} {takes} at once."
        step, name, makers = max(made, key=lambda item: len(item[2].lines))
        each = ", each" if makers.lines[1:] else ","
        return (
            f"Rank {self.rank} was {self.place} then. Look first at {step.words}: {name} makes {makers.words}{each} in "
            "memory of its own beside what it is made of. Free what is done with, work in parts or in place, or keep a "
            "smaller dtype."
        )


def between_calls(job: JobView, view: ProcessView) -> Between | None:
    """Of a rank without a stack; None where its function may have gone elsewhere, or that is not known."""
    snapshot, rank = view.process.snapshot, view.process.rank
    if rank is None or view.python_frame is not None or view.exception is not None or view.handled is not None:
        return None
    last = snapshot.collectives[-1] if snapshot.collectives else None
    if last is None or last.point_to_point or last.state != "completed" or last.tid != snapshot.pid:
        return None
    for wait in job.waiting.waits:
        call = wait.call
        if rank not in wait.targets or call.point_to_point or call.group != last.group:
            continue
        waiter = next(iter(views_of(job, wait.waiters[:1])), None)
        if waiter is None or call.sequence_nr != last.sequence_nr + 1 or not _came_from(waiter, call, last):
            continue
        found = _between(view, last, waiter, call)
        if found is not None:
            return found
    return None


def _came_from(waiter: ProcessView, call: Collective, last: Collective) -> bool:
    """Whether its call before, of any group, was the same one at the same line."""
    calls = list(waiter.process.snapshot.collectives)
    at = next((place for place, item in enumerate(calls) if item is call or item == call), 0)
    before = calls[at - 1] if at else None
    return (
        before is not None
        and before.group == last.group
        and before.sequence_nr == last.sequence_nr
        and site_of(before) == site_of(last)
        and before.tid == call.tid
    )


def _between(view: ProcessView, last: Collective, waiter: ProcessView, call: Collective) -> Between | None:
    first, end = place_of(last), place_of(call)
    if first is None or end is None or first.line is None or end.line is None or is_library_file(first.file):
        return None
    if (first.file, first.function) != (end.file, end.function) or first.line >= end.line:
        return None
    files = program_files(view.process.snapshot, [first])
    tree = files.get(first.file or "")
    scope = scope_of(tree, first.line) if tree is not None else None
    if tree is None or scope is None or scope is not scope_of(tree, end.line):
        return None
    if not runs(tree, scope, first.line, first.function):
        return None
    passed = _passed(scope, first.line, end.line)
    rank, other = view.process.rank, waiter.process.rank
    if passed is None or rank is None or other is None:
        return None
    steps = tuple(_step(files, tree, item) for item in _statements(passed, rank) if _is_step(item))
    return Between(rank, view.process.snapshot.pid, other, last, call, first, end, steps)


# ---- what lies between two lines


def _passed(scope: Scope, first: int, end: int) -> list[ast.stmt] | None:
    """The statements behind one line, up to another one that always follows; None where it need not."""
    way, to = _way(scope, first), _way(scope, end)
    shared = 0
    while shared < min(len(way), len(to)) and way[shared] == to[shared]:
        shared += 1
    if shared >= min(len(way), len(to)):
        return None
    if any(_may_catch(outer[place], first) for outer, place in way[:shared]):
        return None  # what is raised between them leads to a handler
    block, here = way[shared]
    other, there = to[shared]
    inside = [outer[place] for outer, place in to[shared:-1]]
    calls = to[-1][0][to[-1][1]]
    if (
        block is not other
        or here >= there
        or not all(isinstance(item, _WITHS) for item in inside)
        or _may_skip(calls, end)
    ):
        return None  # another branch, or the end is below a condition of its own
    if any(isinstance(outer[place], LOOPS) for outer, place in way[shared:-1]):
        return None  # it may have been in another round
    within = [item for outer, place in reversed(way[shared + 1 :]) for item in outer[place + 1 :]]
    before = [item for outer, place in to[shared + 1 :] for item in outer[:place]]
    passed = [*within, *block[here + 1 : there], *before]
    around = [outer[place] for outer, place in way[shared:]]
    leaves = any(_leaves(item, first) for item in (*around, *block[here + 1 : there], *before))
    return None if leaves else passed


def _may_catch(item: ast.stmt, line: int) -> bool:
    """Whether the function goes on elsewhere where a line in that statement raises."""
    if isinstance(item, _WITHS):
        calls = [part.context_expr for part in item.items if isinstance(part.context_expr, ast.Call)]
        return any(called_name(call) == "suppress" for call in calls)
    if not isinstance(item, _TRIES) or not any(spans(part, line) for part in item.body):
        return False
    return any(not isinstance(part.body[-1], ast.Raise) or part.body[1:] for part in item.handlers)


def _may_skip(item: ast.stmt, line: int) -> bool:
    """Whether a part of a statement that has a line may not run: `ready and dist.barrier()`."""
    kinds = (ast.BoolOp, ast.IfExp, ast.Lambda, *COMPREHENSIONS)
    return any(isinstance(part, kinds) and spans(part, line) for part in nodes_of(item))


def _way(scope: Scope, line: int) -> list[tuple[list[ast.stmt], int]]:
    """The blocks around a line, the outermost first, each with the place of its statement that has the line."""
    found: list[tuple[list[ast.stmt], int]] = []
    block: list[ast.stmt] | None = scope.body if not isinstance(scope, ast.Lambda) else None
    while block is not None:
        at = next((place for place, item in enumerate(block) if spans(item, line)), None)
        if at is None:
            break
        found.append((block, at))
        block = next((inner for inner in _blocks(block[at]) if any(spans(item, line) for item in inner)), None)
    return found


def _blocks(item: ast.stmt) -> Iterator[list[ast.stmt]]:
    yield from (getattr(item, name, []) for name in ("body", "orelse", "finalbody"))
    for part in [*getattr(item, "handlers", []), *getattr(item, "cases", [])]:
        yield part.body


def _leaves(item: ast.stmt, behind: int) -> bool:
    """Whether something in a statement, behind a line, may lead past the lines that follow."""
    parts = [part for part in (item, *own_nodes(item)) if getattr(part, "lineno", 0) > behind]
    if any(isinstance(part, (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)) for part in parts):
        return True
    loops = [part for part in parts if isinstance(part, LOOPS)]
    ends = [part for part in parts if isinstance(part, (ast.Break, ast.Continue))]
    return any(not any(spans(loop, part.lineno) for loop in loops) for part in ends)


def _statements(block: Sequence[ast.stmt], rank: int) -> Iterator[ast.stmt]:
    """Those of a block and of what is inside that this rank may run."""
    for item in block:
        if isinstance(item, ast.If):
            yield from _statements(_side(item, rank), rank)
        elif isinstance(item, (*LOOPS, *_WITHS, *_TRIES, ast.Match)):
            yield from _statements([part for inner in _blocks(item) for part in inner], rank)
        else:
            yield item


def _side(item: ast.If, rank: int) -> list[ast.stmt]:
    """Of an `if` on the rank the side of this one."""
    one = is_for_one_rank(item.test)
    number = one_rank_number(item.test) if one is not None else None
    if number is None or any(isinstance(part, ast.BoolOp) for part in nodes_of(item.test)):
        return [*item.body, *item.orelse]
    return item.body if (rank == number) is one else item.orelse


def _is_step(item: ast.stmt) -> bool:
    """Whether it calls something, and does not only show it."""
    if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return False
    if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) and called_name(item.value) in _SHOWS:
        return False
    return any(isinstance(part, ast.Call) for part in nodes_of(item))


def _step(files: Mapping[str, ast.Module], tree: ast.Module, item: ast.stmt) -> Step:
    """With what it makes itself, and each function of the program that it calls."""
    found = [("it", array_makers(nodes_of(item)))]
    for call in (part for part in nodes_of(item) if isinstance(part, ast.Call)):
        called = called_function(files, tree, call)
        if called is not None:
            of = f" of {short_file(called[0])}" if files[called[0]] is not tree else ""
            found.append((f"{called[1].name}(){of}", array_makers(own_nodes(called[1]))))
    return Step(item, tuple((name, made) for name, made in found if made is not None))
