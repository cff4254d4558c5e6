"""Two threads that were in one native library at once when the process died: it may not be thread-safe.

A library that keeps a buffer or a state of its own fails so, at a place that says nothing. ctypes releases the GIL for
each call, and so do many extensions. Packages that are widely used from threads count only where both threads crashed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.fault_function import EVALUATES, is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.naming import short_file
from pytracer.analyze.parts import native_frame, python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import NativeFrame, PythonFrame, ThreadStack

_WAITS_FOR_GIL = ("take_gil", "PyEval_RestoreThread", "PyGILState_Ensure", "PyEval_AcquireThread")
_PACKAGE = Pattern(r"/(site|dist)-packages/")


class AtOnce(msgspec.Struct, frozen=True):
    """`function`: of the crashed thread, in `library`; `tid`: the other thread; `lines`: of both threads."""

    function: str | None
    library: str
    tid: int
    crashed: bool
    lines: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What the headline says of it."""
        what = f"{self.function}() of {self.library}" if self.function else self.library
        return f"thread {self.tid} was in {what} at the same time{', and crashed as well' if self.crashed else ''}"

    @property
    def advice(self) -> str:
        """What to do, if that is the reason."""
        what = f"{self.function}() of {self.library}" if self.function else self.library
        where = f" (called at {' and '.join(self.lines)})" if self.lines else ""
        return (
            f"Two threads were in {what} at once{where}. Unless the library is thread-safe, call it from one thread, "
            "or hold one lock around each of its calls: a buffer or state of its own was freed or moved by the other."
        )


def at_once(view: ProcessView) -> AtOnce | None:
    """None where no other thread was in the crashed thread's library, below Python code of its own."""
    crash = view.crash
    if crash is None:
        return None
    own = _own_frame(crash.native_stack)
    if own is None or own.image is None:
        return None
    also = {item.tid for item in crash.also_crashed}
    for thread in crash.threads:
        frame = _own_frame(thread.native_stack, own.image)
        crashed = thread.tid in also
        if frame is None or thread.tid == crash.tid or (_PACKAGE.search(own.image) and not crashed):
            continue
        if any((item.function or "").startswith(_WAITS_FOR_GIL) for item in thread.native_stack[:12]):
            continue
        same = own.function if own.function is not None and own.function == frame.function else None
        lines = [line for line in (_line(crash.python_stack), _line(_python(view, thread))) if line]
        function = function_words(same) if same else None
        return AtOnce(function, image_name(own.image), thread.tid, crashed, tuple(dict.fromkeys(lines)))
    return None


def _own_frame(stack: Sequence[NativeFrame], image: str | None = None) -> NativeFrame | None:
    """The innermost frame of the program's own library that Python code called."""
    places = [n for n, frame in enumerate(stack) if EVALUATES.match(frame.function or "")]
    called = stack[: places[0]] if places else ()
    mine = (frame for frame in called if is_own_frame(native_frame(frame)))
    return next((frame for frame in mine if image is None or frame.image == image), None)


def _python(view: ProcessView, thread: ThreadStack) -> Sequence[PythonFrame]:
    crash = view.crash
    return next(
        (frames for pthread, frames in (crash.python_threads if crash else ()) if pthread == thread.pthread), ()
    )


def _line(frames: Sequence[PythonFrame]) -> str | None:
    own = next((python_frame(item) for item in frames if not is_library_file(item.file)), None)
    return f"{short_file(own.file)}:{own.line}" if own is not None else None
