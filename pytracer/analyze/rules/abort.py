"""abort: the process ended itself with SIGABRT.

What: abort() was called: by the C++ runtime for an exception that nobody caught, by a failed assertion, by the C
library that found its heap damaged, or by CPython's fatal error.

Why it happens: an exception thrown on a thread without a handler (gloo and NCCL threads, for instance, when a peer
sends another size than expected), a violated assumption, or memory that was overwritten earlier.

What to do: read the message that the process printed before it died; the native stack names who called abort().

How it can be wrong: what() of the exception is not recorded yet, so the text must be taken from the job's own
output. For a damaged heap the place of the abort is not the place of the damage.
"""

from __future__ import annotations

from pytracer._words import function_words
from pytracer.analyze.signals import SIGABRT
from pytracer.analyze.view import (
    JobView,
    Outcome,
    ProcessView,
    draft,
    group_alike,
    is_handler_frame,
    not_found,
    subject_words,
)
from pytracer.analyze.wording import collective_evidence, python_evidence

# Innermost function that says how abort() came about: (part of its name, verdict class, what happened).
_HOW = (
    ("malloc_printerr", "heap-corruption", "the C library found its heap damaged"),
    ("__stack_chk_fail", "abort", "a function found its stack frame overwritten"),
    ("__fortify_fail", "abort", "a C library function was given a buffer that is too small"),
    ("__assert_fail", "abort", "an assertion failed"),
    ("fatal_error", "abort", "CPython gave up with a fatal error"),
    ("Py_FatalError", "abort", "CPython gave up with a fatal error"),
    ("terminate", "abort", "a C++ exception was not caught"),
)
_PLUMBING = (
    "abort", "raise", "pthread_kill", "terminate", "__cxa_throw", "__libc_message", "malloc_printerr", "__assert_fail",
    "__verbose_terminate_handler", "__cxa_rethrow", "__gxx_personality", "_Unwind_", "gsignal", "__stack_chk_fail",
    "__fortify_fail", "fatal_error", "Py_FatalError", "__cxa_call_terminate",
)  # fmt: skip


class Abort:
    """Fires for SIGABRT that the process raised itself."""

    id = "abort"
    needs = ("crash",)

    def examine(self, job: JobView) -> Outcome:
        """One finding per group of processes that died alike."""
        aborted = [view for view in job.suspects if _is_abort(view)]
        drafts = []
        for views in group_alike(aborted):
            view = views[0]
            verdict_class, how = _how(view)
            by = _caller(view)
            drafts.append(
                draft(
                    self.id,
                    verdict_class,
                    ("certain" if verdict_class == "abort" else "likely") if view.crash else "likely",
                    views,
                    f"{subject_words(views)} aborted: {how or 'abort() was called'}{f', below {by}' if by else ''}.",
                    [
                        "SIGABRT, sent by the process itself"
                        if view.crash
                        else "SIGABRT was the status of the process",
                        python_evidence(view),
                        collective_evidence(views),
                    ],
                    "Run it under AddressSanitizer: the damage was done earlier and elsewhere."
                    if verdict_class == "heap-corruption"
                    else "Read the last lines that the process printed before it died: they hold the message.",
                    ["what() of the exception" if how and "exception" in how else None]
                    if view.crash
                    else ["the native stack: the black box has no crash section"],
                )
            )
        return Outcome(tuple(drafts)) if drafts else not_found("no process raised SIGABRT")


def _is_abort(view: ProcessView) -> bool:
    crash = view.crash
    if view.raised:
        return False
    if crash is not None:
        own = crash.sender_pid in (None, 0, view.process.snapshot.pid)
        return crash.signal == SIGABRT and own
    return view.process.status_kind == "signaled" and view.process.signal == SIGABRT


def _functions(view: ProcessView) -> list[str]:
    return [
        frame.function for frame in view.report.native_stack or () if frame.function and not is_handler_frame(frame)
    ]


def _how(view: ProcessView) -> tuple[str, str | None]:
    for function in _functions(view):
        for part, verdict_class, what in _HOW:
            if part in function:
                return verdict_class, what
    return "abort", None


def _caller(view: ProcessView) -> str | None:
    """The innermost function that is not part of the way from the error to abort()."""
    for function in _functions(view):
        if not any(part in function for part in _PLUMBING):
            return function_words(function)
    return None
