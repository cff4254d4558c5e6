"""python-exception: a Python exception ended the process.

What: an exception reached the top of the main program.

Why it happens: by the exception's message. Among ranks the first one counts: the others often follow with a lost
connection.

A rank that fails to receive has a reason of its own where the sender had begun that message by isend() and ended with
status 0: the sender drops the Work, or never waits for it, and the message is lost.

A process that asks for a tensor of another one gets an EOFError where that one has no file descriptor left to send it:
its own limit, and the line that keeps files open there, are the reason. Where all its children had ended before, it is
the end of the one that sent the tensor: the line that put it, and the line that waited for that end too early, are
named where the source shows them.

A pool of concurrent.futures is called broken, too, where it could not load what a worker had sent: nobody had died. Of
an exception whose class cannot be called with its `args` alone, the worker, its line and the constructor are named. A
key of a store, or a path, that a rank waits for in vain may be another one on each rank: where the source shows a draw,
its line is named.

A child has no exit status where SIGCHLD is ignored, or another line waits for any child: multiprocessing and mp.spawn
take it for failed then. The line is named where the source shows one. A connection of multiprocessing is refused
between processes with different authkeys, as ranks that torchrun starts have: whose descriptors were asked for is known
where that process recorded the refusal. A file that was read empty or incomplete was *probably* still being written
where another process was in a block that writes that file.

A key that is missing on several ranks, another one on each, may be in no rank's part: of `files[rank::world]` where
glob() or a set gave `files` another order on each rank, some are taken twice and some by none. The line that lists them
is named where the source shows such a part and what gathers it; it is *probable* where no item is known to be taken
twice.

Forked workers of a DataLoader share the position of a file that their dataset opened before: one moves it while
another one reads. Where a label, an index or a key of a batch cannot be, and the source shows such a file, that is
*likely* why.

A server that is refused a port, such as the store of init_process_group(), is refused it by whoever has it: that
process is looked for when the exception has come, as nobody can find it once the job has ended. Of a process of the job
itself the line that opened the port is named, where one line alone can have; of another program its name, number and
age; without any listener, connections that still close (TIME_WAIT) or that have the port as their own end. Without
`/proc`, a line of the process or of its parent that serves there is *probably* why.

What to do: read the exception and its innermost line outside torch. Where torch, Ray or a pool of processes raised an
exception of another process again, a text with it has the traceback of the first one: that line counts. Where a check
of torch's own data failed and the process then died of a memory error, look for what wrote over that data.

How it can be wrong: an exception that speaks of a lost or silent peer is a consequence of something that happened
on that peer. When nothing is recorded there, it is shown as the cause, with lower confidence. A signal after the
exception counts as part of shutting down, unless steps or autograd nodes were recorded in between. Where the C library
then found the heap damaged, the exception may have come of that: it is *likely* only. Who has a port is seen when the
exception has reached the top of the program: another process may have taken it since. Processes of other users, and
those outside the container, are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytracer._library_files import of_multiprocessing
from pytracer.analyze.behind import Behind
from pytracer.analyze.collectives.in_flight import bad_address
from pytracer.analyze.collectives.unreceived_sends import UnreceivedSend, unreceived_send
from pytracer.analyze.deaths.order import is_interrupt, mentions_lost_peer
from pytracer.analyze.evidence.cuda.cuda_errors import cuda_error, out_of_memory
from pytracer.analyze.evidence.cuda.failed_checks import before_check
from pytracer.analyze.evidence.ends.memory_holders import (
    NO_MEMORY,
    Shortage,
    failed_allocation,
    holder_advice,
    holder_evidence,
    no_memory_advice,
    shortage,
    shortage_of_worker,
)
from pytracer.analyze.evidence.exceptions.earlier_warnings import warning_evidence
from pytracer.analyze.evidence.exceptions.followed_errors import followed_errors
from pytracer.analyze.evidence.exceptions.loaders import loader_timeout
from pytracer.analyze.evidence.exceptions.next_step import next_step
from pytracer.analyze.evidence.exceptions.raisers import repeats
from pytracer.analyze.evidence.exceptions.reraised import Reraised, library_reason, reason_within, reraised
from pytracer.analyze.evidence.exceptions.shared_offsets import shared_offset
from pytracer.analyze.evidence.exceptions.store_servers import store_server
from pytracer.analyze.evidence.exceptions.telling import telling_words
from pytracer.analyze.evidence.exceptions.told import Told, explanation_of, told_of
from pytracer.analyze.evidence.failing.autograd.backward_call import TWICE, caller_of_backward
from pytracer.analyze.evidence.failing.explained import Explanation
from pytracer.analyze.evidence.heap.overwritten import (
    heap_damaged_later,
    memory_may_be_overwritten,
    overwritten_advice,
)
from pytracer.analyze.evidence.lifetime.file_writers import file_writer
from pytracer.analyze.evidence.phrases import collective_evidence, error_words
from pytracer.analyze.evidence.waits.ended_threads import ended_thread_evidence, thread_behind_exception
from pytracer.analyze.evidence.waits.joined_at_exit import joined_at_exit
from pytracer.analyze.evidence.waits.left_waiting import left_waiting
from pytracer.analyze.evidence.waits.other_end import other_end_words
from pytracer.analyze.evidence.waits.thread_ends import let_thread_end
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import kept_by_thread
from pytracer.analyze.naming import introduction, name_words, place_words, subject_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Confidence, Evidence, PythonFrame

_VARIABLES = 6
_PROCESS = of_multiprocessing("process")
_PEER = "why the peer was gone or silent: no other rank's death explains it"


class _Raised(msgspec.Struct, frozen=True):
    """What it rests on. `view`: the process that ended by the exception; another one may have raised it first."""

    view: ProcessView
    lost: bool  # whether it speaks of a peer that was lost or silent
    unreceived: UnreceivedSend | None = None  # why it was


class PythonException:
    """Fires for processes that ended with an uncaught exception other than an interruption."""

    id = "python-exception"
    needs = ("EXCEPTION",)

    def check(self, job: JobView) -> tuple[Judgement[_Raised], ...] | NoFinding:
        """One judgement for all processes with the same exception from the same line."""
        judgements = merge_alike((_judge(job, view) for view in job.suspects), _same_exception)
        return judgements or not_found("no process ended with an uncaught exception of its own")

    def describe(self, job: JobView, judgement: Judgement[_Raised]) -> Description:
        """See Rule; the first process represents all."""
        view, lost, unreceived = judgement.found.view, judgement.found.lost, judgement.found.unreceived
        told = told_of(job, view)
        explanation = explanation_of(job, told)
        if failed_allocation(view) and not explanation.of_limit:
            explanation = Explanation()
        frame, first, chain = view.python_frame, told.first, told.chain
        again = f" by {name_words([view])}" if view.index != judgement.views[0].index else ""
        maybe = before_check(view) if first is None and _is_own_check(told) else None
        short = (shortage_of_worker(job, view) if told.of_worker else None) or shortage(view)
        whose = _whose(view, judgement.views) if first is None and chain is None and not lost else ""
        known = explanation.subject is not None or unreceived is not None
        raised = f"{_words(view, first, known=known)}{whose}{_below_backward(view) or _at(frame, first, again)}"
        raised += _circumstances(job, told, explanation, short) if unreceived is None else f": {unreceived.words}"
        if chain is not None:
            raised = chain.headline(raised, explanation.subject)
        if maybe is not None:
            raised += f"; before, {maybe.words}"
        left, joined = left_waiting(job, view), joined_at_exit(job, view)
        raised += "".join(item.words for item in (left, joined) if item is not None)
        after, kept = left or joined, _kept(view)
        return Description(
            f"{introduction(judgement.views)} raised {raised}.",
            [
                Evidence(
                    "exception",
                    f"the exception{f', raised again{again},' if again else ''} reached the top of "
                    f"the {_top(view)} and was not caught",
                    exception=view.exception.type if view.exception else None,
                    text=view.exception.message if view.exception else None,
                    python=frame,
                ),
                _variables_evidence(view) if first is None and explanation.evidence is None else None,
                *(holder_evidence(job, view) if failed_allocation(view) else ()),
                _signal_later(view),
                *ended_thread_evidence(view),
                explanation.evidence,
                *(warning_evidence(view) if first is None else ()),
                collective_evidence(judgement.views),
                _left_early(job, judgement.views) if lost else None,
                unreceived.evidence if unreceived is not None else None,
            ],
            unreceived.advice
            if unreceived is not None
            else _advice(job, told, explanation, short, maybe.advice if maybe is not None else "", lost=lost),
            [_PEER if lost and unreceived is None and explanation.words is None else None, explanation.failure],
            explained=explanation.words is not None or unreceived is not None,
            names_cause=known,
            behind=_behind(told, explanation, unreceived),
            line=explanation.line,
            besides=let_thread_end(job, view, kept) if kept is not None else after.advice if after is not None else "",
        )


def _behind(told: Told, explanation: Explanation, unreceived: UnreceivedSend | None) -> Behind | None:
    """What the line's failure is about; None where another line raised it first, or nothing is known."""
    if unreceived is not None:
        return Behind.of([], unreceived.frame)
    return explanation.behind if told.first is None and told.chain is None else None


