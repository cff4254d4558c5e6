"""python-exception: a Python exception ended the process.

What: an exception reached the top of the main program.

Why it happens: by the exception's message. Among ranks the first one counts: the others often follow with a lost
connection.

What to do: read the exception and its innermost line outside torch. Where torch, Ray or a pool of processes raised an
exception of another process again, a text with it has the traceback of the first one: that line counts. Where a check
of torch's own data failed and the process then died of a memory error, look for what wrote over that data.

How it can be wrong: an exception that speaks of a lost or silent peer is a consequence of something that happened
on that peer. When nothing is recorded there, it is shown as the cause, with lower confidence. A signal after the
exception counts as part of shutting down, unless steps or autograd nodes were recorded in between. Where the C library
then found the heap damaged, the exception may have come of that: it is *likely* only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._library_files import is_library_file
from pytracer._text import capital
from pytracer.analyze.collectives.in_flight import bad_address
from pytracer.analyze.deaths.order import is_interrupt, mentions_lost_peer
from pytracer.analyze.evidence.cuda.cuda_errors import cuda_error, out_of_memory
from pytracer.analyze.evidence.ends.memory_holders import (
    accumulated,
    address_as_size,
    failed_allocation,
    holder_advice,
    holder_evidence,
    no_memory_advice,
)
from pytracer.analyze.evidence.exceptions.loaders import loader_timeout
from pytracer.analyze.evidence.exceptions.name_origins import meant_words, origin_words
from pytracer.analyze.evidence.exceptions.raisers import failed_sample, raiser
from pytracer.analyze.evidence.exceptions.reraised import Reraised, reason_within, reraised
from pytracer.analyze.evidence.exceptions.telling import telling_words
from pytracer.analyze.evidence.failing.explained import Explanation, explained, involved
from pytracer.analyze.evidence.failing.handlers import ended_by_first
from pytracer.analyze.evidence.failing.own_advice import own_advice
from pytracer.analyze.evidence.heap.overwritten import (
    heap_damaged_later,
    memory_may_be_overwritten,
    overwritten_advice,
)
from pytracer.analyze.evidence.lifetime.file_writers import file_writer
from pytracer.analyze.evidence.limits.words import limit_reason
from pytracer.analyze.evidence.phrases import collective_evidence, error_at_words
from pytracer.analyze.evidence.waits.ended_threads import ended_thread_evidence, thread_behind_exception
from pytracer.analyze.evidence.waits.other_end import other_end_words
from pytracer.analyze.evidence.waits.waits import LET_THREAD_END, ProcessWait, kept_by_thread
from pytracer.analyze.known.exceptions import exception_advice
from pytracer.analyze.naming import introduction, name_words, place_words, subject_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, ExceptionReport, HandledExceptionReport, PythonFrame

_VARIABLES = 6
_SAMPLE = "and at the sample that it was given: num_workers=0 under a debugger stops there."
_BATCH = "and at the batch that it was given: num_workers=0 under a debugger stops there."
_NUMBER = "with sample {0}: `dataset[{0}]` in one process should repeat it."
_QUOTED = 80  # characters of a line of the program


@dataclass(frozen=True)
class _Raised:
    """What it rests on. `view`: the process that ended by the exception; another one may have raised it first."""

    view: ProcessView
    lost: bool  # whether it speaks of a peer that was lost or silent


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
        view, lost = judgement.found.view, judgement.found.lost
        frame, first = view.python_frame, reraised(view.exception)
        again = f" by {name_words([view])}" if view.index != judgement.views[0].index else ""
        waited = f"{_thread(view)}{other_end_words(job, view)}{_kept_words(view)}"
        explanation = _explained(job, view, first)
        if failed_allocation(view) and not explanation.of_limit:
            explanation = Explanation()
        meant = f": {explanation.subject}" if explanation.subject is not None else _meant(job, view, first)
        circumstances = f"{meant}{_piled(view)}{waited}"
        if memory_may_be_overwritten(view):
            circumstances += "; memory may have been overwritten before"
        elif heap_damaged_later(view) is not None:
            circumstances += "; its heap was found damaged afterwards"
        words = _words(view, first)
        if explanation.subject is not None:  # it says more than what follows the first sentence
            words = re.split(r"(?<=[a-z]{2})\. (?=[A-Z])", words, maxsplit=1)[0]
        raised = f"{words}{_at(frame, first, again)}{circumstances}"
        before = _original(view) if first is None else None
        led = before is not None and not _deliberate(view) and _ended_by(view, before)
        if before is not None and led:
            raised = f"{error_at_words(before)}, and while that was on its way, {raised}"
        fact = explanation.words
        others = _of_others(job) if not lost else ""
        repeated = "" if explanation.together or explanation.of_limit else _sample(job, view, first)
        own_frames = [frame for frame in view.exception_stack if not is_library_file(frame.file)]
        return Description(
            f"{introduction(judgement.views)} raised {raised}.",
            [
                Evidence(
                    "exception",
                    f"the exception{f', raised again{again},' if again else ''} reached the top of the program "
                    "and was not caught",
                    exception=view.exception.type if view.exception else None,
                    text=view.exception.message if view.exception else None,
                    python=frame,
                ),
                _variables_evidence(view) if first is None else None,
                *(holder_evidence(job, view) if failed_allocation(view) else ()),
                _signal_later(view),
                *ended_thread_evidence(view),
                collective_evidence(judgement.views),
                _left_early(job, judgement.views) if lost else None,
            ],
            f"{fact}{_written(view, explanation)}{'' if led else _handling(view, first)}{repeated}{others}{_held(view)}"
            if fact is not None
            else "Look at the other end of the connection: this rank only noticed that a peer was gone or silent."
            if lost
            else no_memory_advice(view)
            if failed_allocation(view)
            else overwritten_advice(view, own_frames)
            if memory_may_be_overwritten(view)
            else _read_it(job, view, first),
            ["why the peer was gone: no other rank's death explains it" if lost else None, explanation.failure],
            explained=fact is not None,
            names_cause=explanation.subject is not None,
            besides=LET_THREAD_END if _kept(view) is not None else "",
        )


def _meant(job: JobView, view: ProcessView, first: Reraised | None) -> str:
    """What the variables were that the message is about."""
    raised = raiser(job, view, first)
    words = meant_words(raised.snapshot, raised.exception, raised.stack) if raised is not None else None
    return f": {words}" if words is not None else ""


def _held(view: ProcessView) -> str:
    """Where memory ran out: the line that held the most."""
    return holder_advice(view) if failed_allocation(view) else ""


def _piled(view: ProcessView) -> str:
    """What had piled up when memory ran out."""
    held = accumulated(view) if failed_allocation(view) and address_as_size(view) is None else None
    return f", while it held {held.words}" if held is not None else ""


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


def _deliberate(view: ProcessView) -> bool:
    """Whether the line is a `raise`."""
    return re.match(r"raise\b", line_text(view.process.snapshot, view.python_frame) or "") is not None


def _ended_by(view: ProcessView, before: HandledExceptionReport | None) -> bool:
    """Whether an earlier exception would have ended it, had the code that passes it on not failed."""
    return before is not None and ended_by_first(view.process.snapshot, view.exception_stack, before)


def _handling(view: ProcessView, first: Reraised | None) -> str:
    """What the program was handling when its line failed."""
    before = _original(view) if first is None else None
    return f" It came while {error_at_words(before)} was being handled." if before is not None else ""


def _read_it(job: JobView, view: ProcessView, first: Reraised | None) -> str:
    if first is not None and first.frame is not None and "DataLoader worker" in first.where:
        number, raised = failed_sample(job, view, first), raiser(job, view, first)
        joins = raised is not None and raised.joins
        repeated = raised.repeated if raised is not None else None
        again = _SAMPLE if number is None else _NUMBER.format(number)
        if joins:
            again = f"with the samples of its batch: {repeated}" if repeated is not None else _BATCH
        sample = f"Look at {place_words(first.frame)} {again}"
        given = involved(raised.snapshot, raised.exception, raised.stack) if raised is not None else None
        line = place_words(first.frame) if joins else "that line"
        known = exception_advice(first.type, first.message, line, general=given is None) or given
        if joins and known is not None:
            return f"{known} {repeated or ''}".rstrip()
        return f"{sample} {known}" if known is not None else f"{_origin(job, view, first)}{sample}"
    return f"{_what_to_do(job, view, first)}{_of_others(job)}"


def _written(view: ProcessView, explanation: Explanation) -> str:
    """The line that may have written the file that is at fault."""
    frames = [frame for frame in view.exception_stack if not is_library_file(frame.file)]
    writer = file_writer(view, explanation.file, frames) if explanation.file is not None else None
    return f" {writer.words}" if writer is not None else ""


def _sample(job: JobView, view: ProcessView, first: Reraised | None) -> str:
    """Of a DataLoader worker's exception: how to meet it again."""
    number, raised = failed_sample(job, view, first), raiser(job, view, first)
    if number is not None:
        return f" `dataset[{number}]` in one process should repeat it."
    entry = raised.entry_words if raised is not None else None
    return f" {entry}" if entry is not None else ""


