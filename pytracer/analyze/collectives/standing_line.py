"""The line at which a rank ended: that raised, or that stood there when it was asked to end. With its variables."""

from __future__ import annotations

from collections import defaultdict

from pytracer._library_files import is_library_file
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import ExceptionReport, OuterFrameReport, VariableReport


def line_of_end(view: ProcessView) -> FailingLine | None:
    """That of its exception, or where it stood; None where neither is known."""
    if view.raised:
        return failing_line(view.process.snapshot, view.exception, view.exception_stack)
    return standing_line(view)


def standing_line(view: ProcessView) -> FailingLine | None:
    """As failing_line(), without an exception; None of a rank that raised or crashed, or without recorded values."""
    end = asked_to_end(view.process) if view.crash is None and not view.raised else None
    if end is None or not end.values or _went_on(view, end):
        return None
    held: dict[int, list[VariableReport]] = defaultdict(list)
    for item in end.values:
        held[item.depth].append(VariableReport(name=item.expression, value=item.text))
    stack = [python_frame(frame) for frame in end.python_stack]
    outer = [OuterFrameReport(frame=depth, variables=values) for depth, values in held.items()]
    innermost = next((n for n, frame in enumerate(stack) if not is_library_file(frame.file)), 0)
    exception = ExceptionReport(outer=outer, variables=held.get(innermost, []))
    return failing_line(view.process.snapshot, exception, stack)


def _went_on(view: ProcessView, end: Crash) -> bool:
    """Whether the rank called more after these stacks, of a signal that it handled or an error that it caught."""
    return any((call.scheduled_ns or call.started_ns or 0) > end.mono_ns for call in view.process.snapshot.collectives)
