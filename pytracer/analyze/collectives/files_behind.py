"""A file that a rank waits for in a loop, and that a waiting rank writes only behind the collective it stands in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.collectives.absent_ranks import Absence
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.ends.ended_while import own_path_alone
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.evidence.waits.asked_names import missing_name, writes_file
from pytracer.analyze.evidence.waits.busy import polled_by, polled_test
from pytracer.analyze.evidence.waits.polled_paths import asked_paths
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import LineWords, line_in, name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 60


class WhyAlone(msgspec.Struct, frozen=True):
    """Why the loop of one rank does not end. `alone`: after that rank and its loop."""

    alone: str
    advice: str


def why_alone(job: JobView, item: Absence) -> WhyAlone | None:
    """Of a rank that slept in a loop and looked for a file, while others waited for it in a collective."""
    view = item.views[0]
    polled = polled_by(view)
    test = polled_test(view, polled) if polled is not None else None
    if test is None:
        return None
    behind = _behind(view, views_of(job, item.wait.waiters), test)
    if behind is not None:
        return behind
    missing = missing_name(view.process.snapshot, program_stack(view), test)
    if missing is not None:
        return WhyAlone(f"it looks{missing.sentence.removeprefix('It looks')}", missing.advice)
    own = own_path_alone(view)
    return WhyAlone(own.alone, own.advice) if own is not None else None


def _behind(view: ProcessView, waiting: Sequence[ProcessView], test: ast.expr) -> WhyAlone | None:
    """The line of a rank that waits, below the one it stands at, which writes the very path."""
    slice_ = Slice(view.process.snapshot, program_stack(view))
    spot = slice_.spot(0)
    asked = next(asked_paths(slice_, test, spot), None) if spot is not None else None
    if asked is None or asked[2]:
        return None
    value = _value(slice_, asked[0], asked[1])
    for other in waiting:
        at, line = _writes(other, value)
        if at is not None and line is not None:
            name, here = name_words([other]), program_stack(view)[0].file
            stands = line_in(at.file, at.line, here)
            return WhyAlone(
                f"{name} writes that file at {line} only, behind the collective of {stands} in which it waits: each "
                "waits for the other",
                f"Let {name} write the file before the collective of {stands}: move {line} above it. Or let all ranks "
                "wait by one dist.barrier() behind that line, in place of the loop.",
            )
    return None


def _writes(other: ProcessView, value: tuple[str, str | None]) -> tuple[PythonFrame | None, LineWords | None]:
    """Where a rank stands, and the line below that in one of its functions that writes the path."""
    stack = program_stack(other) or other.exception_stack_of_program
    frames = [item for item in stack if not is_library_file(item.file)]
    slice_ = Slice(other.process.snapshot, frames)
    for depth, frame in enumerate(frames):
        spot = slice_.spot(depth)
        for call in _writing(spot, frame.line or 0) if spot is not None else ():
            owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            for given in (*owner, *passed_values(call)):
                if spot is not None and _value(slice_, given, spot) == value:
                    text = shortened(ast.unparse(call), _LONGEST)
                    return frame, line_in(frame.file, call.lineno, frame.file).quoted(text)
    return None, None


def _writing(spot: Spot, line: int) -> Iterator[ast.Call]:
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Call) and item.lineno > line and writes_file(item):
            yield item


def _value(slice_: Slice, node: ast.expr, spot: Spot) -> tuple[str, str | None]:
    """The expression that made it, and in which file."""
    made = slice_.made(node, spot, calls=False)
    return ast.unparse(made.node), made.spot.file