def _of_others(job: JobView) -> str:
    followed = any(death.primary is False and death.view.process.role == "rank" for death in job.deaths)
    return " The other ranks' errors followed from it." if followed else ""


def _explained(job: JobView, view: ProcessView, first: Reraised | None) -> Explanation:
    """By the facts of the line; of an exception of a DataLoader worker, by those that the worker recorded."""
    snapshot, own = view.process.snapshot, view.exception
    before = _original(view) if first is None else None
    if own is not None and before is not None and (_deliberate(view) or _ended_by(view, before)):
        told = ExceptionReport(type=before.type, message=before.message, python_stack=before.python_stack)
        limit = limit_reason(snapshot, own, before.python_stack or [], told)
        return Explanation(limit.advice, limit.subject, of_limit=True) if limit is not None else Explanation()
    if own is None:
        return Explanation()
    if first is None:
        return explained(snapshot, reason_within(own), view.exception_stack)
    raised = raiser(job, view, first)
    if raised is None:  # a pool's process: what its text has, and the source
        told = ExceptionReport(type=first.type, message=first.message)
        stack = [item for item in (first.innermost, first.frame) if item is not None]
        return explained(snapshot, told, stack[:1] if first.innermost == first.frame else stack)
    dataset = raised.snapshot.worker.dataset if raised.snapshot.worker is not None else None
    return explained(raised.snapshot, raised.exception, [*raised.stack, *view.exception_stack], dataset)


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