def _circumstances(job: JobView, told: Told, explanation: Explanation, short: Shortage | None) -> str:
    """What it was about, and what had happened around it; with a chain, the former is said of the first one."""
    view = told.view
    about = explanation.subject or told.meant or told.means if told.chain is None else None
    words = f"{f': {about}' if about is not None else ''}{short.words if short is not None else ''}"
    if short is not None and short.leads:
        words = f"{short.words}{f'; {about}' if about is not None else ''}"
    words += f"{_thread(view)}{other_end_words(job, view)}{_kept_words(view)}"
    if memory_may_be_overwritten(view):
        return f"{words}; memory may have been overwritten before"
    return f"{words}; its heap was found damaged afterwards" if heap_damaged_later(view) is not None else words


def _advice(
    job: JobView, told: Told, explanation: Explanation, short: Shortage | None, maybe: str, *, lost: bool
) -> str:
    """What to do: by the facts of the line, by how the process ended, or by the message."""
    view = told.view
    others = "" if lost else followed_errors(job)
    if short is not None and short.advice is not None:
        return f"{maybe}{short.advice}" + ("" if short.alone else f" {explanation.words or NO_MEMORY}")
    if explanation.words is not None:
        after = told.chain.besides if told.chain is not None else told.handling(explanation)
        repeated = "" if explanation.together or explanation.of_limit else _repeated(told)
        return f"{maybe}{explanation.words}{_written(view, explanation)}{after}{repeated}{others}{_held(view)}"
    if lost and told.means is not None:
        return next_step(told)
    if lost:
        return "Look at the other end of the connection: this rank only noticed that a peer was gone or silent."
    if failed_allocation(view):
        return no_memory_advice(view)
    if memory_may_be_overwritten(view):
        return overwritten_advice(view, view.exception_stack_of_program)
    return f"{maybe}{next_step(told)}{'' if told.of_worker else others}"


