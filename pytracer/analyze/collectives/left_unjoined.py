"""Processes that were started beside a rank, and ended in order without a call of init_process_group()."""

from __future__ import annotations

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital, count_words
from pytracer.analyze.collectives.rendezvous import Join
from pytracer.analyze.evidence.syntax.leaving import obstacles
from pytracer.analyze.kin import are_siblings, is_server
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView
from pytracer.decode.types.journal import Rendezvous
from pytracer.report.job import PythonFrame


class LeftUnjoined(msgspec.Struct, frozen=True):
    """`subject`: behind the others' wait, in the headline."""

    subject: str
    advice: str


def left_unjoined(job: JobView, join: Join, missing: int, size_name: str) -> LeftUnjoined | None:
    """Of as many as ranks are missing, all of one parent, which torch was loaded in.

    One that had ended before this one was started did other work: a preparation, a pool.
    """
    found = [
        view
        for view in job.views
        if are_siblings(view, join.view) and view is not join.view and not is_server(view)
        if view.left_well and not view.raised
        if view.process.snapshot.versions.torch is not None and not view.process.snapshot.recorded(Rendezvous)
        if (view.process.ended_mono_ns or 0) > join.view.process.snapshot.created_mono_ns
    ]
    if not found or len(found) != missing:
        return None
    pids = " and ".join(str(view.process.snapshot.pid) for view in found[:3])
    who = f"{count_words(len(found), 'process')} beside it ({pids}) had ended with status 0 without that call"
    return LeftUnjoined(
        who,
        f"{capital(who)}: {_way(join)} Let each process that {size_name} counts call it, or count only those that do.",
    )


def _way(join: Join) -> str:
    """`see why line 17 was not reached: `if not ready` (line 14) leaves before it.`."""
    caller, snapshot = join.data.caller, join.view.process.snapshot
    frames = [item for item in join.view.python_stack or [] if not is_library_file(item.file)]
    called = [PythonFrame(caller.function, caller.file, caller.line)] if caller is not None else []
    for frame in [*called, *frames]:
        tree = syntax_tree(snapshot, frame)
        before = obstacles(tree, frame.line) if tree is not None and frame.line else []
        if before and not before[0].caught:
            return f"{place_words(frame)} is {before[0].words}; see how that came out there."
    return "see which way it left, by a return or a branch, or at the end of its function."
