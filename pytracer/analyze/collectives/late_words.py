"""What to do about a rank that worked, or handled an exception, while the others waited for it until their time-out."""

from __future__ import annotations

from pytracer._text import capital
from pytracer.analyze.collectives.common_calls import CommonCall
from pytracer.analyze.collectives.rank_branches import branch_at_end
from pytracer.analyze.collectives.time_limits import TimeLimit
from pytracer.analyze.collectives.work_loops import work_loop
from pytracer.analyze.evidence.exceptions.handled import Handled
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


def handled_advice(handled: Handled, frame: PythonFrame, ranks: str, limit: TimeLimit) -> str:
    """Of an exception that the rank was handling at its end: a larger time-out does not make that go away."""
    works, below = work_loop(handled.view), branch_at_end(handled.view)
    where = f"in the {works.short}" if works is not None else f"at {place_words(frame)}"
    branch = f" {below.words}." if below is not None else ""
    return (
        f"Look at {handled.words} first: {ranks} was handling it {where} when the others gave up. Correct its reason, "
        f"or let it be raised, so that all ranks end at once; give {limit.set_at(frame.file)} a larger timeout= only "
        f"if it passes by itself.{branch}"
    )


def running_advice(view: ProcessView, common: CommonCall, running: str, ranks: str, limit: TimeLimit) -> str:
    """Of a rank that worked in what a function called in which the others wait."""
    than = f" than {limit.time}" if limit.time is not None else ""
    before = "" if view.process.snapshot.collectives else "do that work before the job, in a program of its own, or "
    larger = f"{before}give {limit.set_at(common.frame.file)} a larger timeout="
    inner = f"{line_in(common.inner.file, common.inner.line, common.frame.file)} in {common.inner.function}"
    if not common.direct:
        return (
            f"{capital(ranks)} was {running} below {place_words(common.frame)}: it was slow there rather than waiting. "
            f"See what takes so long below that line, such as {inner}, or {larger}."
        )
    return (
        f"{capital(ranks)} was {running} in {common.called}(), called at {place_words(common.frame)}: it was slow "
        f"there rather than waiting. If {common.work} may take longer{than}, {larger}; else see what takes so long in "
        f"it, such as {inner}."
    )
