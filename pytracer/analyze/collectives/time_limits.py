"""The time-out that ended a wait for other ranks, and the line of the program that set it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.description import is_default
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

_LIMIT = Pattern(r"(?:Timed out waiting|monitoredBarrier (?:in|after)) (\d+) ?ms")  # gloo's
_BARRIER = "monitored_barrier"  # has a time-out of its own


class TimeLimit(msgspec.Struct, frozen=True):
    """`seconds` is None where the ranks that waited did not name it. `at`: file and line of the call that set it."""

    seconds: float | None
    function: str
    at: tuple[str, int] | None

    @property
    def time(self) -> str | None:
        """`12 s`."""
        return f"{self.seconds:g} s" if self.seconds is not None else None

    def set_at(self, here: str | None) -> str:
        """`init_process_group() (line 61)`; `here`: the file that the sentence has named."""
        where = f" ({line_in(self.at[0], self.at[1], here)})" if self.at is not None else ""
        return f"{self.function}(){where}"


def time_limit(call: Collective, group: GroupMatch | None, waiters: Sequence[ProcessView]) -> TimeLimit:
    """Of the ranks that waited in a call for another one."""
    messages = [(view.exception.message or "") for view in waiters if view.exception]
    limits = [int(found[1]) for message in messages if (found := _LIMIT.search(message)) is not None]
    function = "init_process_group" if group is None or is_default(group) else "new_group"
    function = _BARRIER if call.op == _BARRIER else function
    at = next((place for view in waiters[:1] if (place := _set_at(view, call, function)) is not None), None)
    return TimeLimit(min(limits) / 1000 if limits else None, function, at if limits else None)


def _set_at(view: ProcessView, waited: Collective, function: str) -> tuple[str, int] | None:
    """The only call of that function in the program's files, where it passes a time-out."""
    files = program_files(view.process.snapshot, way_to(view, waited)[::-1])
    calls = [
        (file, node)
        for file, tree in files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) == function
    ]
    if len(calls) != 1:
        return None
    file, call = calls[0]
    value = keyword_value(call, "timeout")
    return (file, value.lineno) if value is not None else None
