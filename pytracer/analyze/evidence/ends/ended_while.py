"""What a process was at when somebody ended it: a loop, a wait, a part of the program that takes long.

A signal from outside is rarely the cause: a time limit ends a job that hangs.
"""

from __future__ import annotations

from itertools import islice

from pytracer._printable import shell_word
from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.ends.sender_lines import sender_advice
from pytracer.analyze.evidence.ends.sent_signals import Sent, deadly_signal
from pytracer.analyze.evidence.ends.signal_senders import (
    from_time_limit,
    scheduler_of,
    sender_words,
    slurm_time_limit,
)
from pytracer.analyze.evidence.syntax.unbounded import Reason
from pytracer.analyze.evidence.waits.asked_names import MissingName, missing_name
from pytracer.analyze.evidence.waits.busy import Busy, Polled, blocking_call, busy_at, polled_by, polled_test
from pytracer.analyze.evidence.waits.full_output import UnreadOutput, unread_output
from pytracer.analyze.evidence.waits.polled_paths import OwnPath, own_path
from pytracer.analyze.evidence.waits.quiet import pause_of
from pytracer.analyze.evidence.waits.stood_loop import StoodLoop, loop_reason, stood_loop
from pytracer.analyze.evidence.waits.uncalled_back import UncalledBack, uncalled_back
from pytracer.analyze.evidence.waits.waits import end_of, program_stack, waiting_frame
from pytracer.analyze.evidence.waits.watched_flags import WatchedFlag, watched_flag
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGQUIT, SIGTERM, signal_name
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

OUTSIDE = (SIGTERM, SIGHUP, SIGINT, SIGQUIT)
_WENT_ON_NS = 1_000_000_000
WhyPolled = OwnPath | WatchedFlag | MissingName | UncalledBack | UnreadOutput


def fatal_signal(view: ProcessView) -> int | None:
    """The signal that ended it, if one did."""
    return view.crash.signal if view.crash is not None else view.process.signal


def _busy(job: JobView, view: ProcessView) -> Busy | None:
    """What it was at when a time limit ended it; nothing where ranks waited for each other."""
    ended = fatal_signal(view) in OUTSIDE and not job.waiting.waits and from_time_limit(job, view)
    return busy_at(view) if ended else None


def polled_at(job: JobView, view: ProcessView) -> Polled | None:
    """The loop in which it slept and looked again when a time limit ended it."""
    ended = fatal_signal(view) in OUTSIDE and not job.waiting.waits and from_time_limit(job, view)
    return polled_by(view) if ended else None


def _polls_with_others(job: JobView, view: ProcessView) -> bool:
    """Whether several ranks slept in the loop of this one when the same signal ended them."""
    place = polled_place(job, view)
    alike = (item for item in job.suspects if polled_place(job, item) == place)
    return len([*islice(alike, 2)]) > 1


def polled_place(job: JobView, view: ProcessView) -> tuple[object, ...] | None:
    """What is the same of ranks that slept in one loop."""
    polled = polled_at(job, view)
    frame = view.python_frame
    return (view.process.role, frame, polled.line, fatal_signal(view)) if polled is not None else None


def why_polled(job: JobView, view: ProcessView) -> WhyPolled | None:
    """Of a loop that asks for a flag, or for results, that nobody sets, or for a file that nobody writes.

    Of several ranks, why each looked at another path.
    """
    polled, frame = polled_at(job, view), waiting_frame(view)
    asked = polled_test(view, polled) if polled is not None else None
    flag = watched_flag(view, asked, frame) if asked is not None and frame is not None else None
    if flag is not None:
        return flag
    back = uncalled_back(job, view, asked, frame) if asked is not None and frame is not None else None
    unread = unread_output(view, asked) if asked is not None else None
    if back is not None or unread is not None:
        return back or unread
    frames = program_stack(view)
    missing = missing_name(view.process.snapshot, frames, asked) if asked is not None else None
    if missing is not None:
        return missing
    test = asked if _polls_with_others(job, view) else None
    return own_path(view.process.snapshot, frames, test) if test is not None else None


def own_path_alone(view: ProcessView) -> OwnPath | None:
    """Of a rank that looked for a file in a loop by itself: why each has another path for it."""
    polled = polled_by(view)
    test = polled_test(view, polled) if polled is not None else None
    return own_path(view.process.snapshot, program_stack(view), test) if test is not None else None


def polled_words(job: JobView, view: ProcessView, polled: Polled, own: WhyPolled | None) -> str:
    """`slept at train.py:9 in wait, in the loop `while not path.exists()` (line 8). At a time limit, SIGTERM ended it`.

    With why that loop did not end, where that is known.
    """
    at = f" at {place_words(view.python_frame)}" if view.python_frame is not None else ""
    why = f". {own.sentence}" if own is not None else ""
    whom = "them" if _polls_with_others(job, view) else "it"
    by = f", sent by {sender_words(job, view)}"
    name = signal_name(fatal_signal(view) or SIGTERM)
    return f"slept{at}, {polled.words}{why}. At {_whose(job, view) or 'a time limit'}, {name} ended {whom}{by}"


