"""An error that one rank caught, which cost it a call: by a count that the program itself keeps of such errors.

`self.skipped += 1` in an `except`, and nowhere else, beside `self.skipped = 0`: another number than 0 on a rank proves
that the handler had run there. The numbers are those that a crash or an exception left of the rank's variables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import capital, count_words, uncapital
from pytracer.analyze.behind import places_in
from pytracer.analyze.collectives.call_sites import calls_of_group, counts_at
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.held_counts import count_on
from pytracer.analyze.collectives.left_out_calls import TOGETHER, LeftOut
from pytracer.analyze.collectives.quiet_handlers import handlers_that_leave
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.callers import calls_of, only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.error_counts import ErrorCount, error_counts
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.naming import line_in
from pytracer.report.job import PythonFrame

_CALLERS = 4


class _Caught(msgspec.Struct, frozen=True):
    """`handler` of `file` caught, of what `line` led to, and `count` counts it.

    `values`: of the rank that left out a call, and of the other.
    """

    file: str
    line: int
    handler: ast.ExceptHandler
    count: ErrorCount
    values: tuple[int, int | None]


def caught_error(one: Side, other: Side) -> LeftOut | None:
    """Of two ranks at different lines: the rank that had called less often from one of them, and what it had caught."""
    for there, absent in ((one, other), (other, one)):
        calls = counts_at(there.call, (there.view, absent.view))
        if calls is None or calls[0] <= calls[1]:
            continue
        found = next(_found(there, absent), None)
        if found is not None:
            return _words(found, there, absent, calls)
    return None


def _found(there: Side, absent: Side) -> Iterator[_Caught]:
    """The handlers that leave out the line of a call, or one that leads there, the innermost first."""
    snapshot = there.view.process.snapshot
    files = program_files(snapshot, there.way[::-1])
    for frame in _led(files, there.way):
        tree = files.get(frame.file or "")
        if tree is None or frame.line is None or frame.file is None:
            continue
        for handler, inside in handlers_that_leave(tree, frame.line):
            for count in error_counts(tree, handler):
                mine = count_on(absent.view, frame.file, tree, count)
                theirs = count_on(there.view, frame.file, tree, count)
                if _may_have_counted_failures(absent):
                    mine = None
                if inside and _may_have_counted_failures(there):
                    theirs = None
                if mine is not None and mine > (theirs or 0):
                    yield _Caught(frame.file, frame.line, handler, count, (mine, theirs))


def _may_have_counted_failures(side: Side) -> bool:
    """Whether a collective of a rank failed that was no end of it: what caught that may have counted it, too."""
    failed = [item for item in calls_of_group(side.view, side.call.group) if item.state == "failed"]
    last = place_of(failed[-1]) if failed else None
    return len(failed) > (side.view.raised and last in side.view.exception_stack)


def _led(files: Mapping[str, ast.Module], way: tuple[PythonFrame, ...]) -> Iterator[PythonFrame]:
    """The lines that led to a call; where their stack is not known, those that call its function."""
    yield from reversed(way)
    waiting = [(way[0], 0)] if len(way) == 1 else []
    while waiting:
        frame, depth = waiting.pop(0)
        defined = only_function(files, (frame.function or "").rpartition(".")[2])
        for item in calls_of(files, *defined) if defined is not None and depth < _CALLERS else ():
            line = item.call.lineno
            name = qualified_name(item.tree, scope_of(item.tree, line))
            caller = PythonFrame(file=item.file, function=name, line=line)
            yield caller
            waiting.append((caller, depth + 1))


def _words(found: _Caught, there: Side, absent: Side, calls: Sequence[int]) -> LeftOut:
    kind = f"except {source(found.handler.type)}:" if found.handler.type is not None else "except:"
    at, here = there.way[-1], there.way[-1].file
    where = line_in(found.file, found.handler.lineno, here)
    mine, theirs = found.values
    several = mine > 1
    value = f"is {mine} on {absent.name}" + (f" and {theirs} on {there.name}" if theirs is not None else "")
    counted = f"`{found.count.name}`, which {line_in(found.file, found.count.line, here)} counts up, {value}"
    what = f"{'errors' if several else 'an error'} that {where} (`{kind}`) caught"
    return LeftOut(
        f"{absent.name} left out {'calls' if several else 'a call'} of line {at.line} by {what}: {counted}",
        f"{capital(absent.name)} had called {count_words(calls[1], 'time')} from line {at.line}, {there.name} "
        f"{calls[0]} times: print what {where} catches, with its batch (traceback.print_exc()), and mend that. An "
        "error that one rank alone catches costs it calls that the others wait for: let it end the rank. Or: "
        f"{uncapital(TOGETHER)}, before line {at.line}.",
        places_in([at, (found.file, found.line), (found.file, found.handler.lineno), (found.file, found.count.line)]),
    )
