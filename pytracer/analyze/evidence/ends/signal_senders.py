"""Who sent a signal: its part in the job, its pid and its command line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from pytracer._patterns import Pattern
from pytracer._started_package import program_name
from pytracer._text import time_words
from pytracer.analyze.evidence.ends.sent_signals import Sent, deadly_signal, sent_signals
from pytracer.analyze.kin import on_one_machine
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.platform.signals import SI_KERNEL, SI_USER, SIGHUP, signal_name
from pytracer.analyze.view import JobView, ProcessView, RecordedSender
from pytracer.decode.job.identity import runs_agent
from pytracer.report.job import Evidence

_SLURMSTEPD = Pattern(r"(.*/)?slurmstepd\b")


def knows_sender(view: ProcessView) -> bool:
    """Whether the sender of the signal that ended a process is known, if only that it was outside this container.

    kill() always has a sender (SI_USER); a pid of 0 is one outside of the receiver's pid namespace.
    """
    sent = deadly_signal(view)
    return sent is not None and _has_sender(sent)


def _has_sender(sent: Sent) -> bool:
    return bool(sent.sender_pid) or sent.code == SI_USER or _by_terminal(sent)


def _by_terminal(sent: Sent) -> bool:
    """The kernel itself sends SIGHUP only when a terminal goes away, or the shell that owned it ends."""
    return sent.signal == SIGHUP and sent.code == SI_KERNEL


def lost_terminal(job: JobView, view: ProcessView) -> bool:
    """Whether the end of a terminal began the chain of senders."""
    sent = deadly_signal(view)
    return sent is not None and knows_sender(view) and _by_terminal(list(_senders(job, view, sent))[-1].sent)


def sender_is_sure(view: ProcessView) -> bool:
    """Whether the one who ended a process is known for certain: by the kernel, or by the only sender that noted it."""
    if _knows_by_itself(view):
        return True
    return len({item.sender.snapshot.path for item in view.senders}) == 1 and any(item.sure for item in view.senders)


def _knows_by_itself(view: ProcessView) -> bool:
    return view.crash is not None or bool(sent_signals(view.process.snapshot, view.process.signal))


def sender_words(job: JobView, view: ProcessView) -> str | None:
    """`torchrun's agent, process 100 (torchrun)`; None when the sender is not known.

    A sender that a signal from elsewhere had reached before only passed it on: the words go back to the first one.
    """
    sent = deadly_signal(view)
    return chain_words(job, view, sent) if sent is not None and knows_sender(view) else None


def chain_words(job: JobView, view: ProcessView, sent: Sent) -> str:
    """Who sent a signal to a process, and who had sent one to that sender before, through all recordings."""
    chain = list(_senders(job, view, sent))
    words = _sender(job, chain[0])
    for before, link in pairwise(chain):
        after = "" if link.sent.signal == before.sent.signal else f" {signal_name(link.sent.signal)}"
        words += f", which had received{after or ' it'} from {_sender(job, link)}"
    return words


def senders_words(job: JobView, view: ProcessView) -> str:
    """All who noted it, where one of them did it: `process 100 (a.py), at a.py:3 in f, or process 101 (b.py)`."""
    words = []
    for item in view.senders:
        sender = item.sender.snapshot
        sent = Sent(item.send.signal, SI_USER, sender.pid, (), item.send.mono_ns, frame=item.frame)
        words.append(_sender(job, _Link(view, sent, recorded_sender(job, view, sent))))
    return ", or ".join(dict.fromkeys(words))


class _Link(msgspec.Struct, frozen=True):
    """A signal, who received it, and its sender's recording, if there is one."""

    receiver: ProcessView
    sent: Sent
    sender: ProcessView | None


def _senders(job: JobView, view: ProcessView, sent: Sent) -> Iterator[_Link]:
    """The signal, then the one that its sender had received before, and so on."""
    seen = {view.index}
    while True:
        sender = recorded_sender(job, view, sent)
        yield _Link(view, sent, sender)
        if sender is None or sender.index in seen:
            return
        seen.add(sender.index)
        earlier = [item for item in sent_signals(sender.process.snapshot) if item.mono_ns <= sent.mono_ns]
        if not earlier or not _has_sender(earlier[0]):
            return
        view, sent = sender, earlier[-1]


def recorded_sender(job: JobView, view: ProcessView, sent: Sent) -> ProcessView | None:
    """The sender among the recorded processes of the receiver's host."""
    alike = [
        item
        for item in job.views
        if item.process.snapshot.pid == sent.sender_pid
        and on_one_machine(item, view)
        and item.process.snapshot.created_mono_ns <= sent.mono_ns
    ]
    return max(alike, key=lambda item: item.process.snapshot.created_mono_ns, default=None)