def _whose(job: JobView, view: ProcessView) -> str | None:
    """`the time limit of the job, 01:00:00`, of Slurm."""
    limit = _limit(job, deadly_signal(view))
    return f"the time limit of the {limit[0]}{f', {limit[1]}' if limit[1] else ''}" if limit is not None else None


def stood_at(job: JobView, view: ProcessView) -> StoodLoop | None:
    """The loop in which it had done nothing else for long; who ended it, a limit or a person, does not matter."""
    ended = (fatal_signal(view) in OUTSIDE or is_interrupt(view)) and not job.waiting.waits
    return stood_loop(view) if ended else None


def was_quiet(job: JobView, view: ProcessView) -> bool:
    """Whether a time limit ended it in a call that waits, after a while without a record: it may have stood still."""
    end = end_of(view)
    if end is None or blocking_call(view) is None or not from_time_limit(job, view):
        return False
    pause = pause_of(view, end.mono_ns)
    return pause is not None and pause.still


def children_words(job: JobView, view: ProcessView, stood: StoodLoop) -> str:
    """Of a loop that others have to end: that its children had done so themselves."""
    children, ended = children_of(job, view), view.process.ended_mono_ns
    times = [item.process.ended_mono_ns for item in children]
    if stood.reason is None or not stood.reason.by_others or not children or ended is None:
        return ""
    if any(time is None or time > ended - _WENT_ON_NS for time in times):
        return ""
    more = " and others" if len(children) > 1 else ""
    return f"; all its recorded children had ended before ({name_words(children[:1])}{more})"


def is_in_python(job: JobView, view: ProcessView) -> bool:
    """Whether a time limit ended it at work in the program's Python."""
    return _works_in_python(_busy(job, view))


def _works_in_python(busy: Busy | None) -> bool:
    """Neither in native code of its own nor at a device: there, other loops decide."""
    return busy is not None and busy.function is None and not busy.device


def _limit(job: JobView, sent: Sent | None) -> tuple[str, str] | None:
    """Slurm's time limit, if that is why it sent the signal: whose, and how long."""
    return slurm_time_limit(job) if sent is not None and scheduler_of(sent) is not None else None


def limit_words(job: JobView, view: ProcessView) -> str:
    """Whose time was over, and what the process was at."""
    whose, busy = _whose(job, view), _busy(job, view)
    if busy is None:
        return f", at {whose}" if whose is not None else ""
    found = (loop_reason(view) if _works_in_python(busy) else None) or _tried(view)
    called, why = (found[1], f"; {found[0].words}") if found is not None else ("", "")
    return f", at {whose or 'a time limit'}; {busy.words}{called}{_pause_words(view)}{why}"


def _tried(view: ProcessView) -> tuple[Reason, str] | None:
    """Of what ran anything below a loop of tries without a limit: why that may go on, and the loop."""
    stood = stood_loop(view)
    if stood is None or stood.reason is None or not stood.reason.tries:
        return None
    loop = f" in the loop of line {stood.line} (`{stood.head}`) at {place_words(stood.at)}"
    return stood.reason, f", called{loop}" if stood.at != stood.inner else f",{loop}"


def _pause_words(view: ProcessView) -> str:
    """`; it had made no step and no tensor for 17.9 s`."""
    end = end_of(view)
    pause = pause_of(view, end.mono_ns) if end is not None else None
    return f"; it {pause.words}" if pause is not None else ""


def _look_at(at: PythonFrame) -> str:
    """Of a line at which nothing shows why it takes long, after a while without a step."""
    return (
        f"If it should have been done by then, see what takes so long below line {at.line}, and how often that line "
        "runs: `pytracer attach` twice while it runs shows whether it moves. Else raise the time limit."
    )


def advice_for(job: JobView, view: ProcessView, sent: Sent | None) -> str:
    """What to do about who ended it, and about what it was at."""
    limit = _limit(job, sent)
    if limit is not None:
        at = f" It was at {place_words(view.python_frame)} then." if view.python_frame is not None else ""
        return f"Raise the time limit of the {limit[0]} (--time), or find out what took so long.{at}"
    job_id = view.process.snapshot.environment.get("SLURM_JOB_ID")
    if sent is not None and scheduler_of(sent) is not None:
        asked = f"`sacct -j {shell_word(job_id)} --format=JobID,State,ExitCode,End,Timelimit`" if job_id else "`sacct`"
        return f"Slurm ended the job step: scancel, its time limit, or preemption. {asked} shows which."
    frame, busy, polled = waiting_frame(view), _busy(job, view), polled_at(job, view)
    if polled is not None:
        own = why_polled(job, view)
        if own is not None:
            return own.advice
        return f"{polled.advice} If it was only slow to come, raise the time limit."
    if busy is not None:
        found = loop_reason(view) if _works_in_python(busy) else None
        if found is not None:
            return f"{found[0].advice} If it only takes long, raise the time limit."
        return _look_at(busy.at) if busy.is_plain and _pause_words(view) else busy.advice
    if frame is None:
        return "Find out why that process sent the signal; the program itself did nothing wrong at this place."
    return (
        f"{sender_advice(view)} If it was a time limit: the program was at "
        f"{place_words(frame)} then; see the stacks for what it did there."
    )
