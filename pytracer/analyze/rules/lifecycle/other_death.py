"""other-death: everything that no other rule explains, stated plainly.

What: names how a process died when no cause was found: the signal or the exit status, who sent it, what is missing.
A signal from outside gets its class, and its sender is named with its command line and its part in the job. One of the
process's own timer (alarm(), setitimer()) gets the line that sets it, where one does; so does SIGXCPU or SIGXFSZ of the
kernel, at a limit of the process's own, the line that sets that limit (also by a table: `for name, value in
LIMITS.items(): resource.setrlimit(KINDS[name], ...)`). A Python
program that asked for its own end by SystemExit (sys.exit(), argparse) gets the line; if it was handling an exception
then, that one is the cause, likely: the program decided so. One that was ended in a loop of the program, and had made
no step and hardly a tensor for 5 s, may have stood still there: what the loop reads and its body changes shows why. So
does a DataLoader without a batch, where all that the loop yields or that ends it is inside of the `for` over that. A
loop that adds to a tensor until it is long enough never ends where it has nothing to add: its recorded passes show it.

So do those of a loop that goes on while a mask has a true element, and left as many each time: of a matrix with more
columns than rows, each of which takes one column at most, the two numbers are named. Of a loop whose passes all end in
its own `except`, what they count there is named, and the variable that has the value from before the loop. Of a loop
that draws until something is found, what it asked for is named, made of the recorded values.

Ranks that slept and looked for files in one loop, when a time limit ended them, are one finding: with the line by which
each looks at another path, a number that it draws without a seed, its process id or a temporary folder.

DataLoader workers that a signal to the whole process group ended are one finding, with the parent that has a handler
for the same signal, and that torch's RuntimeError for its dead workers ended.

Of a signal to the process group of a child, which was the program's own, the line that starts the child is named. Of a
child that was hung up with a pseudo-terminal of the program's own (pty.fork(), os.openpty()), the line that makes that
is named, and the one that closes its master end.

Why it happens: see each sentence.

What to do: see each sentence.

How it can be wrong: a signal's number alone is not a cause. A time limit ends what stands still: that it ended a helper
while ranks waited for each other is never certain to be all, nor that it ended a process in a call that waits, where
nothing was recorded for 5 s. A loop may only take long: that it stood still is *likely* where its source shows that
nothing in it can end it, otherwise *possible*, and nothing is concluded where tensors or steps were made until the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from pytracer._text import time_words
from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.ends.ended_while import (
    OUTSIDE,
    advice_for,
    children_words,
    fatal_signal,
    is_in_python,
    limit_words,
    polled_at,
    polled_place,
    polled_words,
    stood_at,
    was_quiet,
    why_polled,
)
from pytracer.analyze.evidence.ends.ended_with_parent import ended_with
from pytracer.analyze.evidence.ends.ended_workers import ended_workers
from pytracer.analyze.evidence.ends.exit_requests import READ_ARGUMENTS, exit_words, handled_error
from pytracer.analyze.evidence.ends.oom import oom_trace
from pytracer.analyze.evidence.ends.own_group import group_of_child
from pytracer.analyze.evidence.ends.own_terminal import own_terminal
from pytracer.analyze.evidence.ends.sender_lines import sender_advice
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal, last_request, obeyed, sent_signals
from pytracer.analyze.evidence.ends.sigkill import elimination
from pytracer.analyze.evidence.ends.signal_senders import (
    chain_words,
    command_evidence,
    from_time_limit,
    knows_sender,
    lost_terminal,
    noted_evidence,
    scheduler_of,
    sender_is_sure,
    sender_words,
)
from pytracer.analyze.evidence.ends.timers import TIMERS, timer_advice, timer_words, was_sent_by_timer
from pytracer.analyze.evidence.ends.unexplained_faults import fault_words
from pytracer.analyze.evidence.exceptions.unmade_results import unmade_object
from pytracer.analyze.evidence.limits.ended import limit_of_signal
from pytracer.analyze.evidence.phrases import (
    bucket_evidence,
    collective_evidence,
    fault_evidence,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.evidence.waits.ended_threads import ended_thread_evidence, lost_results, thread_behind
from pytracer.analyze.evidence.waits.left_waiting import left_waiting
from pytracer.analyze.evidence.waits.waits import wait_of
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.platform.signals import (
    SI_KERNEL,
    SIGBUS,
    SIGFPE,
    SIGHUP,
    SIGILL,
    SIGINT,
    SIGSEGV,
    SIGTERM,
    SIGUSR1,
    SIGUSR2,
    SIGXCPU,
    SIGXFSZ,
    signal_name,
)
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.tensors.fsdp_words import unit_evidence
from pytracer.analyze.view import JobView, ProcessView, death_signature
from pytracer.report.job import Confidence, VerdictClass

_WENT_ON_NS = 1_000_000_000
_TERMINAL = (
    "Start it where it outlives the terminal: in tmux or screen, by `setsid`, or by a batch system. Below nohup "
    "torchrun still ends itself and its ranks by SIGHUP, because it installs a handler of its own."
)
_USAGE = 2  # argparse and click


_OF_FAULTS = (SIGSEGV, SIGBUS, SIGFPE, SIGILL)
_RAISED_AGAIN = (
    "Look for raise() or os.kill() at this place, and for an access to memory: handlers of the program that print a "
    "stack and raise the signal again may hide the fault."
)
_SELF_INTERRUPT = (
    "Look for os.kill(), signal.raise_signal() and _thread.interrupt_main() in the program and its libraries: nobody "
    "else interrupted it."
)
# Signals that end a process which has no handler for them, and are not recorded in it: what they mean, and what to do.
_NOTICE = (
    "{0} is a notice that ends a program without a handler for it: Slurm sends it before a time limit (--signal={1}), "
    "SGE with -notify, submitit before a requeue. Install a handler that saves a checkpoint (signal.signal({0}, ...), "
    "Lightning's SLURMEnvironment), or have none sent; sbatch's B: sends it to the batch script only."
)
_BY_DEFAULT: dict[int, tuple[VerdictClass, str, str]] = {
    SIGUSR1: ("external-kill", "for which it had no handler", _NOTICE.format("SIGUSR1", "USR1")),
    SIGUSR2: ("external-kill", "for which it had no handler", _NOTICE.format("SIGUSR2", "USR2")),
    SIGXCPU: (
        "resource-limit",
        "because it had used up its CPU time",
        "Raise the limit of CPU time (`ulimit -t`, a batch system's), or end earlier.",
    ),
    SIGXFSZ: (
        "resource-limit",
        "because a file would have become larger than allowed",
        "Raise the limit for the size of files (`ulimit -f`), or write smaller ones.",
    ),
    **dict.fromkeys(TIMERS, ("timer", "", "")),  # the words are those of evidence/ends/timers.py
}
_RELOADS = (
    "By SIGHUP daemons are asked to open their logs or to read their configuration anew, and a program that has no "
    "handler for it ends: have none sent to this one, or install a handler, signal.signal(signal.SIGHUP, ...)."
)
_OF_LIMITS = (SIGXCPU, SIGXFSZ)  # the kernel sends them at a limit; a process may send them as well
_NO_LIMIT = "No limit of the process itself (`ulimit`) ended it: another process sent the signal. "

_How = Literal[
    "interrupted",
    "fault",
    "sent-itself",
    "sent",
    "from-outside",
    "by-default",
    "unseen",
    "asked",
    "obeyed",
    "vanished",
    "exit-request",
    "exit",
]
_OF_OTHERS: dict[_How, tuple[VerdictClass, Confidence]] = {
    "interrupted": ("external-kill", "likely"),
    "sent": ("external-kill", "certain"),
    "from-outside": ("external-kill", "likely"),
    "asked": ("external-kill", "likely"),
    "obeyed": ("external-kill", "likely"),
    "exit-request": ("exit", "certain"),
}
_WHETHER = "whether the loop would have ended with more time: the stacks are of one moment"
_AT_WORK = "was ended while its program went round in a loop"
_FROM_OUTSIDE: tuple[_How, ...] = ("sent", "from-outside", "interrupted")
_BY_KILL: tuple[_How, ...] = ("sent", "sent-itself", "interrupted")
_Words = tuple[str, str, str | None]  # what happened, without subject; advice; what is missing


class OtherDeath:
    """Fires for every suspect that no earlier rule has a finding for. Runs last."""

    id = "other-death"
    needs = ("status",)

    def check(self, job: JobView) -> tuple[Judgement[_How], ...] | NoFinding:
        """One judgement per group of processes that died alike."""
        rest = [_judge(job, view) for view in job.suspects if view.index not in job.explained]
        found = merge_alike(_with_children(job, rest), lambda item: _kind(job, item))
        return found or not_found("every death is explained by another rule")

    def describe(self, job: JobView, judgement: Judgement[_How]) -> Description:
        """See Rule; the first process represents all that died alike."""
        view = judgement.views[0]
        says, advice, missing = _words(job, view, judgement.found)
        stood = stood_at(job, view) if judgement.found in _FROM_OUTSIDE else None
        if stood is not None and judgement.verdict_class == "hang":
            at_end = " at a time limit" if from_time_limit(job, view) else ""
            says = f"{stood.words}{children_words(job, view, stood)}; {_end_words(job, view, judgement.found)}{at_end}"
            advice, missing = stood.advice, None if stood.never_ends else _WHETHER
        elif stood is not None and judgement.found == "sent" and is_in_python(job, view):
            advice = stood.advice
        elif judgement.found == "sent" and (polled := polled_at(job, view)) is not None:
            says = polled_words(job, view, polled, why_polled(job, view))
        workers = ended_workers(job, view) if judgement.found in _FROM_OUTSIDE else None
        if workers is not None:
            says, advice = f"{says}{workers.words}", workers.advice
        group = group_of_child(view) if judgement.found in _BY_KILL else None
        if group is not None:
            says, advice = f"{says}{group.words}", group.advice
        terminal = own_terminal(job, view) if judgement.found == "sent" else None
        if terminal is not None:
            says = f"{says}{terminal.words}"
            advice = terminal.advice if terminal.sure else f"{advice} {terminal.advice}"
        left = left_waiting(job, view) if judgement.found == "exit" else None
        if left is not None:
            says, advice = f"{says}{left.words}", f"{advice} {left.advice}"
        if len(judgement.views) > 1:
            says = says.replace("was ended", "were ended", 1) if says.startswith("was ended") else says
        evidence = [
            fault_evidence(view) if view.is_fault else command_evidence(view),
            *(() if view.is_fault else noted_evidence(view)),
            *((storage_evidence(view), bucket_evidence(view), unit_evidence(view)) if view.is_fault else ()),
            python_evidence(view),
            collective_evidence(judgement.views),
            workers.evidence if workers is not None else None,
        ]
        if judgement.found == "vanished":
            evidence += elimination(job, view, oom_trace(job, view))
        if judgement.found in _OF_OTHERS:
            wait = wait_of(view)
            thread = thread_behind(view, wait) if wait is not None else None
            evidence += ended_thread_evidence(view)
            unmade = unmade_object(job, view) if wait is not None and lost_results(view, wait) else None
            if thread is not None:
                says = f"{says}; {unmade.ended(thread) if unmade is not None else thread.words}"
                advice = f"{unmade.advice if unmade is not None else thread.advice} {advice}"
            evidence.append(unmade.evidence if unmade is not None else None)
        who = workers.subject(judgement.views) if workers is not None else introduction(judgement.views)
        own = group if group is not None else terminal
        behind = own.behind if own is not None else None
        limit = limit_of_signal(job, view, fatal_signal(view) or 0) if judgement.found == "by-default" else None
        line = limit.line if limit is not None else None
        return Description(f"{who} {says}.", evidence, advice, [missing], line=line, behind=behind)


def _judge(job: JobView, view: ProcessView) -> Judgement[_How]:
    how = _how(view)
    verdict_class, confidence = _OF_OTHERS.get(how, ("unknown", "unknown"))
    if how == "sent" and (not sender_is_sure(view) or _may_end_a_standstill(job, view) or was_quiet(job, view)):
        confidence = "likely"
    stood = stood_at(job, view)
    if stood is not None and how in _FROM_OUTSIDE and stood.confidence is not None:
        sure = stood.confidence == "likely" and from_time_limit(job, view)
        verdict_class, confidence = "hang", "likely" if sure else "possible"
    elif how == "sent" and polled_at(job, view) is not None:
        own = why_polled(job, view)
        verdict_class, confidence = "hang", "likely" if own is not None and own.sure and own.of_all else "possible"
    if how == "exit-request" and handled_error(view) is not None:
        verdict_class, confidence = "python-exception", "likely"
    if how == "by-default":
        verdict_class = _BY_DEFAULT[fatal_signal(view) or 0][0]
        confidence = "certain" if _by_kernel(view) else "likely"
    return Judgement(verdict_class, confidence, (view,), how)


def _with_children(job: JobView, found: Sequence[Judgement[_How]]) -> Iterator[Judgement[_How]]:
    """Of a process in a loop that does not end, one for it and the workers that were ended with it."""
    outside = [item.views[0] for item in found if item.found in _FROM_OUTSIDE]
    led = {
        item.views[0].index: [*ended_with(job, item.views[0], outside)]
        for item in found
        if item.verdict_class == "hang"
    }
    children = {view.index for views in led.values() for view in views}
    for item in found:
        view = item.views[0]
        if led.get(view.index):
            explains = tuple((one, _AT_WORK) for one in (view, *led[view.index]))
            yield replace(item, leads=True, explains=explains)
        elif view.index not in children:
            yield item


def _may_end_a_standstill(job: JobView, view: ProcessView) -> bool:
    """Whether a time limit ended a helper of a job whose ranks waited for each other: of Ray's workers it is silent."""
    return view.process.role not in ("rank", "launcher") and bool(job.waiting.waits) and from_time_limit(job, view)


