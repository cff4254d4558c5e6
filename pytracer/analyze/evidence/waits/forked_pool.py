"""A forked child that waits, in a native library, for threads that the library had started in the parent.

fork() copies one thread. A library that starts its threads once believes in the child that they run, gives them work,
and waits. Not torch's and OpenMP's threads, which have rules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image, is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.own_code.native_source import source_text
from pytracer.analyze.evidence.waits.used_before_fork import EarlierUse, used_before_fork
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import NativeFrame, PythonFrame

_SYSTEM = Pattern(r"(libc|libpthread|libstdc\+\+|libc\+\+)[.-]")
_WAITS = Pattern(  # glibc's
    r"_*(?:GI_+)?(?:pthread_cond_(?:timed|clock)?wait\w*|futex\w*|(?:new_)?sem_(?:timed|clock)?wait\w*|syscall"
    r"|pthread_(?:timed|clock)?join\w*)"
)
_NOT_MEANT = Pattern(r"/lib-dynload/|(?:^|/)lib(?:cuda|cudart|nccl|gomp|omp|iomp5|mpi)\b")
_STARTS = Pattern(
    r"\bpthread_create\s*\(|\bstd::j?thread\b\s*(?:\w+\s*)?[({]"
    r"|\b\w*(?:thread|worker)s?_?\.(?:emplace|push)_back\s*\("
)
_OF_FORK = Pattern(r"\bpthread_atfork\s*\(|\bgetpid\s*\(")  # the library has its own way to bear a fork
_NEAR = 8
_WORKS = 0.5  # of one processor, on the average of its life


class ForkedPool(msgspec.Struct, frozen=True):
    """`function` of `library` waits. `started`: the only line of its source that starts a thread."""

    function: str | None
    library: str
    earlier: EarlierUse
    started: str | None

    @property
    def words(self) -> str:
        """`encode() of libfast.so`."""
        return f"{self.function}() of {self.library}" if self.function is not None else self.library


def forked_pool(
    view: ProcessView, end: Crash | None, stack: Sequence[PythonFrame], native: Sequence[NativeFrame]
) -> ForkedPool | None:
    """None where no such library waits, has threads in the child, or was used in the parent before.

    Args:
        view: A process that was forked, and has no other thread of Python.
        end: What was recorded at its end.
        stack: Of its main thread.
        native: The same.
    """
    own = _waiting(native)
    if own is None or _has_threads(end, own) or _OF_FORK.search(source_text(own) or ""):
        return None
    named = [function_words(item.function) for item in native[: _NEAR + 4] if item.function and is_own_frame(item)]
    named = [item.partition("(")[0] for item in named]
    earlier = used_before_fork(view.process.snapshot, stack, [item.rpartition("::")[2] for item in named])
    if earlier is None:
        return None
    return ForkedPool(next(iter(named), None), image_name(own.image), earlier, _started(own))


def is_at_work(view: ProcessView) -> bool:
    """Whether its threads computed, all in all: a wait for those is no wait for lost ones."""
    return (view.cpu_share or 0) >= _WORKS


def _waiting(native: Sequence[NativeFrame]) -> NativeFrame | None:
    """The frame of the library that called what waits."""
    place = next((at for at, item in enumerate(native[:_NEAR]) if not _SYSTEM.match(image_name(item.image))), 0)
    inner, own = native[:place], native[place] if native else None
    if own is None or not any(_WAITS.fullmatch(item.function or "") for item in inner):
        return None
    return own if is_of_own_image(own) and not _NOT_MEANT.search(own.image or "") else None


def _has_threads(end: Crash | None, own: NativeFrame) -> bool:
    """Whether another thread of the process was in that library, as far as they were recorded."""
    stacks = [thread.native_stack for thread in end.threads] if end is not None else []
    return any(frame.image == own.image for stack in stacks for frame in stack)


def _started(own: NativeFrame) -> str | None:
    """`fast.c:36`."""
    text = source_text(own)
    found = [number for number, line in enumerate((text or "").splitlines(), 1) if _STARTS.search(line)]
    file = next((item.file for item in own.lines or () if item.file), None)
    return f"{short_file(file)}:{found[0]}" if len(found) == 1 and file is not None else None
