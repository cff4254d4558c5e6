"""A line of the user's program as it ran: what an operator written in C++ was called from.

`tensor.set_(other)` leaves no Python frame of its own: the frame that freed the old memory is the user's line, and only
its text tells why. It is quoted only when the file has not changed since the process began.
"""

from __future__ import annotations

import os
import stat

from pytracer.analyze.report import PythonFrame
from pytracer.decode.snapshot import Snapshot

_LARGEST_BYTES = 4 << 20
_LONGEST = 160


def line_text(snapshot: Snapshot, frame: PythonFrame | None) -> str | None:
    """The text of a frame's line without its indentation.

    Args:
        snapshot: The process that ran it.
        frame: Where.

    Returns:
        None when the file is not here, or is newer than the process, so that the line may be another one.
    """
    if frame is None or not frame.file or not frame.line or not frame.file.startswith("/"):
        return None
    try:
        status = os.stat(frame.file)  # a box may name anything: a pipe or a device must not be opened
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            return None
        if status.st_mtime_ns > snapshot.created_wall_ns:
            return None
        with open(frame.file, encoding="utf-8", errors="replace") as file:
            text = next((line for number, line in enumerate(file, 1) if number == frame.line), "")
    except (OSError, ValueError):
        return None
    return text.strip()[:_LONGEST] or None