def _kind(job: JobView, judgement: Judgement[_How]) -> object:
    """What deaths of one kind have in common; a scheduler ends all tasks of a step at once."""
    workers = ended_workers(job, judgement.views[0]) if judgement.found in _FROM_OUTSIDE else None
    if workers is not None:
        return workers.parent.index, workers.signal
    view, sent = judgement.views[0], deadly_signal(judgement.views[0])
    if judgement.found == "sent" and (place := polled_place(job, view)) is not None:
        return place
    if judgement.found == "sent" and sent is not None and scheduler_of(sent) is not None:
        return scheduler_of(sent), sent.signal
    return death_signature(view)


def _how(view: ProcessView) -> _How:
    if is_interrupt(view):
        return "interrupted"
    if fatal_signal(view) is None or (view.process.status_kind != "signaled" and view.crash is None):
        if view.process.status_kind != "vanished":
            return "obeyed" if obeyed(view) else "exit" if view.exit_request is None else "exit-request"
        return "asked" if last_request(view) is not None else "vanished"
    if view.is_fault:
        return "fault"
    sent = deadly_signal(view)
    if sent is not None and sent.sender_pid == view.process.snapshot.pid:
        return "sent-itself"
    if knows_sender(view):
        return "sent"
    if fatal_signal(view) in _OF_LIMITS and sent is not None and sent.code != SI_KERNEL:
        return "from-outside"
    if fatal_signal(view) in _BY_DEFAULT and view.crash is None:
        return "by-default"
    return "from-outside" if fatal_signal(view) in OUTSIDE else "unseen"


