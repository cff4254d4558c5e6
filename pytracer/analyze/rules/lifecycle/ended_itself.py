"""ended-itself: the program, or a library in it, ended the process by exit() or _exit().

What: a process ended, no exception was on its way to the top, no signal had asked it to end shortly before, and its
black box has the stacks of the thread that asked for the end: os._exit() in Python, or exit() in a native library. With
status 0 only if others waited for the process in a collective, or if native code of the program itself called exit()
below a line of it: no launcher takes that for a failure.

Why it happens: a watchdog of the program calls os._exit(), because a stuck thread would hold up sys.exit(); a library
prints a message and calls exit() where it could have raised an error, some of them on a thread of their own. The
watchdog of faulthandler (dump_traceback_later(exit=True)) ends a program that stands still: then the wait is the cause.

A handler of SIGCHLD that ends the program does so for each child that ends, such as a DataLoader worker that ends well:
where only such ones had just ended, they are named, and the handler that does not ask which child it was.

What to do: read the last lines of the output: code that ends a process in this way usually prints why. Then look at the
place that is named.

A status of 128 + a signal's number, of which a child had died, passes that death on, as shells do: it is no reason.

How it can be wrong: the place is where the end was asked for, not why. After `pytracer.enable()` alone os._exit()
passes unseen, and the system call itself always does.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.deaths.ending import ending_in_mid_work
from pytracer.analyze.evidence.ends.exit_condition import exit_condition
from pytracer.analyze.evidence.ends.library_exits import (
    LIBC,
    ExitCondition,
    exit_caller,
    function_of,
    library_condition,
    own_library_exit,
)
from pytracer.analyze.evidence.ends.sent_signals import obeyed
from pytracer.analyze.evidence.ends.signal_handlers import signal_handler
from pytracer.analyze.evidence.native.native_stack import frame_words, functions, image_name, own_frames
from pytracer.analyze.evidence.phrases import collective_evidence, python_evidence
from pytracer.analyze.evidence.waits.wait_kinds import WAITED
from pytracer.analyze.evidence.waits.waits import meanwhile, other_threads, wait_of, waiting_frame
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Wait
from pytracer.report.job import NativeFrame, PythonFrame

_STATUS_OF_SIGNALS = 128
_OPENMP = Pattern(r"(libgomp|libiomp5|libomp)\b")
_NO_THREAD = (
    "Its last line of output says why; OpenMP's runtimes call exit() when a thread cannot be created. Use fewer "
    "threads (OMP_NUM_THREADS, torch.set_num_threads(), fewer DataLoader workers), or raise the limit: `ulimit -u`, "
    "`ulimit -v`, OMP_STACKSIZE, the pids limit of the container."
)
_WITH_STATUS = "Read the last lines of its output: code that ends a process in this way usually prints why."
_WITH_0 = (
    "Find out why this rank ends there while others go on: with status 0 no launcher reports it. Make all ranks leave "
    "together, after destroy_process_group(); if the line comes after the loop, they had different numbers of batches."
)
_IN_LIBRARY = (
    "Let {0} return an error, such as a null pointer or a negative number, that line {1} makes an exception of: by "
    "{2} it ends the whole process, and nothing behind line {1} runs.{3} What it printed last says why."
)


class _Call(msgspec.Struct, frozen=True):
    """The function that ends a process, and who called it: a native library, and the innermost line of Python."""

    function: str
    library: str | None
    python: str | None
    child: Wait | None = None  # whose signal the status passes on, as a shell does
    waited: PythonFrame | None = None  # of the main thread, when another one or faulthandler's watchdog ended it
    condition: ExitCondition | None = None  # in the source of that library


class EndedItself:
    """Fires for suspects whose recording has the stacks of their exit."""

    id = "ended-itself"
    needs = ("status",)

    def check(self, job: JobView) -> tuple[Judgement[_Call], ...] | NoFinding:
        """One judgement for processes that ended at the same place with the same status."""
        views = [view for view in job.suspects if view.index not in job.explained]
        judgements = merge_alike((_judge(view) for view in views), _same_call)
        return judgements or not_found("no process asked for its own end in mid-work")

    def describe(self, job: JobView, judgement: Judgement[_Call]) -> Description:
        """See Rule."""
        view, call, child = judgement.views[0], judgement.found, judgement.found.child
        if child is not None:
            return Description(
                f"{introduction(judgement.views)} passed on the death of its child, process {child.pid}, by "
                f"{signal_name(child.signal or 0)}, as exit status {view.process.exit_code}: "
                f"{_call_words(judgement.found)}.",
                [python_evidence(view), collective_evidence(judgement.views)],
                "Look at what the child did: its recording is missing or was overwritten. Run it by itself, or under "
                "AddressSanitizer.",
                ["the recording of the child"],
            )
        if _is_watchdog(view):
            return _of_watchdog(judgement)
        own = [frame for frame in view.python_stack or () if not is_library_file(frame.file)]
        handler = signal_handler(job, view, own) if judgement.found.library is None else None
        told = handler.advice if handler is not None else None
        return Description(
            f"{introduction(judgement.views)} ended itself with exit status {view.process.exit_code}: "
            f"{_call_words(judgement.found)}{handler.words if handler is not None else ''}.",
            [python_evidence(view), collective_evidence(judgement.views)],
            told if told is not None else _advice(view, judgement.found),
            [
                "why it did: an exit status carries no reason"
                if told is None and call.condition is None and _condition(view, call) is None
                else None
            ],
        )


def _is_watchdog(view: ProcessView) -> bool:
    """faulthandler.dump_traceback_later(exit=True): its thread calls _exit(1)."""
    return any("faulthandler_thread" in name for name in functions(view))


def _of_watchdog(judgement: Judgement[_Call]) -> Description:
    view, at = judgement.views[0], judgement.found.waited
    wait = wait_of(view)
    did = WAITED[wait.kind] if wait is not None else "was"
    where = f", while it {did} at {place_words(at)}" if at is not None else ""
    others = [item.words for item in other_threads(view)]
    meanwhile = f" Meanwhile {' and '.join(others)}: see whether it holds what is waited for." if others else ""
    return Description(
        f"{introduction(judgement.views)} was ended by faulthandler's watchdog, with exit status "
        f"{view.process.exit_code}{where}.",
        [collective_evidence(judgement.views)],
        (f"Find out what {place_words(at)} waits for, or why it is slow." if at is not None else "")
        + meanwhile
        + " The program had set the limit by faulthandler.dump_traceback_later(exit=True): raise it if that is due.",
        has_place=True,
    )


def _advice(view: ProcessView, call: _Call) -> str:
    own = own_library_exit(view)
    if own is not None:
        hides = (
            " With status 0, no shell and no launcher takes that for a failure." if not view.process.exit_code else ""
        )
        return _IN_LIBRARY.format(function_of(own[0]), own[1].line, call.function, hides)
    if view.process.exit_code == 0:
        return _WITH_0
    if _OPENMP.search(call.library or ""):
        return _NO_THREAD
    condition = _condition(view, call)
    if call.waited is not None and call.library is None:
        line = f"line {call.waited.line}"
        first = f"{condition}" if condition is not None else "Another thread than the main one did so"
        return f"{first}: see whether {line} is slow, or waits for something, where the main thread was. {_WITH_STATUS}"
    return f"{condition}: find out why it did. {_WITH_STATUS}" if condition is not None else _WITH_STATUS


def _condition(view: ProcessView, call: _Call) -> str | None:
    """The one below which the program called for its end."""
    return exit_condition(view.process.snapshot, view.python_stack or ()) if call.library is None else None


def _judge(view: ProcessView) -> Judgement[_Call] | None:
    if view.process.status_kind != "exited" or ending_in_mid_work(view.process.snapshot.ending) is None:
        return None
    if obeyed(view):
        return None  # other-death names who asked for the end
    call = _call(view)
    wait = wait_of(view)
    if _is_watchdog(view) and wait is not None:
        return Judgement("hang", "possible" if wait.kind in ("device", "driver") else "likely", (view,), call)
    if call.child is not None:
        return Judgement("unknown", "unknown", (view,), call)
    meant = view.process.exit_code == 0 and own_library_exit(view) is not None  # it may be
    return Judgement("exit", "likely" if meant else "certain", (view,), call)


def _same_call(judgement: Judgement[_Call]) -> object:
    found = judgement.found
    others = found if _is_watchdog(judgement.views[0]) else structs.replace(found, waited=None)
    return judgement.views[0].process.exit_code, others


def _call(view: ProcessView) -> _Call:
    frames, python = own_frames(view), view.python_frame
    function = "exit()" if frames and LIBC.match(image_name(frames[0].image)) else "_exit()"
    caller = exit_caller(view)
    where = place_words(python) if python else None
    waited = waiting_frame(view) if _is_watchdog(view) else meanwhile(view)
    own = own_library_exit(view)
    condition = library_condition(own[0]) if own is not None else None
    return _Call(function, _place(caller) if caller else None, where, _passed_on(view), waited, condition)


def _passed_on(view: ProcessView) -> Wait | None:
    """The child that a signal ended before, whose number is in the status: 128 + 11."""
    status = view.process.exit_code or 0
    waits = reversed(view.process.snapshot.waits)
    return next((wait for wait in waits if wait.signal and status == _STATUS_OF_SIGNALS + wait.signal), None)


def _call_words(call: _Call) -> str:
    """Who called what, and where."""
    if call.library is not None:
        below = f", below {call.python}" if call.python is not None else ""
        if _OPENMP.search(call.library):
            runtime = f"the OpenMP runtime ({call.library})"
            return f"{runtime} called {call.function}{below}, as it does when it cannot create a thread"
        where = f" {call.condition.words}" if call.condition is not None else ""
        return f"{call.function} was called in {call.library}{where}{below}"
    if call.python is None:
        return f"{call.function} was called on a thread without Python"
    main = f", while the main thread was at {place_words(call.waited)}" if call.waited is not None else ""
    return f"{'os._exit()' if call.function == '_exit()' else call.function} was called at {call.python}{main}"


def _place(frame: NativeFrame) -> str:
    words = frame_words(frame)
    return f"{words} ({image_name(frame.image)})" if frame.function else words