def _top(view: ProcessView) -> str:
    """A child of multiprocessing's has the program's own top in its parent."""
    is_named = view.work is not None and view.work.found == "recorded"  # run() of a class of the program's own
    is_child = is_named or any((frame.file or "").endswith(_PROCESS) for frame in view.exception_stack)
    return "process" if is_child else "program"


def _held(view: ProcessView) -> str:
    """Where memory ran out: the line that held the most."""
    return holder_advice(view) if failed_allocation(view) else ""


def _is_own_check(told: Told) -> bool:
    own = told.view.exception
    return told.deliberate or (own is not None and own.type == "AssertionError")


def _thread(view: ProcessView) -> str:
    """Whom it had waited for."""
    ended = thread_behind_exception(view)
    return f"; {ended.words}" if ended is not None else ""


def _kept(view: ProcessView) -> ProcessWait | None:
    """Why the process was still there after the exception, when a signal ended it."""
    return kept_by_thread(view) if view.process.status_kind == "signaled" else None


def _kept_words(view: ProcessView) -> str:
    kept = _kept(view)
    at = f" at {place_words(kept.at)}" if kept is not None and kept.at is not None else ""
    return f"; the process then waited for a thread that is no daemon{at}" if kept is not None else ""


def _at(frame: PythonFrame | None, first: Reraised | None, by: str) -> str:
    """The line that raised it first, and that where it was raised again."""
    if first is not None and first.frame is not None:
        again = f" (raised again{by} at {place_words(frame)})" if frame else ""
        return f" {first.where}, at {place_words(first.frame)}{again}"
    return f" at {place_words(frame)}" if frame else ""


