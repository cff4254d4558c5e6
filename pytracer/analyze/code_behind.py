"""The lines of the program behind the verdict: what made the values of the line at which it went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer._errors import bug_words
from pytracer._library_files import is_library_file
from pytracer.analyze.behind import Behind
from pytracer.analyze.collectives.call_sites import stacks_of
from pytracer.analyze.evidence.failing.expressions import expression_at
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.slicing.lines_behind import lines_behind
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.rules.base import AnyJudgement, Description
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import CodeLine, PythonFrame

# Where the process was, or where damage was found, is not where it went wrong.
_ELSEWHERE = (
    *("external-kill", "oom-kill", "resource-limit", "heap-corruption", "cuda-error"),
    *("hang", "clean", "recovered", "unknown"),
)
_MOST_MADE = 2
_UNKNOWN = Behind(names=None)
_UNEQUAL = Behind(names=None, sizes=True)  # what ranks pass to a collective


def code_behind(judgement: AnyJudgement, words: Description) -> list[CodeLine]:
    """Empty where the line is not the cause's, ranks were at different ones, or its source is not here as it was."""
    view = judgement.views[0]
    about = words.behind or _about(judgement)
    if words.line is not None:
        return _behind(view, [words.line], [], about)
    if judgement.verdict_class == "collective-mismatch" and words.behind is None and not _called_alike(judgement):
        return []
    find = _call if judgement.verdict_class == "collective-mismatch" else _stack
    stacks = [find(view) for view in judgement.views]
    elsewhere = judgement.verdict_class in _ELSEWHERE
    if judgement.verdict_class == "heap-corruption" and words.behind is not None:
        elsewhere = False  # the call that did the damage is known
    named = words.behind is not None and judgement.verdict_class == "collective-mismatch"  # of ranks at two lines
    if elsewhere or not all(stacks) or (not named and any(item[0] != stacks[0][0] for item in stacks)):
        return []
    made = [] if view.raised else [*dict.fromkeys(_made(view, about))]
    return _behind(view, stacks[0], made[:_MOST_MADE], about)


def _behind(
    view: ProcessView, stack: Sequence[PythonFrame], made: Sequence[PythonFrame], about: Behind | None
) -> list[CodeLine]:
    try:
        return lines_behind(view.process.snapshot, stack, made, about)
    except Exception as error:  # a program may be written in any way: the report goes on, and says so
        return [CodeLine(text=f"the lines behind it are not shown: {bug_words(error)}")]


def _about(judgement: AnyJudgement) -> Behind | None:
    """Where the rule does not know what is at fault."""
    if judgement.verdict_class == "collective-mismatch":
        return _UNEQUAL
    view = judgement.views[0]
    return _of_expression(view) if view.raised else _UNKNOWN


def _called_alike(judgement: AnyJudgement) -> bool:
    """Whether the ranks called the same collective: where they did not, no value of the line is at fault."""
    calls = [view.last_collective for view in judgement.views]
    return len({item.op if item is not None else None for item in calls}) == 1


def _of_expression(view: ProcessView) -> Behind | None:
    """The variables of the expression that failed; None where the whole statement did."""
    columns = view.exception.columns if view.exception is not None else None
    stack = view.exception_stack_of_program
    tree = syntax_tree(view.process.snapshot, stack[0]) if stack and columns is not None else None
    failed = expression_at(tree, columns) if tree is not None and columns is not None else None
    return Behind(tuple(names_of(failed)), nearest=True) if failed is not None else None


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


def _made(view: ProcessView, about: Behind | None) -> Iterator[PythonFrame]:
    """The lines that allocated the tensors at fault; where these are not known, of integers, which may be indices."""
    names = about.names if about is not None else None
    for item in line_tensors(view):
        if item.name not in names if names is not None else not item.item.is_integer:
            continue
        storage = view.space.live_around(item.item.base) if item.name is not None and item.item.base else None
        if storage is None or storage.older:
            continue
        own = own_line(storage.allocated_by)
        if own is not None:
            yield python_frame(own)
