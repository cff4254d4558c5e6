"""Who sent a signal: its part in the job, its pid and its command line."""

from __future__ import annotations

from pytracer.analyze.evidence.sent_signals import deadly_signal
from pytracer.analyze.platform.signals import SI_USER
from pytracer.analyze.view import JobView, ProcessView, program_name, subject_words
from pytracer.report.job import Evidence


def sender_words(job: JobView, view: ProcessView) -> str | None:
    """`torchrun's agent, process 100 (torchrun)`; None when the sender is not known."""
    sent = deadly_signal(view)
    if sent is None:
        return None
    if not sent.sender_pid:
        # kill() always has a sender; pid 0 is one outside of the receiver's pid namespace.
        return "a process outside of this container (of another pid namespace)" if sent.code == SI_USER else None
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
        words = subject_words([known])
        return f"{words[0].lower()}{words[1:]}, process {pid}"
    if pid == view.process.snapshot.ppid:
        return f"its parent, process {pid}"
    return f"process {pid}"


def command_evidence(view: ProcessView) -> Evidence | None:
    """The sender's command line, as far as it was kept."""
    sent = deadly_signal(view)
    if sent is None or not sent.command:
        return None
    return Evidence(f"the sender's command line was: {' '.join(sent.command)}", "sender-command")
