"""SIGNAL_SENT entries: the signals that a process sent."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.blackbox import schema
from pytracer.blackbox.codec import decode
from pytracer.blackbox.schema import Entry
from pytracer.blackbox.structures import SignalSentEntry
from pytracer.decode.recording.journal import NO_SEQUENCE_NR, Journal
from pytracer.decode.types.snapshot import SignalSend

_NOT_RETURNED = -1
_MOST = 4096  # the recorder writes fewer


def signal_sends(journal: Journal, created_mono_ns: int) -> tuple[SignalSend, ...]:
    """Those of the process itself, oldest first; a forked child's journal begins with its parent's entries."""
    return tuple(send for send in _sends(journal) if send.mono_ns >= created_mono_ns)


def _sends(journal: Journal) -> Iterator[SignalSend]:
    size = schema.SIGNAL_SENT_ENTRY.nbytes
    entries = (entry for entry in journal.entries.values() if entry.kind == Entry.SIGNAL_SENT)
    for entry in [entry for entry in entries if len(entry.payload) >= size][:_MOST]:
        head = decode(SignalSentEntry, entry.payload)
        path = entry.payload[size : size + head.image_nbytes].rstrip(b"\0").decode("utf-8", "replace")
        state = chr(head.target_state) if 32 < head.target_state < 127 else None
        yield SignalSend(
            signal=head.signal,
            target=head.target,
            to_group=bool(head.to_group),
            result=None if head.result == _NOT_RETURNED else head.result,
            target_ticks=head.target_ticks or None,
            target_state=state,
            tid=head.tid,
            mono_ns=entry.mono_ns,
            stack=journal.site(head.stack_id, NO_SEQUENCE_NR).stack,
            image=path or None,
            image_offset=(head.caller_offset or None) if path else None,
        )
