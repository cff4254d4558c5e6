"""Who sent the signal that ended a process, by what other processes of the run noted before they sent it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer.analyze.platform.signals import SIGKILL
from pytracer.analyze.view import RecordedSender
from pytracer.decode.types.snapshot import Process, SignalSend, Snapshot

_DEAD = ("Z", "X")
_EVERY_PROCESS = -1
_TOGETHER_NS = 50_000_000  # a killed process may still be seen alive for so long


def recorded_senders(processes: Sequence[Process]) -> dict[int, tuple[RecordedSender, ...]]:
    """By the index of the process that was ended: who may have done it, oldest first."""
    senders: dict[tuple[str, str], list[Process]] = {}  # by host: a large job has one on each
    for process in processes:
        if process.snapshot.sends:
            senders.setdefault(_boot_of(process), []).append(process)
    found = {
        index: _effective(list(_senders_of(process, senders.get(_boot_of(process), ()))))
        for index, process in enumerate(processes)
    }
    return {index: items for index, items in found.items() if items}


def _boot_of(process: Process) -> tuple[str, str]:
    return process.snapshot.host, process.snapshot.boot_id


def _effective(items: list[RecordedSender]) -> tuple[RecordedSender, ...]:
    """Of SIGKILL the first one counts, and what was sent at nearly the same moment; of others all, since one may be
    handled and the next one not.
    """
    items.sort(key=lambda item: item.send.mono_ns)
    sure = next((item for item in items if item.sure and item.send.signal == SIGKILL), None)
    if sure is None:
        return tuple(items)
    return tuple(item for item in items if item.send.mono_ns <= sure.send.mono_ns + _TOGETHER_NS)


def _senders_of(victim: Process, senders: Sequence[Process]) -> Iterator[RecordedSender]:
    """Among the processes of its host."""
    if victim.status_kind != "signaled" or victim.signal is None:
        return
    own = victim.snapshot
    for sender in senders:
        for send in sender.snapshot.sends:
            if send.signal != victim.signal:
                continue
            itself = sender is victim and send.result is None  # a call that ends the caller does not return
            if itself or _may_have_ended(send, victim):
                sure = itself or (not send.to_group and _is_known(send, sender, own) and send.result == 0)
                yield RecordedSender(sender, send, sure)


def _is_known(send: SignalSend, sender: Process, victim: Snapshot) -> bool:
    """Without a recording its start time may not be known: but a pid stays its own until its parent reaps it."""
    by_parent = not victim.facts and sender.snapshot.pid == victim.ppid and send.target_ticks is not None
    return send.target_ticks == victim.start_ticks or by_parent


def _may_have_ended(send: SignalSend, victim: Process) -> bool:
    own, ended = victim.snapshot, victim.ended_mono_ns
    if send.result not in (0, None) or send.target_state in _DEAD or (ended is not None and send.mono_ns > ended):
        return False
    if send.to_group:
        group = own.process_group or own.pid  # of what has no recording it is not known: at least the leader
        return send.target in (_EVERY_PROCESS, group) and send.mono_ns >= own.created_mono_ns
    if send.target != own.pid:
        return False
    if send.target_ticks is None or not own.facts:  # without a recording the start time is a lower bound
        return send.mono_ns >= own.created_mono_ns and (send.target_ticks or own.start_ticks) >= own.start_ticks
    return send.target_ticks == own.start_ticks
