"""sigkill: SIGKILL that no rule before explained, by elimination.

What: a process was ended by SIGKILL. Every possible sender is named with what was found, not found, or could not be
read about it: the kernel's OOM killer (log, memory cgroups, machine), torchrun's agent, a scheduler, programs that
kill when memory gets short.

Why it happens: `kill -9`, a container runtime or scheduler at a time limit, a launcher whose patience ended, memory.

A recorded process notes each signal that it sends, with its line: by kill(), killpg(), pidfd_send_signal() or
sigqueue(), so also by Process.kill() and os.kill(). Such a sender is named.

The kernel itself kills a process whose CPU time reaches its hard limit (RLIMIT_CPU, `ulimit -t`). Of a worker of a
multiprocessing pool, a regular expression in what its tasks run is named that repeats a repetition, such as `(a+)+b`:
where the rest does not match, it tries every way to cut the text. *Probably*, where no loop of `while` is there too.

os.killpg() of a child's group ends the sender as well where the child has no group of its own: the line that starts it
without one is named.

Where the innermost condition about the line that sent it compares memory (`used > mem_mb`, of resident sizes), that is
a limit of memory of the program's own: its value is named, and what the killed worker's dataset keeps of each sample.
Of free memory below a limit, only the latter.

So is that of a child which the program starts with a text as its program (`python -c`): the line that starts it is
named, and the option by which the limit is passed. Arrays that are larger than such a limit, and take memory as they
are filled (`np.empty((capacity, 84, 84))`), are named where the program came past the line that makes them.

Of a rank that was killed between two collectives, the lines between them are named, where its function always comes
from the one to the other, in which another rank was; of a limit of memory, the new arrays that are made there.

A parent that kills its child, and then raises below a condition on its exit code, is told so.

A parent that raised subprocess.TimeoutExpired has killed the child that it waited for. The launcher notes what it
killed after --hang-action kill, and why it ended the job.

What to do: look at the line that sent it. Without one, check the candidates that are named, by the given commands. To
see the sender the next time, let the kernel log it: `perf trace -e signal:signal_generate`, or an audit rule for
kill().

How it can be wrong: SIGKILL leaves no trace in the process and carries no sender. A sender is certain when it is the
only recorded one, and the process was alive and the same by its start time; a signal to a process group is at most
*likely*, since membership changes; programs that make the system call themselves note nothing. Where the OOM killer is
refuted by its own counters, another process sent it: that is certain, which one is not. A rank may have left the
lines between two collectives by an exception that a caller caught.
"""

from __future__ import annotations

from pytracer._text import capital, uncapital
from pytracer.analyze.collectives.between_calls import between_calls
from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine
from pytracer.analyze.evidence.ends.kill_reasons import asks_for_memory, asks_for_time, kill_condition, reason_words
from pytracer.analyze.evidence.ends.memory_holders import (
    Holding,
    heavy_holding,
    holder_evidence,
    keeper,
    own_evidence,
)
from pytracer.analyze.evidence.ends.memory_limits import (
    MemoryLimit,
    memory_limit,
    most_memory,
    peak_evidence,
    used_words,
    with_option,
)
from pytracer.analyze.evidence.ends.oom import OomTrace, killed_by_sigkill, oom_trace
from pytracer.analyze.evidence.ends.own_group import group_of_child
from pytracer.analyze.evidence.ends.own_kills import own_kill
from pytracer.analyze.evidence.ends.reserved_arrays import reserved
from pytracer.analyze.evidence.ends.sender_lines import FIND_OUT
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.ends.sigkill import elimination, other_candidates, time_limit_of_parent
from pytracer.analyze.evidence.ends.signal_senders import chain_words, noted_evidence, sender_is_sure, senders_words
from pytracer.analyze.evidence.ends.text_watches import started_text
from pytracer.analyze.evidence.ends.timer_threads import timer_thread
from pytracer.analyze.evidence.ends.worker_caches import worker_cache
from pytracer.analyze.evidence.limits.ended import ALL_THREADS, CpuLimit, LostTask, cpu_limit, lost_pattern, lost_task
from pytracer.analyze.evidence.limits.slow_patterns import SlowPattern
from pytracer.analyze.evidence.phrases import collective_evidence, python_evidence
from pytracer.analyze.evidence.waits.lost_lock import lost_lock
from pytracer.analyze.naming import introduction, name_words, place_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.tensors.source_lines import is_own_text
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_NAMED = "Ask each candidate that the evidence marks as found; then look for"
_NOBODY = "Look for"
_ELSEWHERE = (
    "kill -9, a time limit, or a container that was stopped. `perf trace -e signal:signal_generate` shows the sender "
    "the next time."
)
_CHECK = "Check the OOM killer (dmesg, memory.events of the cgroup), then the scheduler and anybody with kill -9."


