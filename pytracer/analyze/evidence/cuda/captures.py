"""Why a capture of a CUDA graph broke: the call that CUDA refused, on the thread that captured or on another one.

The exception that ends the process is often a second one: capture_end() finds the capture invalid. What was refused
first is the exception that was being handled then, or one that another thread raised.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.cuda.cuda_errors import OF_MATH_LIBRARY
from pytracer.analyze.evidence.cuda.refused_calls import RefusedCall, refused_call
from pytracer.analyze.evidence.phrases import error_words
from pytracer.analyze.known.exceptions import exception_advice
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import exception_report, innermost_of_program, python_frame
from pytracer.analyze.view import ProcessView
from pytracer.blackbox.schema import ON_TASK
from pytracer.decode.types.devices import CudaGraph
from pytracer.decode.types.journal import UncaughtException
from pytracer.report.job import Evidence, ExceptionReport, HandledExceptionReport, PythonFrame, ThreadExceptionReport

# driver_types.h, cudaErrorStreamCapture*, and what to do.
INVALIDATED = "operation failed due to a previous error during capture"
UNSUPPORTED = "operation not permitted when stream is capturing"
_ADVICE = {
    "operation would result in a merge of separate capture sequences": (
        "Two captures were joined by an event or by wait_stream(): capture the work of both streams in one "
        "torch.cuda.graph(), with a side stream that waits for the capturing one first."
    ),
    "capture was not ended in the same stream as it began": (
        "Leave the captured region on the stream on which it was entered: a torch.cuda.stream() or set_stream() within "
        "it must end within it."
    ),
    "capturing stream has unjoined work": (
        "A side stream took part in the capture and was not joined: call "
        "torch.cuda.current_stream().wait_stream(side) after its last work, within the captured region."
    ),
    "dependency created on uncaptured work in another stream": (
        "Within the capture something waits for an event or a stream whose work is not captured: do that wait before "
        "the capture, and let a side stream wait for the capturing stream (side.wait_stream(current_stream())) before "
        "it is given work."
    ),
    "operation would make the legacy stream depend on a capturing blocking stream": (
        "The captured region, or another thread during it, uses the default stream: run all of it under the stream of "
        "torch.cuda.graph(), take work of other streams and libraries (the default stream) out of it."
    ),
    "operation not permitted on an event last recorded in a capturing stream": (
        "An event that was recorded during the capture was waited for or asked from outside: event.query(), "
        "synchronize() and elapsed_time() belong outside of the captured region, with events of their own."
    ),
    "attempt to terminate a thread-local capture sequence from another thread": (
        "End the capture on the thread that began it."
    ),
}
_CUDA = Pattern(r"CUDA error: ([^\n]+)")
_OF_CUDA = Pattern(
    r"CUDA error|cuDNN error|CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_|graph capture|used during capture|not in capture mode"
)

_Report = ExceptionReport | HandledExceptionReport | ThreadExceptionReport


class BrokenCapture(msgspec.Struct, frozen=True):
    """`text`: CUDA's reason; `at`: the program's line that was refused; `thread`: another one than the capturing one.

    `captured_at`: where the capture began. `known`: False where only the consequence is recorded. `second`: another
    exception ended the process.
    """

    text: str
    at: PythonFrame | None
    call: RefusedCall | None
    thread: str | None
    captured_at: PythonFrame | None
    known: bool
    second: bool
    report: _Report

    @property
    def subject(self) -> str:
        """What the headline says, behind "ended with a CUDA error: "."""
        where = f" at {place_words(self.captured_at)}" if self.captured_at is not None else ""
        capture = f"the capture of the CUDA graph{where}"
        if not self.known:
            return f"{self.text}: {capture} had been broken before by a call whose error is not recorded"
        at = f" at {place_words(self.at)}" if self.at is not None else ""
        what = f"{self.call.words}{at}" if self.call is not None else f"the call{at}"
        if self.thread is not None:
            return f"{self.text}: {what}, on thread {self.thread}, came during {capture} and broke it"
        reason = f" {self.call.reason}" if self.call is not None and self.call.reason else " was refused"
        return f"{self.text}: {what}{reason} during {capture}"

    @property
    def advice(self) -> str:
        """What to change."""
        own = next((words for begin, words in _ADVICE.items() if self.text.startswith(begin)), None)
        if own is not None:
            return own
        if not self.known:
            return (
                "Look for a call within the captured region, or on another thread meanwhile (a loader, a pin-memory "
                "thread, a logger), whose error was caught or not reported: item(), cpu(), print() of a tensor, "
                "synchronize(), an upload or allocation. End other threads' work before the capture, or capture with "
                'capture_error_mode="thread_local".'
            )
        if self.thread is not None:
            return (
                f"Let that work of thread {self.thread} end before the capture begins (wait for its result first), or "
                'capture with torch.cuda.graph(..., capture_error_mode="thread_local"): with "global", the default, no '
                "thread of the process may allocate device memory or wait for the device during a capture."
            )
        if OF_MATH_LIBRARY.search(self.text):
            return (
                "Run what is captured some times before the capture, on a side stream (torch.cuda.Stream() and "
                "wait_stream()): libraries make their handles, workspaces and plans at the first use, which a capture "
                "does not permit. If it still fails, that operator cannot be captured with these arguments."
            )
        line = place_words(self.at) if self.at is not None else "that call"
        told = exception_advice(self.report.type, self.report.message, line) if _text(self.report) is None else None
        if told is not None or self.call is not None:
            return told or (self.call.advice if self.call is not None else "")
        return (
            f"Take what {line} does out of the captured region: a capture permits no wait for the device (item(), "
            "cpu(), nonzero(), a condition on a tensor, synchronize()), and no copy from or to unpinned memory."
        )

    @property
    def evidence(self) -> Evidence | None:
        """The exception that says it, where another one ended the process."""
        if not self.second:
            return None
        on = f" on thread {self.thread}" if self.thread is not None else ""
        return Evidence(
            "exception",
            f"the first error{on}: {_text(self.report) or self.report.type}; what ended the process came of it",
            exception=self.report.type,
            text=self.report.message,
            python=self.at,
        )


def broken_capture(view: ProcessView) -> BrokenCapture | None:
    """Why the capture broke whose error ended the process; None where it ended with anything else."""
    last = view.exception
    text = _text(last) if last is not None and view.raised else None
    if last is None or text is None or not (text in (INVALIDATED, UNSUPPORTED) or text.startswith(tuple(_ADVICE))):
        return None
    graph = _last_capture(view)
    first = _first(view, last, graph)
    thread = _thread_of(view, first, graph)
    stack = first.python_stack or []
    at, known = innermost_of_program(stack), _text(first) != INVALIDATED
    named = _text(first) == UNSUPPORTED and at == stack[0] if stack else False
    call = refused_call(view.process.snapshot, at, named=named) if known and at is not None else None
    captured = graph.captured_by.place if graph is not None else None
    return BrokenCapture(
        _text(first) or error_words(first),
        at,
        call,
        thread,
        python_frame(captured) if captured is not None else None,
        known,
        first is not last,
        first,
    )


def _text(report: _Report) -> str | None:
    found = _CUDA.search(report.message or "")
    return found[1].strip() if found is not None else None


def _last_capture(view: ProcessView) -> CudaGraph | None:
    """The one that failed or was under way."""
    graphs = [item for item in view.process.snapshot.cuda_graphs if item.state in ("capturing", "failed")]
    return graphs[-1] if graphs else None


def _first(view: ProcessView, last: ExceptionReport, graph: CudaGraph | None) -> _Report:
    """Of the chain the oldest error of CUDA that is no mere consequence, else another thread's, else the last."""
    if _text(last) != INVALIDATED:
        return last
    chain = [item for item in last.context or () if _OF_CUDA.search(item.message or "")]
    told = next((item for item in reversed(chain) if _text(item) != INVALIDATED), None)
    return told or next((item for _, item in _of_threads(view, graph)), None) or last


