"""A tensor whose sender still ran, and whose socket was gone: the folder of that socket was removed meanwhile.

multiprocessing makes the sockets in a folder of its own, `pymp-...`, below tempfile.gettempdir().
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import list_words
from pytracer.analyze.deaths.lost_connection import through_sharer
from pytracer.analyze.evidence.exceptions.line_reasons import LineReason
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

RAN_ON = "running"
_REMOVERS = frozenset({"rmtree", "cleanup", "unlink", "remove", "TemporaryDirectory"})
_SHOWN = 2


class LivingSender(LineReason, frozen=True):
    """`lines`: those of the program that remove files."""

    evidence: Evidence


def living_sender(job: JobView, view: ProcessView) -> LivingSender | None:
    """None where any other process of the job had ended before: that one may have sent it."""
    own, raised = view.exception, view.process.exception_mono_ns
    if own is None or raised is None or own.type != "FileNotFoundError":
        return None
    if not through_sharer(view.exception_stack):
        return None
    others = [item for item in job.views if item is not view and item.work is not None]
    at = failing_line(view.process.snapshot, own, view.exception_stack)
    if at is None or not others or any((item.process.ended_mono_ns or raised + 1) <= raised for item in others):
        return None
    who = list_words([name_words([item]) for item in others], _SHOWN)
    removing = [*_removing(at)]
    named = removing[:_SHOWN] if len(removing) <= _SHOWN else []
    places = [at.in_file(file, call.lineno) for file, call in named]
    removed = list_words([f"{place} (`{short(source(call))}`)" for place, (_, call) in zip(places, named, strict=True)])
    look = (
        f"See whether {removed} removes it, and leave what begins with `pymp-` there"
        if removed
        else "Find what removes files there while the job runs (a cleanup of the program, the node, another job)"
    )
    return LivingSender(
        f"the socket of the process that sent the tensor is gone, though {who} still ran",
        "That socket lies in a folder `pymp-...` of the temporary directory (TMPDIR, tempfile.tempdir), which must "
        f"stay until all tensors are received. {look}; or give the program's own files a folder of their own.",
        tuple(places),
        Evidence(
            "exit-status",
            f"{who} had not ended when the tensor could not be received: its socket was removed",
            pid=others[0].process.snapshot.pid,
            state=RAN_ON,
        ),
    )


def _removing(at: FailingLine) -> Iterator[tuple[str, ast.Call]]:
    """The calls of the program that remove files or folders."""
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) in _REMOVERS:
                yield file, item