def _words(job: JobView, view: ProcessView, how: _How) -> _Words:
    if how == "fault":
        return fault_words(view)
    if how == "asked":
        return _asked(job, view)
    if how == "exit-request" and view.exit_request is not None:
        return exit_words(view, view.exit_request)
    if how == "obeyed" and (sent := last_request(view)) is not None:
        return (
            (
                f"received {signal_name(sent.signal)}, sent by {chain_words(job, view, sent)}, and ended itself with "
                f"exit status {view.process.exit_code}"
            ),
            advice_for(job, view, sent),
            "that its handler ended it: an exit status carries no reason",
        )
    number = fatal_signal(view)
    name = signal_name(number) if number is not None else "a signal"
    words: dict[_How, _Words] = {
        "interrupted": _interrupted(job, view),
        "sent-itself": (
            f"sent {name} to itself",
            _RAISED_AGAIN if number in _OF_FAULTS else "Look for raise(), os.kill() or os.abort() at this place.",
            "why it did",
        ),
        "sent": (
            f"was ended by {name}, sent by {sender_words(job, view)}{limit_words(job, view)}",
            _advice_sent(job, view),
            None,
        ),
        "from-outside": (
            f"was ended by {name} from outside",
            f"Find out who sent {name}: a scheduler's time limit, a launcher, or a person.",
            "the sender of the signal",
        ),
        "by-default": _by_default(job, view, number or 0, name),
        "unseen": (
            f"died of {name}",
            "Run it again under `pytracer run`; see `pytracer doctor`.",
            "the crash record: the process was not traced at that time, or its handler did not run",
        ),
        "vanished": (
            "stopped without a recorded end",
            "Look for SIGKILL, the OOM killer (dmesg), a lost host, or a run that was copied while it still ran.",
            "any record of its end: neither its black box nor a parent saw it",
        ),
        "exit": (
            f"ended with exit status {view.process.exit_code} and no recorded exception",
            READ_ARGUMENTS
            if view.process.exit_code == _USAGE
            else "Look for sys.exit() or os._exit() in the program, and at the last lines of its output.",
            "the place where it ended: an exit status carries none",
        ),
    }
    return words[how]