def _of_threads(view: ProcessView, graph: CudaGraph | None) -> Iterator[tuple[str, _Report]]:
    """Errors of captures that other threads raised since this one began, with the thread's name."""
    snapshot, clock = view.process.snapshot, view.clock
    ended = [item.captured_ns for item in snapshot.cuda_graphs if item is not graph and item.captured_ns]
    since = max(ended, default=snapshot.created_mono_ns)  # captured_ns is the end of a capture
    for fact in snapshot.recorded(UncaughtException):
        if fact.data.on_its_way == ON_TASK and fact.mono_ns >= since and fact.data.thread:
            report = exception_report(fact.data)
            if _text(report) == UNSUPPORTED:
                yield fact.data.thread, report
    begin = clock.relative(since)
    for report_of_thread in view.thread_exceptions:
        name, time = report_of_thread.thread, report_of_thread.time
        if name and _text(report_of_thread) == UNSUPPORTED and (begin is None or time is None or time >= begin):
            yield name, report_of_thread


def _thread_of(view: ProcessView, first: _Report, graph: CudaGraph | None) -> str | None:
    """The other thread that raised it: the one whose error has the same innermost line."""
    if isinstance(first, ThreadExceptionReport):
        return first.thread
    at = (first.python_stack or [])[:1]
    return next((name for name, item in _of_threads(view, graph) if (item.python_stack or [])[:1] == at), None)
