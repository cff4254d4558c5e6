"""Who sent a signal: its part in the job, its pid and its command line."""

from __future__ import annotations

from pytracer.analyze.evidence.sent_signals import deadly_signal
from pytracer.analyze.naming import name_words, program_name
from pytracer.analyze.platform.signals import SI_USER
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


def knows_sender(view: ProcessView) -> bool:
    """Whether it is known who sent the signal that ended a process, if only that it was nobody in this container.

    kill() always tells who (SI_USER); a pid of 0 is one that the receiver's pid namespace does not have.
    """
    sent = deadly_signal(view)
    return sent is not None and (bool(sent.sender_pid) or sent.code == SI_USER)


def sender_words(job: JobView, view: ProcessView) -> str | None:
    """`torchrun's agent, process 100 (torchrun)`; None when the sender is not known."""
    sent = deadly_signal(view)
    if sent is None or not knows_sender(view):
        return None
    if not sent.sender_pid:
        return "a process outside of this container (of another pid namespace)"
    pid = sent.sender_pid
    if job.job.launcher is not None and job.job.launcher.pid == pid:
        return f"the launcher, process {pid} (pytracer run)"
    snapshot = view.process.snapshot
    known = next(
        (
            item
            for item in job.views
            if item.process.snapshot.pid == pid and item.process.snapshot.host == snapshot.host
        ),
        None,
    )
    program = program_name(sent.command or (known.process.snapshot.argv if known else ()))
    return _part(known, view, pid) + (f" ({program})" if program else "")


def _part(known: ProcessView | None, view: ProcessView, pid: int) -> str:
    """What the sender is to the job."""
    if known is not None and known.process.role == "launcher":
        return f"torchrun's agent, process {pid}"
    if known is not None and known.process.role == "rank" and known.process.rank is not None:
        return f"{name_words([known])}, process {pid}"
    if pid == view.process.snapshot.ppid:
        return f"its parent, process {pid}"
    return f"process {pid}"


def command_evidence(view: ProcessView) -> Evidence | None:
    """The sender's command line, as far as it was kept."""
    sent = deadly_signal(view)
    if sent is None or not sent.command:
        return None
    return Evidence(
        "sender-command",
        f"the sender's command line was: {' '.join(sent.command)}",
        pid=sent.sender_pid or None,
        command=list(sent.command),
    )
