"""Whether SIGCHLD is ignored when an exception is recorded: the kernel then keeps no exit status of a child.

As the variable `SIGCHLD action`, and only then. Python knows what the program set, and what the process inherited.
"""

from __future__ import annotations

import signal

from pytracer.record.config import records_values


def child_statuses() -> list[dict[str, str]]:
    """Nothing below `--no-values`, as of all that is beside the variables."""
    if not records_values() or signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        return []
    return [{"name": "SIGCHLD action", "value": "ignored"}]