def _sender(job: JobView, link: _Link) -> str:
    """`its parent, process 12 (timeout)`."""
    pid = link.sent.sender_pid
    if _by_terminal(link.sent):
        return "the kernel, because its terminal was closed"
    if not pid:
        return "a process outside of this container (of another pid namespace)"
    own = link.receiver.process.snapshot
    if any((item.host, item.boot_id, item.pid) == (own.host, own.boot_id, pid) for item in job.job.launchers):
        return f"the launcher, process {pid} (pytracer run)"
    program = program_name(link.sent.command or (link.sender.process.snapshot.argv if link.sender else ()))
    agent = link.sender is not None and link.sender.process.role == "launcher"  # its line is that of torchrun's script
    at = f", at {place_words(link.sent.frame)}" if link.sent.frame is not None and not agent else ""
    return _part(link.sender, link.receiver, pid) + (f" ({program})" if program else "") + at


def from_time_limit(job: JobView, view: ProcessView) -> bool:
    """Whether timeout(1), a scheduler or --hang-action began the chain of senders: they end what takes too long."""
    sent = deadly_signal(view)
    if sent is None or not knows_sender(view):
        return False
    first = list(_senders(job, view, sent))[-1]
    if first.sent.sender_pid in [item.pid for item in job.job.launchers if item.killed_for is not None]:
        return True
    argv = first.sent.command or (first.sender.process.snapshot.argv if first.sender else ())
    return scheduler_of(first.sent) is not None or program_name(argv) == "timeout"


def scheduler_of(sent: Sent) -> str | None:
    """The scheduler whose own daemon sent a signal: Slurm's slurmstepd ends the steps of a job."""
    return "Slurm" if sent.command and _SLURMSTEPD.match(sent.command[0]) else None


def slurm_time_limit(job: JobView) -> tuple[str, str] | None:
    """The time limit of Slurm that ended the step, by its own account: whose ("job" or "step"), and how long it is."""
    states = (launcher.slurm for launcher in job.job.launchers)
    return next((limit for state in states if state is not None and (limit := state.time_limit) is not None), None)


def _part(known: ProcessView | None, view: ProcessView, pid: int) -> str:
    """What the sender is to the job."""
    if known is not None and known.process.role == "launcher" and runs_agent(known.process.snapshot.argv):
        return f"torchrun's agent, process {pid}"
    if known is not None and known.process.role == "rank" and known.process.rank is not None:
        return f"{name_words([known])}, process {pid}"
    if pid == view.process.snapshot.ppid:
        return f"its parent, process {pid}"
    if known is not None and known.process.snapshot.ppid == view.process.snapshot.pid:
        return f"its own child, process {pid}"
    return f"process {pid}"


def noted_evidence(view: ProcessView) -> list[Evidence]:
    """What those who may have sent the signal noted about it."""
    once = {(item.sender.snapshot.path, item.frame): item for item in reversed(view.senders)}
    return [_noted(view, item) for item in reversed(once.values())]


def _noted(view: ProcessView, item: RecordedSender) -> Evidence:
    send, sender = item.send, item.sender.snapshot
    signal, program = signal_name(send.signal), program_name(sender.argv)
    name = f"process {sender.pid}" + (f" ({program})" if program else "")
    to = f"process group {send.target}" if send.to_group else f"process {send.target}"
    if send.target < 0:
        to = "every process"
    if not send.to_group and send.target == sender.pid:
        to = "itself"
    at = f" at {place_words(item.frame)}" if item.frame is not None else ""
    by = "" if at or not send.image else f" by a call in {send.image.rsplit('/', 1)[-1]}"
    when = time_words(view.clock.relative(send.mono_ns) or 0)
    known = ": it was alive then, and had the same start time" if item.sure and sender.pid != send.target else ""
    return Evidence(
        "sender",
        f"{name} noted that it sent {signal} to {to}{at}{by}, {when} after the start{known}",
        pid=sender.pid,
        rank=item.sender.rank,
        signal=signal,
        python=item.frame,
        time=view.clock.relative(send.mono_ns),
    )


def command_evidence(view: ProcessView) -> Evidence | None:
    """The sender's command line, as far as it was kept."""
    sent = deadly_signal(view)
    if sent is None or not sent.command:
        return None
    return Evidence(
        "sender-command",
        f"the sender's command line was: {' '.join(sent.command).rstrip()}",
        pid=sent.sender_pid or None,
        command=list(sent.command),
    )
