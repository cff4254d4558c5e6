"""What a process was doing when it ended itself."""

from __future__ import annotations

from pytracer.decode.types.snapshot import Crash


def ending_in_mid_work(ending: Crash | None) -> Crash | None:
    """The stacks of exit() or _exit(), if work was going on.

    A child of multiprocessing whose work has ended calls os._exit(), too, and has frames of its parent.
    """
    if ending is None or any("/multiprocessing/" in frame.file for frame in ending.python_stack[:1]):
        return None
    return ending
