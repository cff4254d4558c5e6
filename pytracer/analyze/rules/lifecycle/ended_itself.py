"""ended-itself: the program, or a library in it, ended the process by exit() or _exit().

What: a process ended with a status other than 0, no exception was on its way to the top, and its black box has the
stacks of the thread that asked for the end: os._exit() in Python, or exit() in a native library.

Why it happens: a watchdog of the program calls os._exit(), because a stuck thread would hold up sys.exit(); a library
prints a message and calls exit() where it could have raised an error, some of them on a thread of their own.

What to do: read the last lines of the output: whoever ends a process in this way usually says why. Then look at the
place that is named.

How it can be wrong: the place is where the end was asked for, not why. After `pytracer.enable()` alone os._exit()
passes unseen, and the system call itself always does.
"""

from __future__ import annotations

import re

from pytracer.analyze.deaths.ending import ending_in_mid_work
from pytracer.analyze.evidence.native_stack import frame_words, image_name, own_frames
from pytracer.analyze.evidence.phrases import collective_evidence, python_evidence
from pytracer.analyze.view import Draft, JobView, Outcome, ProcessView, draft, not_found, place_words, subject_words
from pytracer.report.job import NativeFrame

_LIBC = re.compile(r"libc[.-]")
_PYTHON = re.compile(r"(lib)?python\d|_ctypes|libffi")  # the interpreter, and its way into foreign functions


class EndedItself:
    """Fires for suspects whose box has the stacks of their end."""

    id = "ended-itself"
    needs = ("status",)

    def examine(self, job: JobView) -> Outcome:
        """One finding for processes that ended at the same place with the same status."""
        groups: dict[tuple[object, ...], list[ProcessView]] = {}
        for view in job.suspects:
            process = view.process
            if view.index in job.explained or process.status_kind != "exited":
                continue
            if ending_in_mid_work(process.snapshot) is None:
                continue
            groups.setdefault((process.exit_code, _says(view)), []).append(view)
        drafts = [self._explain(views) for views in groups.values()]
        return Outcome(tuple(drafts)) if drafts else not_found("no process asked for its own end in mid-work")

    def _explain(self, views: list[ProcessView]) -> Draft:
        view = views[0]
        return draft(
            self.id,
            "exit",
            "certain",
            views,
            f"{subject_words(views)} ended itself with exit status {view.process.exit_code}: {_says(view)}.",
            [python_evidence(view), collective_evidence(views)],
            "Read the last lines of its output: whoever ends a process in this way usually says why.",
            ["why it did: an exit status does not tell"],
        )


def _says(view: ProcessView) -> str:
    """Who called what, and where."""
    frames, python = own_frames(view), view.python_frame
    function = "exit()" if frames and _LIBC.match(image_name(frames[0].image)) else "_exit()"
    caller = _library(frames)
    if caller is not None:
        return f"{function} was called in {_place(caller)}" + (f", below {place_words(python)}" if python else "")
    if python is None:
        return f"{function} was called on a thread without Python"
    return f"{'os._exit()' if function == '_exit()' else function} was called at {place_words(python)}"


def _library(frames: list[NativeFrame]) -> NativeFrame | None:
    """The innermost frame that is neither the C library's nor the interpreter's, if the call came from there."""
    outside = (frame for frame in frames if not _LIBC.match(image_name(frame.image)))
    first = next(outside, None)
    return None if first is None or _PYTHON.match(image_name(first.image)) else first


def _place(frame: NativeFrame) -> str:
    words = frame_words(frame)
    return f"{words} ({image_name(frame.image)})" if frame.function else words
