"""abort: the process ended itself with SIGABRT.

What: abort() was called: by the C++ runtime for an uncaught exception (type and what() are named), by a
failed assertion (file, line and expression), by a check that found the stack overwritten, or by CPython's fatal
error.

Why it happens: an exception thrown on a thread without a handler (gloo and NCCL threads, for instance, when a peer
sends another size than expected), a violated assumption, or memory that was overwritten earlier.

torch.compile writes a check of each index into its kernels. Which tensor has the index that failed is read from the
kernel's source, while that is in inductor's cache; else it is the only one with values outside that no other table
takes. An exception in a parallel region of the kernel ends the process, also inside of a `try`.

glibc's check of a buffer (_FORTIFY_SOURCE) stops a text of sprintf(), strcpy() or strcat() that is too long, and a size
of memcpy(), snprintf() or read() that is too large. The function of the program's library that makes the call is named,
also where the compiler put it into another one; by its source the buffer, and the text that the program's line passes.

glibc stops FD_SET() of a descriptor that an fd_set has no room for. The line of C is named, and where a single line of
the program keeps files open, that one.

An exception that leaves a std::thread of the program's library ends the process, whatever a `try` around join() would
catch: the function that was in join() is named, with the line of Python that called it.

Where a test before the throw, or the assertion itself, compares a variable with a number, and the source leads that
variable back to an array that the line passes, the number that is refused is named, if memory or what was recorded of a
tensor has it, with the line of the program that writes it, such as -100 for padding.

What to do: read the message; the native stack names who called abort(). "terminate called without an active
exception" means that a std::thread was destroyed before it was joined, or that a thread was ended while the
interpreter shut down: which of them, the stack tells. The thread is named where the source of the program's library has
one alone.

How it can be wrong: what() is known only when torch was loaded, whose half of the recorder notes it. Who aborts in a
signal handler of its own, as some libraries do after a fault, hides that fault.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words, message_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.collectives.in_flight import bad_address
from pytracer.analyze.evidence.ends.memory_holders import (
    address_as_size,
    failed_allocation,
    holder_advice,
    holder_evidence,
    no_memory_advice,
)
from pytracer.analyze.evidence.ends.thread_at_shutdown import thread_at_shutdown
from pytracer.analyze.evidence.exceptions.name_origins import passed_words
from pytracer.analyze.evidence.exceptions.telling import torchscript_error
from pytracer.analyze.evidence.heap.heap import heap_damage
from pytracer.analyze.evidence.heap.smashed_stack import smashed_advice
from pytracer.analyze.evidence.indices.index_check import failed_check
from pytracer.analyze.evidence.indices.range_check import range_advice
from pytracer.analyze.evidence.known_crashes import known_crash
from pytracer.analyze.evidence.limits.descriptor_sets import beyond_set
from pytracer.analyze.evidence.limits.ended import memory_limit_words
from pytracer.analyze.evidence.native.aborts import (
    abort_caller,
    aborted_at_shutdown,
    cpp_exception,
    failed_assertion,
    is_abort,
    printed,
    terminated_without_exception,
)
from pytracer.analyze.evidence.native.cut_archive import cut_archive
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import functions, own_frames
from pytracer.analyze.evidence.own_code.absurd_length import absurd_length
from pytracer.analyze.evidence.own_code.borrowed_return import borrowed_return
from pytracer.analyze.evidence.own_code.checked_write import checked_write
from pytracer.analyze.evidence.own_code.converted_text import converted_text
from pytracer.analyze.evidence.own_code.copied_element import copied_element
from pytracer.analyze.evidence.own_code.ended_statics import ended_static
from pytracer.analyze.evidence.own_code.negative_strides import negative_strides
from pytracer.analyze.evidence.own_code.refused_number import refused_number
from pytracer.analyze.evidence.own_code.refused_relation import refused_relation
from pytracer.analyze.evidence.own_code.replaced_threads import replaced_thread
from pytracer.analyze.evidence.own_code.throwing_destructor import left_destructor, throwing_destructor
from pytracer.analyze.evidence.own_code.uncaught import (
    below_line,
    below_words,
    in_region,
    into_ctypes,
    of_script,
    on_own_thread,
    refused_text,
)
from pytracer.analyze.evidence.own_code.unjoined_threads import unjoined_thread
from pytracer.analyze.evidence.own_code.without_gil import without_gil
from pytracer.analyze.evidence.phrases import (
    abort_evidence,
    collective_evidence,
    printed_evidence,
    python_evidence,
)
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView

_FINITE = Pattern(r"\b_*is_?(?:finite|nan|inf)\b|not finite|\bNaN\b", re.IGNORECASE)
_READ = "Read the last lines that the process printed before it died: they may hold a message."


class _Way(msgspec.Struct, frozen=True):
    """Why abort() was called, without subject, and what to do about it. `function` is one that `what` names.

    `quotes_exception`: `what` has all of the exception's type and message. `by_facts`: the advice names recorded facts.
    `uncaught`: an exception of C++, with its message where it is known.
    """

    what: str
    advice: str = _READ
    function: str | None = None
    quotes_exception: bool = False
    by_facts: bool = False
    uncaught: bool = False
    is_check: bool = False  # an assertion of C
    behind: Behind | None = None


_OWN = "the innermost function of the program's native code"
_EXCEPTION = _Way(
    "a C++ exception was not caught",
    "Look for the throw below the named function: no exception may leave a thread or a noexcept function.",
    uncaught=True,
)
_OF_DESTRUCTOR = (
    "No exception may leave a destructor: C++ ends the process there, whatever would catch it further out. Catch it "
    "inside {function}, or do that work in a method that is called before the object ends."
)
_STACK = _Way(
    "a function found its stack frame overwritten: a write past the end of a local array",
    "Look at {function}: it, or what it called, wrote past a local array. "
    "Compare the sizes and counts that it is given with the array's; -fsanitize=address names the write.",
)
_BUFFER = _Way(
    "a C library function was given a buffer that is too small",
    "Look at the caller of the C library's function: the text that it writes (sprintf, strcpy, strcat), or the size "
    "that it passes (memcpy, snprintf, read), is larger than the buffer.",
)
_ASSERTION = _Way("an assertion failed", "Look at the assertion's source and at what its caller passes.")
_FATAL = _Way(
    "CPython gave up with a fatal error",
    "Read the last lines that the process printed before it died: CPython says why it gave up.",
)
_PURE = _Way(
    "a virtual function was called on an object that is still being made, or already destroyed",
    "Look at who uses the object then: another thread, or its own constructor or destructor.",
)
_CHECKED = _Way(
    "a check of the C++ library failed: an index or iterator out of range, or an empty container",
    "Look at the caller of the C++ library's function.",
)
_NOTHING_THROWN = _Way(
    "std::terminate() was called without an active exception",
    "Join every std::thread before it is destroyed. With torch.distributed, call destroy_process_group() before the "
    "program ends.",
)
_OWN_THREAD = _Way(
    "std::terminate() was called without an active exception",
    "Join every std::thread before it is destroyed or set anew: one that can still be joined ends the process there.",
)
_ENDED_AT_SHUTDOWN = _Way(
    "a native thread wanted the GIL while the interpreter was shutting down, and was ended inside a function that must "
    "not be left that way",
    "Stop and join the thread that runs {function} before the program ends (close(), shutdown() or join() of what "
    "started it), or release the Python objects that it holds before: once the interpreter shuts down, no thread may "
    "ask for its GIL. The work of the main thread was done.",
)
_NOT_RETHROWN = _Way(
    "a catch (...) swallowed the unwinding by which pthread_exit() ends a thread",
    "Let the thread end by itself before the program ends: stop what it works for, and join it.",
)
_LOCK = _Way(
    "the kernel refused the address of a lock or semaphore: the object that holds it was overwritten or freed",
    "Who damaged it is not seen here: an index or size that native code does not check, in this call or long before, "
    "or a thread that still uses an object which another one has freed. `pytracer run --guard` finds writes beside "
    "tensors.",
)
# Functions that show why abort() was called, anywhere on the stack.
_CERTAIN_FUNCTIONS = (
    ("__cxa_pure_virtual", _PURE),
    ("__cxa_deleted_virtual", _PURE),
    ("__glibcxx_assert_fail", _CHECKED),
    ("rust_panic", _Way("a Rust library panicked")),
    ("__sanitizer::Die", _Way("a sanitizer stopped it")),
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
    ("*** %n in writable segment", _Way("printf() was given a format that writes")),
    ("*** invalid %N$ use detected", _Way("printf() was given a wrong format")),
    ("*** longjmp causes uninitialized", _Way("longjmp() left for a function that had already returned")),
    ("FATAL: exception not rethrown", _NOT_RETHROWN),
    ("The futex facility returned an unexpected error code", _LOCK),
)


class Abort:
    """Fires for SIGABRT that the process raised itself, unless it was for the heap or a collective's memory."""

    id = "abort"
    needs = ("crash",)

    def check(self, job: JobView) -> tuple[Judgement[None], ...] | NoFinding:
        """One judgement per group of processes that died alike."""
        judgements = merge_alike(_judge(view) for view in job.suspects)
        return judgements or not_found("no process raised SIGABRT by a check of its own")

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See Rule; the first process represents all that died alike."""
        view = judgement.views[0]
        way = _way(job, view)
        caller = _caller(view)
        smashed = smashed_advice(view) if way is _STACK else None
        destructor = _destructor(view, way, caller)
        thrown = into_ctypes(view) or on_own_thread(view) if way.uncaught else None
        length = absurd_length(view) if way.uncaught else None
        refused = refused_number(view) or refused_relation(view) if way.uncaught or way.is_check else None
        limit = memory_limit_words(job, view) if failed_allocation(view) and address_as_size(view) is None else None
        copied = copied_element(view) if way.uncaught and length is None and limit is None else None
        general = (
            smashed
            or (copied.advice if copied is not None else None)
            or (length.advice if length is not None else None)
            or (refused.advice if refused is not None else None)
            or range_advice(view)
            or of_script(view)
            or (_OF_DESTRUCTOR.format(function=destructor) if destructor is not None else None)
            or thrown
            or (below_line(view) if way.uncaught and way is not _EXCEPTION else None)
            or way.advice.replace("{function}", caller or _OWN)
        )
        below = below_words(view, caller) if caller and caller != way.function else ""
        below += f": it left the destructor {destructor}" if destructor is not None and destructor != caller else ""
        told = length or copied or refused
        words = told or converted_text(view)
        below += f": {words.summary}" if words is not None else ""
        borrowed = borrowed_return(view)
        if borrowed is not None:
            below = f": {borrowed.summary}"
        elif thrown is not None and in_region(view):
            below += ", in a parallel region, which no exception may leave"
        below += f"; {limit[0]}" if limit is not None else ""
        summary = f"{introduction(judgement.views)} aborted: {way.what}{below}."
        return Description(
            summary,
            [
                abort_evidence(view),
                printed_evidence(printed(view)),
                *(holder_evidence(job, view) if failed_allocation(view) and copied is None else ()),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            borrowed.advice
            if borrowed is not None
            else f"{limit[1]}{holder_advice(view)}"
            if limit is not None
            else no_memory_advice(view)
            if failed_allocation(view) and copied is None
            else general,
            [
                None if view.crash else "the native stack: the black box has no crash section",
                "what() of the exception" if way is _EXCEPTION and cpp_exception(view) is None else None,
            ],
            way.quotes_exception,
            explained=borrowed is not None or way.by_facts or refused is not None or copied is not None,
            behind=Behind.of([], told) if told is not None else way.behind,
        )


def _judge(view: ProcessView) -> Judgement[None] | None:
    if not is_abort(view) or heap_damage(view) is not None or bad_address(view) is not None:
        return None  # no abort, or another rule knows what it was for
    return Judgement("abort", "certain" if view.crash else "likely", (view,), None)


def _way(job: JobView, view: ProcessView) -> _Way:
    thread = thread_at_shutdown(view)
    if thread is not None:
        return _Way(thread.what, thread.advice, _caller(view), by_facts=True)
    known = known_crash(view, "abort")
    if known is not None and known.confidence != "possible":
        return _Way(known.what)
    assertion = failed_assertion(view)
    if assertion is not None:
        function = function_words(assertion.function) if assertion.function else None
        text = f"assertion `{message_words(assertion.text)}` failed at {assertion.file}:{assertion.line}"
        return _Way(
            text + (f" in {function}" if function else ""),
            _assertion_advice(view, assertion.text),
            function,
            is_check=True,
        )
    names = functions(view)
    certain = next((way for part, way in _CERTAIN_FUNCTIONS if any(part in name for name in names)), None)
    if certain is not None:
        return certain
    destructor = throwing_destructor(view)
    if destructor is not None:
        return _Way(destructor.what, destructor.advice, _caller(view))
    if terminated_without_exception(view):
        return _ENDED_AT_SHUTDOWN if aborted_at_shutdown(view) else _unjoined(view) or _nothing_thrown(view)
    exception, check, gil = cpp_exception(view), failed_check(view), without_gil(view)
    if check is not None:
        return _Way(check.what, check.advice, _caller(view))
    if gil is not None:
        return _Way(gil.what, gil.advice, _caller(view))
    archive = cut_archive(job, view)
    if archive is not None:
        return _Way(archive.what, archive.advice, _caller(view), behind=archive.behind)
    strides = negative_strides(view)
    if strides is not None:
        return _Way(strides.what, strides.advice, _caller(view), by_facts=True, behind=Behind.of([], strides))
    if exception is not None and exception.type is not None:
        return _uncaught(exception.type, exception.what or "")
    beyond = beyond_set(view)
    if beyond is not None:
        return _Way(beyond.what, beyond.advice, _caller(view), by_facts=True, behind=beyond.behind)
    checked = checked_write(view)
    if checked is not None:
        return _Way(checked.what, checked.advice, _caller(view), by_facts=True)
    text = printed(view) or ""
    for start, way in _BY_TEXT:
        if text.startswith(start):
            return way
    for function in names:
        for part, way in _BY_FUNCTION:
            if part in function:
                return _of_static(view) or way if way is _FATAL else way
    return _Way(f"it printed: {message_words(text)}" if text else "abort() was called")


def _caller(view: ProcessView) -> str | None:
    return function_words(name) if (name := abort_caller(view)) else None


def _destructor(view: ProcessView, way: _Way, caller: str | None) -> str | None:
    """The one that what nobody caught left: the caller itself, or one around it."""
    if not way.uncaught:
        return None
    written_in = caller is not None and any(part in caller for part in ("lambda", "_omp_fn", "operator()"))
    return caller if caller is not None and "~" in caller and not written_in else left_destructor(view)


def _unjoined(view: ProcessView) -> _Way | None:
    thread = replaced_thread(view) or unjoined_thread(view)
    return _Way(thread.what, thread.advice, _caller(view), by_facts=True) if thread is not None else None


def _nothing_thrown(view: ProcessView) -> _Way:
    return _OWN_THREAD if any(map(is_own_frame, own_frames(view))) else _NOTHING_THROWN


def _of_static(view: ProcessView) -> _Way | None:
    static = ended_static(view)
    return _Way(static.what, static.advice) if static is not None else None


def _assertion_advice(view: ProcessView, text: str) -> str:
    """What the assertion asks for, and the line of the program that called it."""
    line = view.python_frame
    if line is None:
        return _ASSERTION.advice
    at = place_words(line)
    if _FINITE.search(text):
        return (
            f"Check what {at} passes for NaN and infinity (np.isfinite(x).all(), torch.isfinite()): the assertion asks "
            "for finite numbers. Usual: log(0), a division by 0, or missing values in the data."
        )
    passed = passed_words(view.process.snapshot, line)
    return f"Check what {at} passes against what the assertion asks for{f': {passed}' if passed is not None else ''}."


def _uncaught(name: str, message: str) -> _Way:
    inner = torchscript_error(message)
    shown = message_words(inner if inner is not None else message)
    refused = refused_text(name, message)
    words = f"nobody caught {name}" + (f": {shown}" if shown else "") + (f" ({refused})" if refused else "")
    return _Way(words, _EXCEPTION.advice, quotes_exception=shown == message.strip().rstrip("."), uncaught=True)
