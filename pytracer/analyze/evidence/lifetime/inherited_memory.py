"""Memory that a forked child did not get from its parent, although the tensor in it was copied."""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.waits.waits import was_forked
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

PINNED = "PINNED"
_FORKS = tuple(
    f"/{name}/popen_{how}.py" for name in ("multiprocessing", "multiprocess") for how in ("fork", "forkserver")
)


def was_left_behind(view: ProcessView) -> bool:
    """Whether the faulting address lay in a storage that is older than this forked process, and in no mapping of it.

    The parent's allocator gives such memory back by a release, which the child would have recorded. Memory that others
    own is not meant: its owner may have unmapped it in the child.
    """
    place, crash = view.place, view.crash
    if place is None or crash is None or place.kind != "in-storage" or place.storage is None or place.found != "exact":
        return False
    made = place.storage.allocated
    older = made.mono_ns is not None and made.mono_ns < view.process.snapshot.created_mono_ns
    if place.mapping is not None or not older or not was_forked(view):
        return False
    if is_borrowed(place.storage) and not is_pinned(view):
        return False
    return any(item.end > place.addr for item in crash.mappings)


def is_pinned(view: ProcessView) -> bool:
    """Whether CUDA made the memory: its mappings are never in a child."""
    place = view.place
    return place is not None and place.storage is not None and place.storage.origin == PINNED


def fork_line(view: ProcessView) -> PythonFrame | None:
    """The line that started the child by multiprocessing: its stack is the parent's below the child's own part."""
    stack = view.python_stack or []
    at = next((n for n, frame in enumerate(stack) if (frame.file or "").endswith(_FORKS)), None)
    if at is None:
        return None
    return next((frame for frame in stack[at:] if not is_library_file(frame.file)), None)