def _below_backward(view: ProcessView) -> str | None:
    """Of an autograd function of the program that met a freed graph: the line whose backward() called it."""
    stack, frame = view.exception_stack, view.python_frame
    freed = view.exception is not None and TWICE in (view.exception.message or "")
    place = caller_of_backward(stack) if freed and view.raised else None
    if place is None or frame is None:
        return None
    return f" at {place_words(stack[place])} (autograd called {frame.function})"


def _written(view: ProcessView, explanation: Explanation) -> str:
    """The line that may have written the file that is at fault."""
    writer = (
        file_writer(view, explanation.file, view.exception_stack_of_program) if explanation.file is not None else None
    )
    return f" {writer.words}" if writer is not None else ""


def _repeated(told: Told) -> str:
    """Of a DataLoader worker's exception: how to meet it again."""
    if told.sample is not None:
        return f" {repeats(f'dataset[{told.sample}]')}"
    entry = told.origin.entry_words if told.origin is not None else None
    return f" {entry}" if entry is not None else ""


def _variables_evidence(view: ProcessView) -> Evidence | None:
    """Those that the line uses, where its text is known; else the ones made last."""
    frame, exception = view.python_frame, view.exception
    found = (exception.variables or []) if exception is not None else []
    text = line_text(view.process.snapshot, frame)
    found = [item for item in found if " " not in (item.name or "")]  # the recorder's own: limits, the file
    if text is not None:
        found = [item for item in found if _uses(text, (item.name or "").removesuffix(".weight"))]
    if not found or frame is None:
        return None
    words = "; ".join(f"`{item.name}` was {item.value}" for item in found[-_VARIABLES:])
    return Evidence("variables", f"at {place_words(frame)}, {words}", python=frame, text=words)


