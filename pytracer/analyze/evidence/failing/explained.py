"""What is wrong at the failing line, in a sentence or two: the first explanation that the recorded facts bear."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._errors import bug_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.clauses import first_clause
from pytracer.analyze.evidence.failing.kind import Kind
from pytracer.analyze.evidence.failing.kinds import KINDS, OWN_KINDS
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.operands import involved as involved_operands
from pytracer.analyze.evidence.failing.stored.opened import broken_file, opened
from pytracer.analyze.evidence.failing.usage.library_checks import refused_argument
from pytracer.analyze.evidence.failing.usage.taken_names import taken_name
from pytracer.analyze.evidence.failing.usage.walkers import too_deep
from pytracer.analyze.evidence.limits.words import limit_reason
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_OF_OTHERS = ("lfs", "html")  # no program of this job made them


class Explanation(msgspec.Struct, frozen=True):
    """One cause, by the line and its values; None where a table's advice is all that can be said.

    `subject`: what it is about in a few words, for the headline; only with `words`.
    `file`: what the words are about, where its writer is of interest.
    `together`: whether it takes several workers at once, so that one process does not repeat it.
    `behind`: the values and lines that it is about, where they are known.
    `failure`: an error of our own, which must not cost the report. `of_limit`: a limit of the process was reached.
    `line`: the one at which it went wrong, where another one raised it. `evidence`: of another process, which is why.
    """

    words: str | None = None
    subject: str | None = None
    file: str | None = None
    together: bool = False
    failure: str | None = None
    of_limit: bool = False
    behind: Behind | None = None
    line: PythonFrame | None = None
    evidence: Evidence | None = None


def explained(
    snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame], dataset: str | None = None
) -> Explanation:
    """What is wrong at the innermost line of the program.

    Args:
        snapshot: The process that raised it.
        exception: With the variables of the innermost frame of the program.
        stack: Its frames, innermost first.
        dataset: The class of a DataLoader worker's dataset.
    """
    limit = limit_reason(snapshot, exception, stack)
    if limit is not None:
        return Explanation(limit.advice, limit.subject, of_limit=True, behind=limit.behind, line=limit.line)
    at = failing_line(snapshot, exception, stack, dataset)
    try:
        if at is None:
            return _of_libraries(snapshot, exception, stack)
        words = taken_name(snapshot, exception, stack)
        return _named(words) if words is not None else _first(at)
    except Exception as error:  # a program may be written in any way: the report goes on, and says so
        return Explanation(failure=f"an explanation of that line: {bug_words(error)}")


def _of_libraries(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> Explanation:
    """Where no line of the program is on the recorded stack."""
    words = too_deep(snapshot, exception, stack) if exception is not None else None
    words = words or taken_name(snapshot, exception, stack)  # of a file that is not here as it was
    return _named(words) if words is not None else Explanation()


def _named(words: str) -> Explanation:
    return Explanation(words, first_clause(words))


def involved(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> str | None:
    """What the failing expression works on, each with its value and the line that made it; None for none, or many."""
    at = failing_line(snapshot, exception, stack)
    try:
        return refused_argument(at) or involved_operands(at) if at is not None else None
    except Exception:  # as above; what is said otherwise is enough
        return None


def _first(at: FailingLine) -> Explanation:
    """The first kind that holds; `at.named` has the lines of that one."""
    unset = at.kind in ("NameError", "UnboundLocalError")  # of the raise itself, as in `from error`
    own = isinstance(at.statement, (ast.Raise, ast.Assert)) and at.own and not unset
    for kind in OWN_KINDS if own else KINDS:
        at.named.clear()
        words = kind.words(at)
        if words is not None:
            return _of_kind(at, kind, words)
    return Explanation()


def _of_kind(at: FailingLine, kind: Kind, words: str) -> Explanation:
    named = Behind.of([], *at.named) if at.named else None  # before the subjects ask for words, too
    subject = next((found for name in kind.subjects if (found := name(at)) is not None), None)
    broken = opened(at.values) if kind.words is broken_file else None
    file = broken.path if broken is not None and broken.kind not in _OF_OTHERS else None
    behind = kind.behind(at) if kind.behind is not None else None
    return Explanation(words, subject or first_clause(words), file, kind.together, behind=behind or named)
