"""The lock file that a build of a torch extension left behind, as it was killed: who waits for it waits for ever.

torch.utils.cpp_extension makes `lock` in the build folder, and deletes it when the build has ended, in order or by an
exception (file_baton.py); a signal leaves it there. The build is known by ninja, which runs below it.
"""

from __future__ import annotations

import os

import msgspec

from pytracer._text import time_words
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.kin import ended_before, on_one_machine, parent_of
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.view import JobView, ProcessView

_BATON = "/torch/utils/file_baton.py"
_BUILDER = "ninja"
_BEFORE_NS = 1_000_000_000


class LeftLock(msgspec.Struct, frozen=True):
    """`builder` ran ninja, and a signal ended it."""

    builder: ProcessView
    waits: ProcessView

    @property
    def words(self) -> str:
        """`its builder, process 8 (train.py), had been ended by SIGKILL 27.9 s before, at train.py:57 in finish`."""
        sent = next((item.frame for item in self.builder.senders if item.frame is not None), None)
        at = f", at {place_words(sent)}" if sent is not None else ""
        end, ended = end_of(self.waits), self.builder.process.ended_mono_ns
        before = f" {time_words(end.mono_ns - ended)} before" if end is not None and ended is not None else " before"
        number = signal_name(self.builder.process.signal or 0)
        return f"its builder, {name_words([self.builder])}, had been ended by {number}{before}{at}"

    @property
    def advice(self) -> str:
        """What to delete, and what to leave alone."""
        return (
            "Delete `lock` in the build folder of that extension (build_directory=, TORCH_EXTENSIONS_DIR or "
            f"~/.cache/torch_extensions), which the killed build left there. Let {name_words([self.builder])} end its "
            "build: wait for it longer, or delete that file after the kill."
        )


def left_lock(job: JobView, view: ProcessView) -> LeftLock | None:
    """Of a process that waits for such a lock; None where no build was ended before, or one may have gone on."""
    stack = view.python_stack or []
    if not any((frame.file or "").endswith(_BATON) for frame in stack):
        return None
    builds = {item.index: item for other in job.views if (item := _build(job, other)) is not None}
    if len(builds) != 1:
        return None
    builder = next(iter(builds.values()))
    return LeftLock(builder, view) if builder.index != view.index and _was_killed_before(builder, view) else None


def _was_killed_before(builder: ProcessView, view: ProcessView) -> bool:
    """Not by what ended the one that waits, such as a time limit of both: the build was going on then."""
    if (
        builder.process.signal is None
        or not ended_before(builder, view, _BEFORE_NS)
        or not on_one_machine(builder, view)
    ):
        return False
    ends = [deadly_signal(item) for item in (builder, view)]
    senders = [item.sender_pid if item is not None else None for item in ends]
    return senders[0] is None or senders[0] != senders[1]


def _build(job: JobView, view: ProcessView) -> ProcessView | None:
    """The process that ran ninja, or that one itself where its parent is none of the job's; of a build in progress."""
    argv = view.process.snapshot.argv
    if not argv or os.path.basename(argv[0]) != _BUILDER or view.process.exit_code == 0:
        return None
    return parent_of(job, view) or view
