"""The program's line that led to a collective which an installed package called: `accelerator.gather(x)`.

Of a call only its line outside torch is recorded, which is the package's. A rank that stood in it, or that it failed
on, has the lines around it on its stack.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer.analyze.collectives.call_sites import stacks_of
from pytracer.analyze.collectives.description import at_place, place_of
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.naming import place_words, short_file
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame


def program_line(view: ProcessView, call: Collective) -> PythonFrame | None:
    """None where the line of the call is the program's own, or is not on a stack of the rank."""
    at = place_of(call)
    if at is None or not is_library_file(at.file):
        return None
    for stack in stacks_of(view):
        if at in stack:
            outer = stack[list(stack).index(at) + 1 :]
            return next((frame for frame in outer if not is_library_file(frame.file)), None)
    return None


def at_lines(job: JobView, calls: Sequence[tuple[int, Collective]]) -> list[str]:
    """` at score.py:26 in evaluate, by accelerate/utils/operations.py:355` for each rank's call.

    Where the program's line is not known of one of them, the recorded line of each: they are to be compared.
    """
    found = [_line(job, rank, call) for rank, call in calls]
    if all(found):
        return [line or "" for line in found]
    return [at_place(call) for _, call in calls]


def _line(job: JobView, rank: int, call: Collective) -> str | None:
    views, at = views_of(job, [rank]), place_of(call)
    own = program_line(views[0], call) if views else None
    return f" at {place_words(own)}, by {short_file(at.file)}:{at.line}" if own is not None and at is not None else None
