"""Standard streams that were closed before the program started, as daemons and `>&-` leave them."""

from __future__ import annotations

import os
import sys


def occupy_closed_streams() -> None:
    """Opens closed standard streams as /dev/null, close-on-exec: programs that it executes find them closed.

    Otherwise the next opened file gets the number and receives the output; and Python, without a stderr, would print
    errors on stdout. Output that is lost is still an error: stdout is opened for reading.
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