def _uses(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", text) is not None


def _judge(job: JobView, view: ProcessView) -> Judgement[_Raised] | None:
    """About the process that raised it first, where that is recorded: it may live on."""
    if not view.raised or is_interrupt(view) or bad_address(view) is not None:
        return None
    if cuda_error(view) is not None or out_of_memory(view) or loader_timeout(view) is not None:
        return None  # rules of their own
    lost, first = mentions_lost_peer(view), _raised_first(job, view)
    unreceived = unreceived_send(job, view) if lost and first is view else None
    explains = ((view, "raised the exception of another process again"),) if first is not view else ()
    return Judgement(
        "python-exception",
        _confidence(job, view, unreceived, lost=lost),
        (first,),
        _Raised(view, lost, unreceived),
        leads=bool(explains),
        explains=explains,
    )


def _confidence(job: JobView, view: ProcessView, unreceived: UnreceivedSend | None, *, lost: bool) -> Confidence:
    """Of a lost peer, by whether it is known why it was gone; else by what is known of the values at fault."""
    if lost and store_server(job, view) is not None:
        return "likely"
    if lost:
        return "possible" if unreceived is None else "certain" if unreceived.how == "dropped" else "likely"
    told = told_of(job, view)
    if told.chain is None and shared_offset(job, view, told.origin) is not None:
        return "likely"
    return "likely" if heap_damaged_later(view) is not None else "certain"


def _raised_first(job: JobView, view: ProcessView) -> ProcessView:
    """The process whose number or rank the text has; a number on another host, or reused, may be any."""
    first, own = reraised(view.exception), view.process.snapshot
    if first is None or (first.pid is None and first.rank is None):
        return view
    here = [item for item in job.views if item.process.snapshot.boot_id == own.boot_id]
    found = (
        [item for item in here if item.process.snapshot.pid == first.pid]
        if first.pid is not None
        else [item for item in job.views if item.process.role == "rank" and item.process.rank == first.rank]
    )
    return found[0] if len(found) == 1 else view


def _same_exception(judgement: Judgement[_Raised]) -> object:
    exception, frame = judgement.found.view.exception, judgement.found.view.python_frame
    return exception.type if exception else None, (frame.file, frame.line) if frame else None


def _words(view: ProcessView, first: Reraised | None, *, known: bool) -> str:
    """Its type and message; an explanation says more than what follows the first sentence."""
    words = first.words if first is not None else _own_words(view)
    return re.split(r"(?<=[a-z\d]{2})\. (?=(?![KMGTP]iB\b)[A-Z]|port: \d)", words, maxsplit=1)[0] if known else words


def _own_words(view: ProcessView) -> str:
    exception = view.exception
    if exception is None or not exception.type:
        return "an exception"
    reason = reason_within(exception)
    message = telling_words(reason.message)
    if reason is not exception and reason.type is not None:
        message = f"{reason.type}: {message}" if message else reason.type
    inner = library_reason(exception)
    if inner is not None:
        message = ": ".join(filter(None, (message, error_words(inner))))
    if message.startswith(f"{exception.type}: "):  # TorchScript's has its type once more
        return message
    return f"{exception.type}: {message}" if message else exception.type


def _whose(view: ProcessView, views: Sequence[ProcessView]) -> str:
    """Of several, whose message is quoted, where another one has other numbers or words."""
    others = [item for item in views if _own_words(item) != _own_words(view)]
    if not others:
        return ""
    named = len(others) == 1 or all(item.process.role == "rank" for item in others)
    those = f"th{'at' if len(others) == 1 else 'ose'} of {name_words(others)}" if named else "others"
    return f" ({name_words([view])}'s message; {those} differ{'s' if len(others) == 1 else ''})"


def _signal_later(view: ProcessView) -> Evidence | None:
    """Torn down without its process group, a healthy rank may abort, too: gloo's threads outlive the interpreter."""
    signal = view.signal
    if view.process.status_kind != "signaled" or signal is None:
        return None
    doing = "while it was shutting down" if _kept(view) is None else "while it waited for that thread"
    text = heap_damaged_later(view)
    doing += f": the C library printed {text}" if text is not None else ""
    return Evidence(
        "signal",
        f"{signal.name} ended the process later, {doing}",
        signal=signal.name,
        code=signal.code,
    )


def _left_early(job: JobView, views: Sequence[ProcessView]) -> Evidence | None:
    """Ranks that had already ended well: a peer that left too early looks like a lost connection."""
    mine = [view.ended_ns for view in views if view.ended_ns is not None]
    early = [
        view
        for view in job.views
        if view.process.role == "rank" and view.left_well
        if view.ended_ns is not None and mine and view.ended_ns <= max(mine)
    ]
    if not early:
        return None
    ranks = [view.process.rank for view in early if view.process.rank is not None]
    return Evidence("exit-status", f"{subject_words(early)} had already ended with status 0", ranks=ranks, exit_code=0)
