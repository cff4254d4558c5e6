"""Whether a thread that a program waits for at its end may have been at work, by where it was when the signal came."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.waits.lock_order import wanted
from pytracer.analyze.evidence.waits.standing_threads import others_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame

# CPython: what the innermost frame of a wait is in, and what a line calls that waits in C.
_WAITS = Pattern(r"/(threading|queue|selectors|socket|socketserver|subprocess|signal|asyncio/\w+|ssl)\.py$")
_BETWEEN = Pattern(r"/multiprocess(?:ing)?/(connection|queues|popen_\w+|synchronize|managers)\.py$")
_CALLS = frozenset({"sleep", "wait", "acquire", "get", "put", "join", "recv", "recvfrom", "recv_bytes", "accept",
                    "select", "poll", "pause", "waitpid", "readline", "input"})  # fmt: skip


def may_work(view: ProcessView) -> bool:
    """Whether a thread with lines of the program was at none that waits."""
    own = [frames for frames in others_of(view) if any(not is_library_file(item.file) for item in frames)]
    return any(not _waits(view, frames) for frames in own)


def _waits(view: ProcessView, frames: Sequence[PythonFrame]) -> bool:
    inner = frames[0]
    if is_library_file(inner.file):
        return bool(_WAITS.search(inner.file) or _BETWEEN.search(inner.file))
    at = python_frame(inner)
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or at.line is None:
        return False
    return bool(wanted(view, inner)) or any(called_name(item) in _CALLS for item in calls_on(tree, at.line))
