"""Signals that were sent to a process, as the process itself saw them: with the sender, as far as it was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from pytracer.analyze.platform.signals import SI_USER
from pytracer.decode.types.journal import SeenSignal
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

if TYPE_CHECKING:
    from pytracer.analyze.view import ProcessView


_GRACE_NS = 120_000_000_000  # between a request to end and SIGKILL, schedulers wait for less


class Sent(msgspec.Struct, frozen=True):
    """One signal. `sender_pid` is 0 for the kernel and for processes of another pid namespace."""

    signal: int
    code: int
    sender_pid: int
    command: tuple[str, ...]
    mono_ns: int
    handled: bool = False
    """The program had a handler for it."""
    frame: PythonFrame | None = None
    """The Python line that sent it, where the sender noted it."""


def sent_signals(snapshot: Snapshot, number: int | None = None) -> list[Sent]:
    """The process's own SIGNAL_SEEN entries, oldest first; of one signal when `number` is given.

    SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGXCPU are noted, below preload only.
    """
    return [
        Sent(
            fact.data.signal,
            fact.data.code,
            fact.data.sender_pid,
            fact.data.sender_command,
            fact.mono_ns,
            fact.data.handled,
        )
        for fact in snapshot.recorded(SeenSignal)
        if fact.mono_ns >= snapshot.created_mono_ns and number in (None, fact.data.signal)
    ]


def deadly_signal(view: ProcessView) -> Sent | None:
    """The signal that ended the process, when it was sent and is on record.

    A handler that restores the default action and raises the same signal again passes a request on: torch's in the
    workers of a DataLoader does so.
    """
    sent = _with_line(view, _last_signal(view))
    return sent if sent is None else first_sent(view.process.snapshot, sent)


def first_sent(snapshot: Snapshot, sent: Sent) -> Sent:
    """The signal of another process that a handler of the process passed on to itself; else the same."""
    if sent.sender_pid != snapshot.pid:
        return sent
    passed_on = [
        earlier
        for earlier in sent_signals(snapshot, sent.signal)
        if earlier.handled and earlier.sender_pid != snapshot.pid and earlier.mono_ns <= sent.mono_ns
    ]
    return passed_on[-1] if passed_on else sent


def last_request(view: ProcessView) -> Sent | None:
    """The last signal from another process that asked this one to end: all that is known of an unrecorded end.

    Handlers raise it again, for the one that was installed before: Abseil's in Ray's processes.
    """
    own = view.process.snapshot.pid
    sent = [item for item in sent_signals(view.process.snapshot) if item.sender_pid or item.code == SI_USER]
    if sent and sent[-1].sender_pid == own:
        sent = [item for item in sent if item.handled and item.signal == sent[-1].signal and item.sender_pid != own]
    return sent[-1] if sent else None


def obeyed(view: ProcessView) -> bool:
    """Whether the process had handled a request to end shortly before: it saves what it has, and leaves by a status."""
    sent, ended = last_request(view), view.process.snapshot.exit_mono_ns or view.process.ended_mono_ns
    return sent is not None and sent.handled and ended is not None and 0 <= ended - sent.mono_ns <= _GRACE_NS


def _with_line(view: ProcessView, sent: Sent | None) -> Sent | None:
    """What the sender noted: who it was, where the process itself could not record that, and its line."""
    noted = [item for item in view.senders if sent is None or item.sender.snapshot.pid == sent.sender_pid]
    if sent is not None:
        before = [item for item in noted if item.send.mono_ns <= sent.mono_ns]
        return structs.replace(sent, frame=before[-1].frame) if before else sent
    if not noted or view.raised:
        return None
    first = noted[0]
    sender = first.sender.snapshot
    return Sent(first.send.signal, SI_USER, sender.pid, (), first.send.mono_ns, frame=first.frame)


def _last_signal(view: ProcessView) -> Sent | None:
    crash, process = view.crash, view.process
    if crash is not None:
        if crash.code > 0:
            return None
        return Sent(crash.signal, crash.code, crash.sender_pid or 0, crash.sender_command, crash.mono_ns)
    if process.signal is None:
        return None
    return next(reversed(sent_signals(process.snapshot, process.signal)), None)
