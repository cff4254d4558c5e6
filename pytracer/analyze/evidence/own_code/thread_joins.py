"""A std::thread of the program's own library that an exception left, and the function that was waiting to join it.

A `try` around join() does not catch what the thread throws: C++ ends the process where an exception leaves a thread.
"""

from __future__ import annotations

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import ThreadStack
from pytracer.report.job import PythonFrame

LEFT = "it left a std::thread"
_RUNS = Pattern(r"^std::thread::_State_impl\b.*_M_run\b")
_JOINS = Pattern(r"^std::thread::join\b")
_FOREIGN = ("_ctypes.", "_cffi_backend.", "libffi.")


class ThreadJoin(msgspec.Struct, frozen=True):
    """`function` of the library whose thread died was in join(), which Python had called `at`; `by_ctypes`: so."""

    function: str
    at: PythonFrame | None
    by_ctypes: bool

    @property
    def clause(self) -> str:
        """`it left a std::thread while shard_read() (called at job.py:80 in read) waited in join()`."""
        called = f" (called at {place_words(self.at)})" if self.at is not None else ""
        return f"{LEFT} while {self.function}(){called} waited in join(), where no `try` can catch it"

    @property
    def hands_on(self) -> str:
        """What that function does with the exception, once it has it."""
        if self.by_ctypes:
            return "and return an error to Python: ctypes cannot hand exceptions on"
        return "as at::parallel_for() does: then Python shows its message as an ordinary error"


def left_std_thread(view: ProcessView) -> bool:
    """Whether what crashed is a std::thread that runs code of the program's own library."""
    crash = view.crash
    if crash is None or crash.python_stack or crash.tid == view.process.snapshot.pid:
        return False
    return any(_RUNS.match(item.function or "") and is_own_path(item.image) for item in own_frames(view))


def thread_join(view: ProcessView) -> ThreadJoin | None:
    """None where no other thread, or more than one, was in join() of a std::thread below that library."""
    crash = view.crash
    if crash is None or not left_std_thread(view):
        return None
    own = {item.image for item in own_frames(view) if _RUNS.match(item.function or "")}
    found = [item for thread in crash.threads if (item := _joining(view, thread, own)) is not None]
    return found[0] if len(found) == 1 else None


def _joining(view: ProcessView, thread: ThreadStack, own: set[str | None]) -> ThreadJoin | None:
    stack = thread.native_stack
    joins = next((at for at, item in enumerate(stack) if _JOINS.match(item.function or "")), None)
    if joins is None:
        return None
    caller = next((item for item in stack[joins + 1 :] if not (item.function or "").startswith("std::")), None)
    if caller is None or caller.function is None or caller.image not in own:
        return None
    by_ctypes = any(image_name(item.image).startswith(_FOREIGN) for item in stack[joins + 1 :])
    return ThreadJoin(function_words(caller.function), _line(view, thread), by_ctypes)


def _line(view: ProcessView, thread: ThreadStack) -> PythonFrame | None:
    """The innermost line of the program that the thread was at."""
    stacks = view.crash.python_threads if view.crash is not None else ()
    frames = next((frames for pthread, frames in stacks if pthread == thread.pthread), ())
    return next((python_frame(item) for item in frames if not is_library_file(item.file)), None)