def _what_to_do(job: JobView, view: ProcessView, first: Reraised | None) -> str:
    """By type and message, and where the values of the line came from."""
    origin, meant = _origin(job, view, first), _meant(job, view, first)
    raised = raiser(job, view, first)
    given = involved(raised.snapshot, raised.exception, raised.stack) if raised is not None and first is None else None
    advice = _by_kind(view, first, quoted=not origin, given=given)
    if given is not None and given in advice:
        return advice
    return f"{origin}{advice}" if meant else f"{advice} {origin}".rstrip()  # else it is but one of the line


def _origin(job: JobView, view: ProcessView, first: Reraised | None) -> str:
    raised = raiser(job, view, first)
    words = origin_words(raised.snapshot, raised.exception, raised.stack) if raised is not None else None
    return f"{capital(words)}. " if words is not None else ""


def _by_kind(view: ProcessView, first: Reraised | None, *, quoted: bool, given: str | None) -> str:
    """One that the program raised for an earlier one has that one's advice."""
    frame = first.frame if first is not None else view.python_frame
    text, before = line_text(view.process.snapshot, frame), _original(view) if first is None else None
    deliberate = re.match(r"raise\b", text or "") is not None
    if before is not None:
        earlier = error_at_words(before)
        if deliberate:
            known = exception_advice(before.type, before.message, "that line")
            return " ".join(filter(None, (f"Look at {earlier} first: the program raised the last one for it.", known)))
        if _ended_by(view, before):
            known = exception_advice(before.type, before.message, "that line")
            hides = f"it ended the run, and {place_words(frame)} failed on its way out" if frame is not None else ""
            return " ".join(filter(None, (f"Look at {earlier} first: {hides or 'it ended the run'}.", known)))
        own = _by_message(view, first, frame, text, quoted=quoted, given=given)
        return f"{own}{_handling(view, first)}"
    if deliberate and frame is not None:
        kind = view.exception.type if view.exception is not None else None
        known = exception_advice(kind, view.exception.message if view.exception is not None else None, "that line")
        own = (
            f"A check of the program's own raised it: look at the condition above {place_words(frame)}, print what it "
            "compares, and go back to where that is set: this step's input, an option, this rank's share of the data."
        )
        return own if kind in (None, "ValueError", "RuntimeError", "TypeError") or known is None else known
    return _by_message(view, first, frame, text, quoted=quoted, given=given)