def _by_default(job: JobView, view: ProcessView, number: int, name: str) -> _Words:
    _, why, advice = _BY_DEFAULT.get(number, ("unknown", "", ""))
    if number in TIMERS:
        why, advice = timer_words(view, number), timer_advice(view)
    limit = limit_of_signal(job, view, number)
    if limit is not None:
        why, advice = f"{why} ({limit.words})" if limit.words is not None else why, limit.advice
    missing = None if _by_kernel(view) else "who sent it: this signal is not recorded"
    of_kernel = number in TIMERS or limit is not None
    at = f" at {place_words(view.python_frame)}" if of_kernel and view.python_frame is not None else ""
    return f"was ended by {name}{at}, {why}", advice, missing


def _by_kernel(view: ProcessView) -> bool:
    """Whether the kernel itself sent it: at a limit of the process's, or for its timer."""
    sent = deadly_signal(view)
    return was_sent_by_timer(view) or (sent is not None and sent.code == SI_KERNEL)


def _interrupted(job: JobView, view: ProcessView) -> _Words:
    """By a terminal, by another process, or by itself. Python handles it, and raises it again at the program's end."""
    snapshot = view.process.snapshot
    seen = sent_signals(snapshot, SIGINT)
    sent = next((item for item in reversed(seen) if item.handled), seen[-1] if seen else None)
    if sent is None:
        return (
            "was interrupted (SIGINT)",
            "The program itself did not fail; if nobody pressed Ctrl-C, find out who sent the signal.",
            None,
        )
    if sent.code == SI_KERNEL:
        return "was interrupted from its terminal (SIGINT)", "Somebody pressed Ctrl-C: the program did not fail.", None
    if sent.sender_pid == snapshot.pid:
        return (
            "was interrupted by a SIGINT that it had sent to itself",
            _SELF_INTERRUPT,
            "the line that sent it",
        )
    at = f"; it was at {place_words(view.python_frame)}" if view.python_frame is not None else ""
    return f"was interrupted by SIGINT, sent by {chain_words(job, view, sent)}{at}", advice_for(job, view, sent), None


