"""timeout(1) that ended its command as its time had passed: its status, and the signal, report nobody's failure.

coreutils, src/timeout.c: the status is 124 only after its own timer; a signal that it passes on, and the end of the
command by itself, leave other ones.
"""

from __future__ import annotations

from pytracer.analyze.evidence.ends.sent_signals import sent_signals
from pytracer.analyze.naming import program_name
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot

_TIMED_OUT = 124


def was_at_time_limit(view: ProcessView) -> bool:
    """Whether it is timeout(1), whose time had passed."""
    process = view.process
    is_timeout = program_name(process.snapshot.argv) == "timeout" and process.snapshot.versions.python is None
    return is_timeout and process.status_kind == "exited" and process.exit_code == _TIMED_OUT


def sent_at_time_limit(parent: ProcessView, ended: Snapshot) -> bool:
    """Whether the process had a signal of such a parent, by its own record."""
    pid = parent.process.snapshot.pid
    return was_at_time_limit(parent) and any(sent.sender_pid == pid for sent in sent_signals(ended))
