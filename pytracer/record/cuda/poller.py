"""A thread that polls once a second what only devices know: idle CUDA streams, progress of NCCL's collectives.

None of that can be queried while a process dies, so the recording is kept up to date before. Nothing here waits for a
device. The thread ends before the interpreter does: one that waits for the GIL then would be ended by pthread_exit()
inside C++ (see pytorch/pytorch#190489 for the effect).
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.core import Core
from pytracer.record.cuda.library import CudaLibrary
from pytracer.record.cuda.nccl import Groups

SECONDS = 1.0
_JOIN_SECONDS = 5.0

_thread: threading.Thread | None = None
_stop = threading.Event()


def start(box: Core, hooks: CudaLibrary) -> None:
    """Starts the thread, once."""
    global _thread
    if _thread is not None and _thread.is_alive():
        return
    _stop.clear()
    _thread = threading.Thread(target=_Watch(box, hooks).run, name="pytracer-cuda", daemon=True)
    _thread.start()
    atexit.register(stop)


def stop() -> None:
    """Ends the thread."""
    global _thread
    _stop.set()
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_JOIN_SECONDS)
    _thread = None
    atexit.unregister(stop)


class _Watch:
    """The queries of each poll; one that fails is not repeated."""

    def __init__(self, box: Core, hooks: CudaLibrary) -> None:
        self._box, self._hooks = box, hooks
        groups = Groups(hooks)
        self._questions: dict[str, Callable[[], bool | None]] = {
            "whether the allocator's tracker works": self._hear,
            "what streams do": self._ask_streams,
            "how far NCCL's collectives get": groups.look,
        }

    def run(self) -> None:
        """Until it is asked to stop."""
        while self._questions and not _stop.wait(SECONDS):
            for what, ask in list(self._questions.items()):
                try:
                    done = ask()
                except Exception as error:
                    done = True
                    self._box.lib.pytracer_count_hook_error()
                    self._box.note(NoteCode.CUDA, f"it is not recorded {what}: {type(error).__name__}: {error}")
                if done:
                    del self._questions[what]
            self._hooks.progress_read()

    def _hear(self) -> bool | None:
        if self._hooks.events():
            return True
        if not self._hooks.is_deaf():
            return None
        self._box.note(
            NoteCode.CUDA, "memory of CUDA devices is not followed: the allocator took the tracker and never calls it"
        )
        return True

    def _ask_streams(self) -> bool | None:
        """After a failure every query returns the same error."""
        return bool(self._hooks.ask_streams()) or None