def _by_message(
    view: ProcessView,
    first: Reraised | None,
    frame: PythonFrame | None,
    text: str | None,
    *,
    quoted: bool,
    given: str | None,
) -> str:
    named = f"line {frame.line}" if frame is not None and first is None else None  # the headline has its file
    place = named or (place_words(frame) if frame is not None else "the line that raised it")
    if text is not None and len(text) <= _QUOTED and quoted:
        place = f"{place} (`{text}`)"
    raised = first if first is not None else reason_within(view.exception) if view.exception is not None else None
    stack = view.exception_stack if first is None else []
    own = text if stack and stack[0] == frame else None  # below a function of a library its line looks nothing up
    known = hint = None
    if raised is not None:
        hint = own_advice(raised.message)
        known = exception_advice(raised.type, raised.message, place, own, general=given is None)
    if known is None and hint is not None:
        return f"{f'{given} ' if given is not None else ''}The message itself advises: {hint}"
    return (
        known
        or given
        or f"Print the values, types and shapes that go into {place}, and compare them with what the message asks for; "
        "`python -m pdb -c continue` stops there with all variables."
    )


def _original(view: ProcessView) -> HandledExceptionReport | None:
    """The first exception of a chain, where the last one says less: that of the program which was being handled."""
    context = (view.exception.context or []) if view.exception is not None else []
    own = [item for item in context if any(not is_library_file(frame.file) for frame in item.python_stack or ())]
    return own[-1] if own else None


def _judge(job: JobView, view: ProcessView) -> Judgement[_Raised] | None:
    """About the process that raised it first, where that is recorded: it may live on."""
    if not view.raised or is_interrupt(view) or bad_address(view) is not None:
        return None
    if cuda_error(view) is not None or out_of_memory(view) or loader_timeout(view) is not None:
        return None  # rules of their own
    lost, first = mentions_lost_peer(view), _raised_first(job, view)
    explains = ((view, "raised the exception of another process again"),) if first is not view else ()
    return Judgement(
        "python-exception",
        "possible" if lost else "likely" if heap_damaged_later(view) is not None else "certain",
        (first,),
        _Raised(view, lost),
        leads=bool(explains),
        explains=explains,
    )


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


def _words(view: ProcessView, first: Reraised | None) -> str:
    if first is not None:
        return first.words
    exception = view.exception
    if exception is None or not exception.type:
        return "an exception"
    reason = reason_within(exception)
    message = telling_words(reason.message)
    if reason is not exception and reason.type is not None:
        message = f"{reason.type}: {message}" if message else reason.type
    return f"{exception.type}: {message}" if message else exception.type


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
        if view.process.role == "rank" and view.process.status_kind == "exited" and view.process.exit_code == 0
        if view.ended_ns is not None and mine and view.ended_ns <= max(mine)
    ]
    if not early:
        return None
    ranks = [view.process.rank for view in early if view.process.rank is not None]
    return Evidence("exit-status", f"{subject_words(early)} had already ended with status 0", ranks=ranks, exit_code=0)
