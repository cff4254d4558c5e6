"""What an exception of torch's DataLoader reports."""

from __future__ import annotations

import re

from pytracer.analyze.view import ProcessView

_TIMED_OUT = re.compile(r"DataLoader timed out after (\d+) seconds?")  # torch 2.13, utils/data/dataloader.py


def loader_timeout(view: ProcessView) -> str | None:
    """The seconds after which a process gave up waiting for its workers, if that ended it."""
    match = _TIMED_OUT.search((view.exception.message if view.exception else None) or "")
    return match[1] if match is not None and view.raised else None
