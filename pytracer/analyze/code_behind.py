"""The lines of the program behind the verdict: what made the values of the line at which it went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer._errors import bug_words
from pytracer._library_files import is_library_file
from pytracer.analyze.collectives.call_sites import stacks_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.slicing.lines_behind import lines_behind
from pytracer.analyze.parts import python_frame
from pytracer.analyze.rules.base import AnyJudgement
from pytracer.analyze.view import ProcessView
from pytracer.report.job import CodeLine, PythonFrame

# Where the process was, or where damage was found, is not where it went wrong.
_ELSEWHERE = ("external-kill", "oom-kill", "heap-corruption", "cuda-error", "hang", "clean", "recovered", "unknown")
_MOST_MADE = 2


def code_behind(judgement: AnyJudgement, line: PythonFrame | None = None) -> list[CodeLine]:
    """Empty where the line is not the cause's, ranks were at different ones, or its source is not here as it was.

    `line`: at which it went wrong, where the process ended at another one.
    """
    view = judgement.views[0]
    if line is not None:
        return _behind(view, [line], [])
    find = _call if judgement.verdict_class == "collective-mismatch" else _stack
    stacks = [find(view) for view in judgement.views]
    if judgement.verdict_class in _ELSEWHERE or not all(stacks) or any(item[0] != stacks[0][0] for item in stacks):
        return []
    made = [] if view.raised else [*dict.fromkeys(_made(view))]
    return _behind(view, stacks[0], made[:_MOST_MADE])


def _behind(view: ProcessView, stack: Sequence[PythonFrame], made: Sequence[PythonFrame]) -> list[CodeLine]:
    try:
        return lines_behind(view.process.snapshot, stack, made)
    except Exception as error:  # a program may be written in any way: the report goes on, and says so
        return [CodeLine(text=f"the lines behind it are not shown: {bug_words(error)}")]


def _stack(view: ProcessView) -> list[PythonFrame]:
    """The program's frames, innermost first."""
    return view.exception_stack_of_program if view.raised else program_frames(view)


def _call(view: ProcessView) -> list[PythonFrame]:
    """The same of its last collective."""
    last = view.last_collective
    at = last.python if last is not None else None
    if at is None or is_library_file(at.file):
        return []
    ways = ([frame for frame in stack if not is_library_file(frame.file)] for stack in stacks_of(view))
    return next((own[own.index(at) :] for own in ways if at in own), [at])


def _made(view: ProcessView) -> Iterator[PythonFrame]:
    """The lines that allocated the tensors of the running call; those of integers first, which may be indices."""
    for item in sorted(line_tensors(view), key=lambda item: not item.item.is_integer):
        storage = view.space.live_around(item.item.base) if item.name is not None and item.item.base else None
        if storage is None or storage.older:
            continue
        own = own_line(storage.allocated_by)
        if own is not None:
            yield python_frame(own)
