"""Standard streams that were closed before we began, as daemons and `>&-` leave them."""

from __future__ import annotations

import os
import sys


def occupy_closed_streams() -> None:
    """Gives closed standard streams to /dev/null for this process alone; what it executes finds them closed.

    Otherwise the next file that is opened takes the number, and what is printed lands in it; and Python, which has no
    stream, would print what is meant for stderr on stdout. A product that nobody gets is still an error: stdout is
    opened for reading.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            way = os.O_RDONLY if number == 1 else os.O_RDWR
            os.open(os.devnull, way | os.O_CLOEXEC)  # the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
