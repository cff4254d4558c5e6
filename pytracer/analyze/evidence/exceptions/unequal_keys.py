"""A connection of multiprocessing that was refused, because the two processes have different authentication keys.

Each program makes a random key (`multiprocessing.current_process().authkey`), which only the processes inherit that
multiprocessing itself starts. A descriptor of a tensor, queue or lock goes by such a connection from the thread
`_serve` of its sender, which records the refusal, too. Ranks that torchrun or srun started are programs of their own.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Behind
from pytracer.analyze.deaths.lost_connection import through_sharer
from pytracer.analyze.kin import others_of_machine, parent_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.job.identity import runs_agent
from pytracer.decode.types.journal import UncaughtException
from pytracer.report.job import Evidence, PythonFrame

_TYPE = Pattern(r"(?:^|\.)AuthenticationError$")
_REFUSED = Pattern(r"^digest (?:sent was rejected|received was wrong)")
_CONNECTION = Pattern(r"/multiprocess(?:ing)?/connection\.py$")
_AROUND_NS = 3_000_000_000
_KEY = "multiprocessing.current_process().authkey"


class UnequalKey(msgspec.Struct, frozen=True):
    """Both keys, as the explanation of an exception. `evidence`: what the other process recorded."""

    subject: str
    advice: str
    line: PythonFrame | None
    evidence: Evidence | None = None

    @property
    def behind(self) -> Behind:
        """The line that asked alone: none of its values is at fault."""
        return Behind.of([], self.line)


def unequal_key(job: JobView, view: ProcessView) -> UnequalKey | None:
    """None for what another server refused, such as one with a password of its own."""
    exception, raised = view.exception, view.process.exception_mono_ns
    if exception is None or raised is None or not _TYPE.search(exception.type or ""):
        return None
    stack = view.exception_stack
    if not _REFUSED.search(exception.message or "") or not any(_CONNECTION.search(frame.file or "") for frame in stack):
        return None
    return _of_descriptor(job, view, raised) if through_sharer(stack) else _of_server(view)


def _of_descriptor(job: JobView, view: ProcessView, raised_ns: int) -> UnequalKey:
    """The sharer's key is that of its process, and so is the one that asks."""
    refusing = [item for item in others_of_machine(job, view) if _refused(item, raised_ns)]
    other = f"{name_words(refusing)}," if len(refusing) == 1 else "the process"
    parent = parent_of(job, view)
    by_agent = parent is not None and runs_agent(parent.process.snapshot.argv) and view.process.role == "rank"
    random = "each rank that torchrun starts makes" if by_agent else "each program makes"
    frame = view.python_frame
    before = f" before line {frame.line}" if frame is not None and frame.line is not None else ""
    if view.process.rank is not None:
        share = f"broadcast `bytes({_KEY})` of one rank by broadcast_object_list(), and set it on each as that authkey"
        start = "start the ranks by torch.multiprocessing.spawn()"
    else:
        share = f"pass `bytes({_KEY})` of one to the other, and set it there as that authkey"
        start = "let multiprocessing start both from one program"
    return UnequalKey(
        f"its multiprocessing authkey is not that of {other} whose descriptors of shared memory it asks for: {random} "
        "a random one",
        f"Give the processes one key{before}: {share}. Or {start}, which hands the key on; or share by a name or file "
        "instead (multiprocessing.shared_memory, torch.from_file(), np.memmap). What was pickled holds only handles, "
        "and is not damaged.",
        frame,
        _evidence(refusing[0]) if len(refusing) == 1 else None,
    )


def _evidence(sharer: ProcessView) -> Evidence:
    """The refusal at the other end, which did not end that process."""
    return Evidence(
        "thread-exception",
        f"a thread of {name_words([sharer])} that sends file descriptors refused it: digest received was wrong",
        pid=sharer.process.snapshot.pid,
        rank=sharer.process.rank,
        exception="AuthenticationError",
        text="digest received was wrong",
    )


def _of_server(view: ProcessView) -> UnequalKey:
    frame = view.python_frame
    at = f" at line {frame.line}" if frame is not None and frame.line is not None else ""
    return UnequalKey(
        "its authkey is not that of the other end of the connection",
        f"Pass the same authkey (bytes) at both ends: to Listener() or the manager that serves, and to Client() or the "
        f"manager that connects{at}. Without one, each takes that of its process ({_KEY}): it is random in each "
        "program, and only the processes that multiprocessing starts inherit it.",
        frame,
    )


def _refused(sharer: ProcessView, raised_ns: int) -> bool:
    """Whether its thread that sends descriptors refused someone at that time."""
    snapshot = sharer.process.snapshot
    return any(
        fact.mono_ns >= max(snapshot.created_mono_ns, raised_ns - _AROUND_NS)
        and fact.mono_ns <= raised_ns + _AROUND_NS
        and _REFUSED.search(fact.data.message or "")
        and through_sharer(fact.data.python_stack)
        for fact in snapshot.recorded(UncaughtException)
    )
