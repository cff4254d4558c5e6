"""A barrier of all ranks that only the members of a smaller group call, which they have just used."""

from __future__ import annotations

import ast

from pytracer.analyze.collectives.description import place_of, span_words
from pytracer.analyze.collectives.matching import Variant
from pytracer.analyze.collectives.own_lines import calls_of_line
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective

_BARRIERS = ("barrier", "monitored_barrier")


def own_group_advice(job: JobView, view: ProcessView, side: Variant) -> str | None:
    """To give the barrier that group; None where no group has exactly these ranks, or another call came between.

    Args:
        job: The job.
        view: One of the ranks in the barrier.
        side: All of them, with its call.
    """
    if side.call.op not in _BARRIERS:
        return None
    groups = {
        match.name
        for match in job.matches.groups
        if match.name != side.call.group and sorted(match.ranks) == sorted(side.ranks)
    }
    last = _before(view, side.call)
    if last is None or last.group not in groups or last.state != "completed":
        return None
    barrier, used = place_of(side.call), place_of(last)
    if barrier is None or used is None or barrier.line is None or used.line is None:
        return None
    name = _group_argument(view, last) or "that group"
    at = line_in(barrier.file, barrier.line, None)  # the headline names the line of the others
    return (
        f"At {at} {span_words(side.ranks)} wait for all ranks. They are a group of their own, which they "
        f"used just before, at {line_in(used.file, used.line, barrier.file)} ({last.op}): if only they are to meet "
        f"there, call "
        f"{side.call.op}(group={name})."
    )


def _before(view: ProcessView, call: Collective) -> Collective | None:
    """The last collective that the rank had begun before a call, in any group."""
    calls = view.process.snapshot.collectives
    earlier = (item for item in calls if not item.point_to_point and item.number < call.number)
    return max(earlier, key=lambda item: item.number, default=None)


def _group_argument(view: ProcessView, call: Collective) -> str | None:
    frame = place_of(call)
    for item in calls_of_line(view.process.snapshot, frame) if frame is not None else ():
        for word in item.keywords:
            if word.arg == "group" and isinstance(word.value, (ast.Name, ast.Attribute)):
                return ast.unparse(word.value)
    return None
