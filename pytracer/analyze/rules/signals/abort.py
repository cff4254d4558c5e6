"""abort: the process ended itself with SIGABRT.

What: abort() was called: by the C++ runtime for an exception that nobody caught (type and what() are named), by a
failed assertion (file, line and expression), by a check that found the stack overwritten, or by CPython's fatal
error.

Why it happens: an exception thrown on a thread without a handler (gloo and NCCL threads, for instance, when a peer
sends another size than expected), a violated assumption, or memory that was overwritten earlier.

What to do: read the message; the native stack names who called abort(). "terminate called without an active
exception" means that a std::thread was destroyed before it was joined, or that a thread was ended while the
interpreter shut down.

How it can be wrong: what() is known only when torch was loaded, whose half of the recorder notes it. Who aborts in a
signal handler of its own, as some libraries do after a fault, hides that fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import function_words
from pytracer.analyze.collectives.in_flight import bad_address
from pytracer.analyze.evidence.aborts import (
    CppException,
    abort_caller,
    cpp_exception,
    failed_assertion,
    is_abort,
    printed,
    terminated_without_exception,
)
from pytracer.analyze.evidence.heap import heap_damage
from pytracer.analyze.evidence.known_crashes import known_crash
from pytracer.analyze.evidence.native_stack import functions
from pytracer.analyze.evidence.phrases import collective_evidence, python_evidence
from pytracer.analyze.view import (
    Draft,
    JobView,
    Outcome,
    ProcessView,
    draft,
    group_alike,
    not_found,
    subject_words,
)
from pytracer.report.job import Evidence

MESSAGE_CHARACTERS = 200
_EXCEPTION = "a C++ exception was not caught"
_STACK = "a function found its stack frame overwritten: a write past the end of a local array"
_BUFFER = "a C library function was given a buffer that is too small"
_ASSERTION = "an assertion failed"
_FATAL = "CPython gave up with a fatal error"
_PURE = "a virtual function was called on an object that is still being made, or already destroyed"
_CHECKED = "a check of the C++ library failed: an index or iterator out of range, or an empty container"
_RUST = "a Rust library panicked"
_SANITIZED = "a sanitizer stopped it"
# Functions that say how abort() came about, wherever on the stack they are.
_CERTAIN_FUNCTIONS = (
    ("__cxa_pure_virtual", _PURE),
    ("__cxa_deleted_virtual", _PURE),
    ("__glibcxx_assert_fail", _CHECKED),
    ("rust_panic", _RUST),
    ("__sanitizer::Die", _SANITIZED),
)
# The innermost one of these counts.
_BY_FUNCTION = (
    ("__stack_chk_fail", _STACK),
    ("__fortify_fail", _BUFFER),
    ("__chk_fail", _BUFFER),
    ("__assert_fail", _ASSERTION),
    ("__assert_perror_fail", _ASSERTION),
    ("fatal_error", _FATAL),
    ("Py_FatalError", _FATAL),
    ("terminate", _EXCEPTION),
)
_BY_TEXT = (
    ("*** stack smashing detected", _STACK),
    ("*** buffer overflow detected", _BUFFER),
    ("*** %n in writable segment", "printf() was given a format that writes"),
    ("*** invalid %N$ use detected", "printf() was given a wrong format"),
    ("*** longjmp causes uninitialized", "longjmp() left for a function that had already returned"),
    ("*** bit out of range", "FD_SET() was given a descriptor of FD_SETSIZE (1024) or more"),
)
_ADVICE = {
    _STACK: "Look at the function that called __stack_chk_fail: it, or what it called, wrote past a local array.",
    _BUFFER: "Look at the caller of the C library's function: the size that it passes is larger than the buffer.",
    _ASSERTION: "Look at the assertion's source and at what its caller passes.",
    _PURE: "Look at who uses the object then: another thread, or its own constructor or destructor.",
    _CHECKED: "Look at the caller of the C++ library's function.",
    _FATAL: "Read the last lines that the process printed before it died: CPython says why it gave up.",
    _EXCEPTION: "Look for the throw below the named function: no exception may leave a thread or a noexcept function.",
}
_WITHOUT_EXCEPTION = (
    "Join every std::thread before it is destroyed. With torch.distributed, call destroy_process_group() before the "
    "program ends."
)
_READ = "Read the last lines that the process printed before it died: they may hold a message."


class Abort:
    """Fires for SIGABRT that the process raised itself, unless it was for the heap or a collective's memory."""

    id = "abort"
    needs = ("crash",)

    def examine(self, job: JobView) -> Outcome:
        """One finding per group of processes that died alike."""
        aborted = [view for view in job.suspects if is_abort(view) and not _is_known(view)]
        drafts = [self._explain(views) for views in group_alike(aborted)]
        return Outcome(tuple(drafts)) if drafts else not_found("no process raised SIGABRT by a check of its own")

    def _explain(self, views: Sequence[ProcessView]) -> Draft:
        view = views[0]
        known, caller = known_crash(view), abort_caller(view)
        how, advice = _how(view)
        below = (
            f", below {function_words(caller)}" if caller and not how.endswith(f" in {function_words(caller)}") else ""
        )
        exception = cpp_exception(view)
        text = printed(view)
        return draft(
            self.id,
            "abort",
            "certain" if view.crash else "likely",
            views,
            f"{subject_words(views)} aborted: {how}{below}.",
            [
                Evidence(
                    "SIGABRT, sent by the process itself" if view.crash else "SIGABRT was the status of the process",
                    "signal",
                ),
                known.says if known else None,
                f"the C library printed: {text}" if text else None,
                python_evidence(view),
                collective_evidence(views),
            ],
            advice,
            [
                None if view.crash else "the native stack: the black box has no crash section",
                "what() of the exception" if how == _EXCEPTION and exception is None else None,
            ],
        )


def _how(view: ProcessView) -> tuple[str, str]:
    """What happened, without subject, and what to do about it."""
    known = known_crash(view)
    if known is not None:
        return known.what, known.advice
    assertion = failed_assertion(view)
    if assertion is not None:
        where = f" in {function_words(assertion.function)}" if assertion.function else ""
        text = f"assertion `{_short(assertion.text)}` failed at {assertion.file}:{assertion.line}{where}"
        return text, _ADVICE[_ASSERTION]
    names = functions(view)
    certain = next((what for part, what in _CERTAIN_FUNCTIONS if any(part in name for name in names)), None)
    if certain is not None:
        return certain, _ADVICE.get(certain, _READ)
    if terminated_without_exception(view):
        return "std::terminate() was called without an active exception", _WITHOUT_EXCEPTION
    exception = cpp_exception(view)
    if exception is not None and exception.type is not None:
        return _uncaught(exception), _ADVICE[_EXCEPTION]
    text_or_none = printed(view) or ""
    for start, what in _BY_TEXT:
        if text_or_none.startswith(start):
            return what, _ADVICE.get(what, _READ)
    for function in names:
        for part, what in _BY_FUNCTION:
            if part in function:
                return what, _ADVICE[what]
    return (f"it printed: {_short(text_or_none)}" if text_or_none else "abort() was called"), _READ


def _uncaught(exception: CppException) -> str:
    what = f": {_short(exception.what)}" if exception.what else ""
    return f"nobody caught {exception.type}{what}"


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= MESSAGE_CHARACTERS else line[: MESSAGE_CHARACTERS - 3] + "..."


def _is_known(view: ProcessView) -> bool:
    """Whether another rule knows what the abort was for."""
    return heap_damage(view) is not None or bad_address(view) is not None