def _asked(job: JobView, view: ProcessView) -> _Words:
    """A process that handled the request to end, and whose end was not recorded: SIGKILL follows a time-out."""
    sent, last = last_request(view), view.process.snapshot.last_mono_ns
    if sent is None:
        return "stopped without a recorded end", "", None
    went_on = (last or 0) - sent.mono_ns
    after = f", went on for {time_words(went_on)}" if went_on >= _WENT_ON_NS else ""
    return (
        f"received {signal_name(sent.signal)}, sent by {chain_words(job, view, sent)}{after} and ended unseen",
        advice_for(job, view, sent),
        "how it ended: neither its recording nor a parent has it; SIGKILL usually follows when a time is over",
    )


def _advice_sent(job: JobView, view: ProcessView) -> str:
    number = fatal_signal(view)
    if number in _OF_LIMITS:
        return _NO_LIMIT + sender_advice(view)
    if number == SIGHUP and not lost_terminal(job, view) and view.senders:
        return f"{sender_advice(view)} {_RELOADS}"
    if number in _BY_DEFAULT and view.crash is None:
        return _BY_DEFAULT[number][2]
    return _TERMINAL if lost_terminal(job, view) else advice_for(job, view, deadly_signal(view))


def _end_words(job: JobView, view: ProcessView, how: _How) -> str:
    """`SIGTERM, sent by its parent, process 8 (timeout), ended it`."""
    if how == "interrupted":
        return f"it {_interrupted(job, view)[0]}"
    name, by = signal_name(fatal_signal(view) or SIGTERM), sender_words(job, view)
    return f"{name}{f', sent by {by},' if how == 'sent' and by else ' from outside'} ended it"
