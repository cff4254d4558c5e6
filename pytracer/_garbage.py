"""Python's search for cycles of objects, which those who read recordings do without: they make few, and soon end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Nothing that is read has cycles; looking for them again and again would take a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def end_uncollected() -> None:
    """The process is about to end: what it leaves is not searched once more, which took 0.1 s after `inspect`."""
    gc.freeze()