_MEMORY = " A watchdog of memory (a container's, earlyoom, a program of yours) ends the process that holds the most: "
_IF_MEMORY = " If memory was short: "
_WATCHES = "If it watches memory: "
_KEPT = "look at what keeps the tensors of the line that is named."


_SLOW = (
    "If a limit made it do so, the samples that the worker was loading take too long: time `dataset[i]` for these in "
    "one process. The DataLoader's own `timeout` raises an error instead."
)

_HANG_ACTION = (
    "Look at where it stood: hang.json in the directory of the run has the stacks of all processes, from before they "
    "were asked to end. This one did not end by SIGTERM."
)

_REST = "what the rest of its memory was: what torch does not allocate (NumPy arrays, libraries) is not recorded"
_BLAMELESS = "The killed process itself did nothing wrong."


class Sigkill:
    """Fires for each killed process that is not explained yet."""

    id = "sigkill"
    needs = ("status",)

    def check(self, job: JobView) -> tuple[Judgement[OomTrace | None], ...] | NoFinding:
        """One judgement per process."""
        lost = lost_lock(job)  # the program stood because of it: standstill
        views = [
            view
            for view in job.suspects
            if killed_by_sigkill(view)
            and view.index not in job.explained
            and (lost is None or view.index != lost.killed.index)
        ]
        return tuple(_judge(job, view) for view in views) or not_found(
            "no process was ended by a SIGKILL that is not explained"
        )

    def describe(self, job: JobView, judgement: Judgement[OomTrace | None]) -> Description:
        """See Rule."""
        view, trace = judgement.views[0], judgement.found
        if view.killed_for is not None:
            return _describe_hang(judgement, view.killed_for)
        limit = time_limit_of_parent(job, view)
        if limit is not None:
            return _describe_limit(job, judgement, limit)
        if view.senders:
            return _describe_sender(job, judgement)
        cpu = cpu_limit(job, view)
        if cpu is not None:
            return _describe_cpu(job, judgement, cpu)
        held, keeps = _held(view)
        lost = lost_task(job, view)
        refuted = trace is not None and trace.excluded
        cache = worker_cache(job, view) if held is None and not refuted else None
        between = between_calls(job, view)
        but = ", and not by the kernel's OOM killer" if refuted else ""
        return Description(
            f"{introduction(judgement.views)} was ended by SIGKILL{but}{_held_words(held, keeps)}{_lost_words(lost)}.",
            [
                *elimination(job, view, trace),
                *(holder_evidence(job, view) if held else ()),
                between.evidence if between is not None else None,
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            (_ask(job, view) if refuted else _CHECK)
            + (f"{_MEMORY}{_kept(keeps)}" if held else "")
            + (f"{_IF_MEMORY}{uncapital(cache.advice(None))}" if cache is not None else "")
            + (f" {lost.advice}" if lost is not None else ""),
            [
                "who sent SIGKILL: it leaves no trace in the process and carries no sender",
                None if refuted else "proof for or against the OOM killer: see what was not readable",
                between.missing if between is not None else None,
            ],
        )


def _describe_hang(judgement: Judgement[OomTrace | None], why: str) -> Description:
    return Description(
        f"{introduction(judgement.views)} was ended by SIGKILL, sent by pytracer run (--hang-action kill): {why}.",
        [python_evidence(judgement.views[0]), collective_evidence(judgement.views)],
        _HANG_ACTION,
        [],
    )


def _describe_cpu(job: JobView, judgement: Judgement[OomTrace | None], cpu: CpuLimit) -> Description:
    view = judgement.views[0]
    lost = lost_task(job, view)
    of = f" in `{lost.function[0]}` ({lost.function[1]})" if lost is not None and lost.function is not None else ""
    pattern = lost_pattern(job, view, lost) if lost is not None else None
    found = f"{cpu.used:.1f} s of CPU time when it was last seen; the kernel kills a process at {cpu.words}"
    return Description(
        f"{introduction(judgement.views)} was ended by SIGKILL, most likely by the kernel at {cpu.words}"
        f"{_pattern_words(pattern)}{_lost_words(lost)}.",
        [
            Evidence(
                "limit",
                f"it had used {found}",
                pid=view.process.snapshot.pid,
                limit=cpu.limit,
                duration_ns=int((cpu.used or 0) * 1e9),
            ),
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        _cpu_advice(cpu, lost, pattern, of),
        [
            "who sent SIGKILL: it leaves no trace in the process and carries no sender",
            "which line it executed: SIGKILL leaves no stack" if pattern is not None else None,
        ],
        line=pattern.at if pattern is not None else None,
    )


def _pattern_words(pattern: SlowPattern | None) -> str:
    """`, probably in FORM.match() at program.py:15 in clean, whose pattern repeats a repetition, `(a+)+``."""
    if pattern is None:
        return ""
    sure = "probably" if pattern.only else "perhaps"
    return (
        f", {sure} in {pattern.call} at {place_words(pattern.at)}, whose pattern repeats a repetition "
        f"(`{pattern.part}`)"
    )


def _cpu_advice(cpu: CpuLimit, lost: LostTask | None, pattern: SlowPattern | None, of: str) -> str:
    notice = f" {lost.advice}" if lost is not None else ""
    if pattern is None:
        whole = " A pool's worker has that limit for all its tasks together." if lost is not None else ""
        whole = whole or f" {ALL_THREADS}"
        return (
            f"Find out what took so much CPU time{of} (an endless loop, or an input for which it takes for ever), or "
            f"{cpu.change}.{whole}{notice}"
        )
    again = "" if pattern.only else f" Else find out what took so much CPU time{of}."
    return f"{pattern.advice} Find the input by its task: the one whose result is missing.{again}{notice}"


def _lost_words(lost: LostTask | None) -> str:
    return f"; {lost.words}" if lost is not None else ""


def _describe_limit(job: JobView, judgement: Judgement[OomTrace | None], parent: ProcessView) -> Description:
    frame = parent.python_frame
    at = f" at {place_words(frame)}" if frame is not None else ""
    view = judgement.views[0]
    return Description(
        f"{introduction(judgement.views)} was ended by SIGKILL: its parent, {name_words([parent])}, had waited as long "
        f"as its timeout allows{at}, and raised TimeoutExpired.",
        [
            *noted_evidence(view),
            Evidence(
                "exception",
                f"its parent then raised {parent.exception.type if parent.exception else 'TimeoutExpired'}: "
                "subprocess.run() kills a child whose timeout has passed, before it raises that",
                exception=parent.exception.type if parent.exception else None,
                pid=parent.process.snapshot.pid,
                python=frame,
            ),
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        "Raise the timeout that its parent passes to subprocess, or look at what the child did for so long: its stacks "
        "and last operations are in this report.",
        [],
    )


def _look_at_text(starts: str, below: str | None) -> str:
    """The line that starts the program that sent it, which is no file."""
    sends = f", which sends the signal {below}" if below is not None else ""
    return f"Look at {starts}, and at the program that it starts{sends}."


def _look_at(at: str, below: str | None, view: ProcessView) -> str:
    """Where the signal is sent; of a limit of time, what may be done about that."""
    if below is None:
        return f"Look at {at}: it sends the signal."
    limit = (
        " If that time is too short, raise it; else see what took so long."
        if asks_for_time(view.senders[0], below)
        else ""
    )
    return f"Look at {at}: it sends the signal {below}.{limit}"


def _describe_sender(job: JobView, judgement: Judgement[OomTrace | None]) -> Description:
    view, trace = judgement.views[0], judgement.found
    sent, sure = deadly_signal(view), sender_is_sure(view)
    frames = [item.frame for item in view.senders if item.frame is not None]
    at = place_words(frames[0]) if frames else None
    many = len(view.senders) > 1 and not sure
    timer = timer_thread(view, frames[0]) if frames and not many else None
    if sent is not None and sent.sender_pid == view.process.snapshot.pid and not many:
        of = f", by the timer that {timer.place} made" if timer is not None else f" at {at}" if at else ""
        words = f"ended itself by SIGKILL{of}"
    elif many or sent is None:
        words = f"was ended by SIGKILL, {'' if sure else 'probably '}sent by {senders_words(job, view)}"
    else:
        words = f"was ended by SIGKILL, {'' if sure else 'probably '}sent by {chain_words(job, view, sent)}"
    group = group_of_child(view)
    decided = sure and timer is None and group is None
    below = kill_condition(view.senders[0]) if decided else None
    limit = memory_limit(view.senders[0]) if decided else None
    words += reason_words(below, limit)
    child = view.senders[0].sender.snapshot
    started = started_text(view, child, limit.argument if limit is not None else None) if decided else None
    if started is not None:
        is_watch = limit is not None and not limit.free
        words += f": {'a watch of memory, which' if is_watch else 'a program that'} {started.place} starts"
        limit = with_option(limit, started)
    first = FIND_OUT if at is None else _look_at(at, below, view)
    if started is not None and frames and is_own_text(child, frames[0]):
        first = _look_at_text(started.place, below)
    by_itself = sent is not None and sent.sender_pid == view.process.snapshot.pid
    of_memory = decided and asks_for_memory(view.senders[0], below)
    blameless = None if by_itself or of_memory or below is not None else _BLAMELESS
    first, blameless = (timer.advice, None) if timer is not None else (first, blameless)
    own_end = own_kill(job, view) if decided and below is None else None
    if own_end is not None:
        words, first, blameless = f"{words}{own_end.words}", own_end.advice, None
    if group is not None:
        words, first, blameless = f"{words}{group.words}", group.advice, None
    holds, keeping, kept = _memory(job, view, limit)
    between, own = between_calls(job, view), None
    if between is not None:
        holds = f"{holds}; {between.words}"
        own = own_evidence(view) if of_memory and heavy_holding(view) is None else None
        kept = (*kept, own, between.evidence)
        keeping = between.advice if keeping is None and of_memory else keeping
    return Description(
        f"{introduction(judgement.views)} {words}{holds}.",
        [
            *noted_evidence(view),
            *kept,
            *(() if sure else elimination(job, view, trace)),
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        _what_to_do(first, keeping, _SLOW if _was_loading(view) else blameless, limit),
        [
            "which of them ended it: each may have" if many else None,
            "whether it was in that process group" if not sure and not many and view.senders[0].send.to_group else None,
            between.missing if between is not None else None,
            _REST if own is not None else None,
        ],
        behind=group.behind if group is not None else None,
    )


def _memory(
    job: JobView, view: ProcessView, limit: MemoryLimit | None
) -> tuple[str, str | None, tuple[Evidence | None, ...]]:
    """For the headline what it held, what to do about that, and the evidence; of a limit of memory also its peak.

    Of a worker that such a limit ended, also what its dataset keeps.
    """
    held, keeps = _held(view)
    most = most_memory(job, view) if limit is not None else None
    used = f"; it had {used_words(most)}" if most is not None else ""
    peaks = peak_evidence(job, view) if most is not None else ()
    cache = worker_cache(job, view) if keeps is None and limit is not None else None
    if cache is not None:
        return f"{used}, and {cache.words}" if used else f"; {cache.words}", cache.advice(None), peaks
    array = reserved(view, limit.nbytes) if held is None and limit is not None else None
    if array is not None:
        return f"{used}{array.words}", array.advice, peaks
    if held is None:
        return used, None, peaks
    return f"{used}{_held_words(held, keeps)}", _kept(keeps), (*peaks, *holder_evidence(job, view))


def _what_to_do(first: str, keeping: str | None, more: str | None, limit: MemoryLimit | None) -> str:
    """`limit`: that of memory for which the signal was sent."""
    if limit is not None:
        if keeping is not None:
            return f"{capital(keeping)} Or {limit.raising}" if limit.raising is not None else capital(keeping)
        return f"{first} {limit.advice}"
    if keeping is not None:
        return f"{first} {_WATCHES}{uncapital(keeping)}"
    return first if more is None else f"{first} {more}"


def _was_loading(view: ProcessView) -> bool:
    worker = view.process.snapshot.worker
    return worker is not None and bool(worker.loading)


def _held(view: ProcessView) -> tuple[Holding | None, KeepingLine | None]:
    """What it held, where that is much, and the line that keeps it."""
    held = heavy_holding(view)
    return held, keeper(view, held) if held is not None else None


def _held_words(held: Holding | None, keeps: KeepingLine | None) -> str:
    kept = f", and {keeps.subject}" if keeps is not None else ""
    return f"; it held {held.words}{kept}" if held is not None else ""


def _kept(keeps: KeepingLine | None) -> str:
    return uncapital(keeps.advice) if keeps is not None else _KEPT


def _ask(job: JobView, view: ProcessView) -> str:
    return f"{_NAMED if other_candidates(job, view) else _NOBODY} {_ELSEWHERE}"


def _judge(job: JobView, view: ProcessView) -> Judgement[OomTrace | None]:
    trace = oom_trace(job, view)
    if view.killed_for is not None:
        return Judgement("hang", "certain", (view,), trace)
    if view.senders:
        return Judgement("external-kill", "certain" if sender_is_sure(view) else "likely", (view,), trace)
    if time_limit_of_parent(job, view) is not None:
        return Judgement("external-kill", "likely", (view,), trace)
    if cpu_limit(job, view) is not None:
        return Judgement(
            "resource-limit", "likely" if trace is not None and trace.excluded else "possible", (view,), trace
        )
    if trace is not None and trace.excluded:
        return Judgement("external-kill", "likely", (view,), trace)
    return Judgement("unknown", "unknown", (view,), trace)
