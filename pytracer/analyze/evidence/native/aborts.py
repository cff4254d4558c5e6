"""Why a process called abort(): the C library's message, the C++ exception, the calling functions."""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.native_stack import functions, own_frames
from pytracer.analyze.platform.signals import SI_USER, SIGABRT
from pytracer.analyze.view import ProcessView
from pytracer.decode.types import journal

PLUMBING = (
    "abort", "raise", "pthread_kill", "terminate", "__cxa_throw", "__libc_message", "malloc_printerr",
    "__assert_fail", "__verbose_terminate_handler", "__cxa_rethrow", "__gxx_personality", "_Unwind_", "gsignal",
    "__stack_chk_fail", "__fortify_fail", "__fdelt_", "fatal_error", "Py_FatalError", "__cxa_call_terminate",
    "__chk_fail", "__libc_fatal", "unwind_stop", "unwind_cleanup", "pthread_exit", "pthread_unwind",
    "PyThread_exit_thread", "take_gil", "__cxa_pure_virtual", "__cxa_deleted_virtual", "__glibcxx_assert_fail",
    "torchCheckFail", "torchInternalAssertFail", "std::__throw_", "pytracer::",
)  # fmt: skip
# The C++ runtime's ways from an exception to std::terminate(): it is uncaught, or reaches a noexcept function.
_THROWERS = ("__cxa_", "__clang_call_terminate", "__gxx_personality", "_Unwind_", "rethrow_exception", "unexpected")
# How a finalizing interpreter ends each thread that asks for the GIL: in take_gil(), by pthread_exit().
_GIL = ("PyEval_AcquireThread", "PyEval_RestoreThread", "PyGILState_Ensure", "take_gil")
_ASKS = (*_GIL, "gil_scoped_acquire")
_LIBRARY, _RUNS_THREAD = ("std::", "__gnu_cxx::"), "std::thread::_State_impl"
_THREAD_BEGINS = ("execute_native_thread_routine", "start_thread", "clone", "__clone", "_start", "__libc_start")
_ASSERTION = Pattern(
    r"^(?:[^:]*: )?(?P<file>[^:\s]+):(?P<line>\d+): (?:(?P<function>.+?): )?Assertion [`'](?P<text>.*)' failed\.?\s*$",
    re.DOTALL,
)


class Assertion(msgspec.Struct, frozen=True):
    """A failed assert(), from the C library's own words: `prog: file:line: function: Assertion `x' failed.`"""

    file: str
    line: int
    function: str | None
    text: str


class CppException(msgspec.Struct, frozen=True):
    """What std::terminate() was called for. `type` is None when no exception was active."""

    type: str | None
    what: str | None


def is_abort(view: ProcessView) -> bool:
    """Whether the process ended itself by SIGABRT. A signal from another process names it, or lacks a thread (kill)."""
    crash = view.crash
    if view.raised:
        return False
    if crash is None:
        return view.process.status_kind == "signaled" and view.process.signal == SIGABRT
    own = crash.sender_pid == view.process.snapshot.pid or (not crash.sender_pid and crash.code != SI_USER)
    return crash.signal == SIGABRT and own


def aborted_at_shutdown(view: ProcessView) -> bool:
    """Whether the interpreter was shutting down: the program had come to its end, and one of its threads met that."""
    if not is_abort(view):
        return False
    names = functions(view)
    if any("PyThread_exit_thread" in name for name in names):
        return True
    ended = any("pthread_exit" in name or "_Unwind_ForcedUnwind" in name for name in names)
    return ended and any(part in name for part in _GIL for name in names)


def abort_caller(view: ProcessView) -> str | None:
    """The innermost function that is not part of the way from the error to abort()."""
    way = (*PLUMBING, *_ASKS) if aborted_at_shutdown(view) else PLUMBING
    names = [name for name in functions(view) if not any(part in name for part in way)]
    first = next(iter(names), None)
    if cpp_exception(view) is None or first is None or not _is_of_library(first):
        return first
    outer = next((name for name in names if not _is_of_library(name)), None)
    return outer if outer is not None and not outer.startswith(_THREAD_BEGINS) else first


def _is_of_library(function: str) -> bool:
    """Of the C++ library, but for what runs a std::thread: `__gnu_cxx::__stoa()`, `std::vector::_M_range_check()`."""
    name = function_words(function)
    return name.startswith(_LIBRARY) and not name.startswith(_RUNS_THREAD)


def printed(view: ProcessView) -> str | None:
    """What the C library printed before abort(), as one line."""
    text = view.crash.abort_text if view.crash else None
    return " ".join(text.split()) or None if text else None


def failed_assertion(view: ProcessView) -> Assertion | None:
    """The assertion that failed, when the C library's words are kept."""
    text = printed(view)
    match = _ASSERTION.match(text) if text else None
    return Assertion(match["file"], int(match["line"]), match["function"], match["text"]) if match else None


def cpp_exception(view: ProcessView) -> CppException | None:
    """Why std::terminate() was called, when its handler could note it."""
    exception = view.exception
    if exception is not None and exception.language == "C++":
        return CppException(exception.type, exception.message or None)
    facts = view.process.snapshot.recorded(journal.CppException)
    own = [fact.data for fact in facts if view.crash and fact.data.tid == view.crash.tid]
    return CppException(None, None) if own and not own[-1].type else None


def terminated_without_exception(view: ProcessView) -> bool:
    """Whether std::terminate() ran although nothing had been thrown."""
    names = functions(view)
    if not any("terminate" in name for name in names):
        return False
    exception = cpp_exception(view)
    if exception is not None:
        return exception.type is None
    return any("_Unwind_ForcedUnwind" in name for name in names) or _terminated_directly(view)


def _terminated_directly(view: ProcessView) -> bool:
    """Whether the program itself called std::terminate(), as the destructor of a std::thread does."""
    frames = own_frames(view)
    last = max((number for number, frame in enumerate(frames) if "terminate" in (frame.function or "")), default=-1)
    caller = frames[last + 1].function if 0 <= last < len(frames) - 1 else None
    return caller is not None and not any(part in f"{frames[last].function} {caller}" for part in _THROWERS)
