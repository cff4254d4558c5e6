"""other-death: everything that no other rule explains, said plainly.

What: names how a process died when no cause was found: the signal or the exit status, who sent it, what is missing.
Signals that speak for themselves get their class: an illegal instruction, an arithmetic error, a signal from
outside, a stack that ran over, a mapped file that is too short.

Why it happens: see each sentence.

What to do: see each sentence.

How it can be wrong: SIGKILL carries no sender; without the kernel log it cannot be told from the OOM killer, so the
verdict is unknown. A signal's number alone is not a cause.
"""

from __future__ import annotations

from pytracer.analyze.deaths import is_interrupt
from pytracer.analyze.signals import (
    SIGBUS,
    SIGFPE,
    SIGHUP,
    SIGILL,
    SIGINT,
    SIGKILL,
    SIGQUIT,
    SIGSEGV,
    SIGTERM,
    signal_name,
)
from pytracer.analyze.view import (
    Draft,
    JobView,
    Outcome,
    ProcessView,
    draft,
    group_alike,
    not_found,
    program_name,
    subject_words,
)
from pytracer.analyze.wording import access_verb, collective_evidence, fault_evidence, in_function, python_evidence

_OUTSIDE = (SIGTERM, SIGHUP, SIGINT, SIGQUIT)
_READ_STACK = "Look at the Python and native stacks below."


class OtherDeath:
    """Fires for every suspect that no earlier rule has a finding for. Runs last."""

    id = "other-death"
    needs = ("status",)

    def examine(self, job: JobView) -> Outcome:
        """One finding per group of processes that died alike."""
        rest = [view for view in job.suspects if view.index not in job.explained]
        drafts = [self._explain(job, views) for views in group_alike(rest)]
        return Outcome(tuple(drafts)) if drafts else not_found("every death is explained by another rule")

    def _explain(self, job: JobView, views: list[ProcessView]) -> Draft:
        view = views[0]
        verdict_class, confidence, says, advice, missing = _explanation(job, view)
        evidence = [
            fault_evidence(view) if view.is_fault else None,
            python_evidence(view),
            collective_evidence(views),
        ]
        summary = f"{subject_words(views)} {says}."
        return draft(self.id, verdict_class, confidence, views, summary, evidence, advice, [missing])


_Explanation = tuple[str, str, str, str, "str | None"]


def _explanation(job: JobView, view: ProcessView) -> _Explanation:
    """Verdict class, confidence, sentence without subject, advice, what is missing."""
    process, crash = view.process, view.crash
    number = crash.signal if crash is not None else process.signal
    if is_interrupt(view):
        advice = "Nothing failed by itself; if nobody pressed Ctrl-C, find out who sent the signal."
        return "external-kill", "likely", "was interrupted (SIGINT)", advice, None
    if number is not None and (process.status_kind == "signaled" or crash is not None):
        if view.is_fault:
            return _fault(view)
        return _sent(job, view, number)
    if process.status_kind == "vanished":
        return (
            "unknown", "unknown", "stopped without a recorded end",
            "Look for SIGKILL, the OOM killer (dmesg), a lost host, or a run that was copied while it still ran.",
            "any record of its end: neither its black box nor a parent saw it",
        )  # fmt: skip
    return (
        "unknown", "unknown", f"ended with exit status {process.exit_code} and no recorded exception",
        "Look for sys.exit() or os._exit() in the program, and at the last lines of its output.",
        "the place where it ended: an exit status carries none",
    )  # fmt: skip


def _sent(job: JobView, view: ProcessView, number: int) -> _Explanation:
    crash, name = view.crash, signal_name(number)
    sender = crash.sender_pid if crash is not None else None
    if sender and sender != view.process.snapshot.pid:
        program = next((item.process.snapshot.argv for item in job.views if item.process.snapshot.pid == sender), ())
        who = f"process {sender}" + (f" ({program_name(program)})" if program else "")
        advice = "Find out why that process sent the signal; the program itself did nothing wrong at this place."
        return "external-kill", "certain", f"was ended by {name}, sent by {who}", advice, None
    if sender:
        advice = "Look for raise(), os.kill() or os.abort() at this place; no memory was touched."
        return "unknown", "unknown", f"sent {name} to itself", advice, "why it did"
    if number == SIGKILL:
        advice = (
            "Check the OOM killer (dmesg, memory.events of the cgroup), then the scheduler and anybody with kill -9."
        )
        missing = "who sent SIGKILL: it leaves no trace in the process, and OOM counters were not recorded"
        return "unknown", "unknown", "was ended by SIGKILL", advice, missing
    if number in _OUTSIDE:
        advice = f"Find out who sent {name}: a scheduler's time limit, a launcher, or a person."
        return "external-kill", "likely", f"was ended by {name} from outside", advice, "the sender of the signal"
    missing = "the crash record: the process was not traced at that time, or its handler did not run"
    return "unknown", "unknown", f"died of {name}", "Run it again under `pytracer run`; see `pytracer doctor`.", missing


def _fault(view: ProcessView) -> _Explanation:
    crash, place = view.crash, view.place
    number, code = (crash.signal, crash.code) if crash else (0, 0)
    at = in_function(view)
    if number == SIGILL:
        advice = "Check that the library was built for this processor (AVX-512, for instance)."
        return "illegal-instruction", "likely", f"executed an illegal instruction{at}", advice, None
    if number == SIGFPE:
        what = {1: "divided an integer by zero", 2: "had an integer overflow in a division"}.get(
            code, "had an arithmetic error"
        )
        return "arithmetic", "certain", f"{what}{at}", "Check the sizes that the native function is given.", None
    kind = place.kind if place else "none"
    if number in (SIGSEGV, SIGBUS) and kind == "stack-guard":
        advice = "Look for endless or very deep recursion in the stacks below; ulimit -s sets the main thread's stack."
        return "stack-overflow", "likely", f"ran over the end of its stack{at}", advice, None
    if number == SIGBUS and kind == "file-mapping" and _behind_end(view):
        path = place.mapping.path if place and place.mapping else "a file"
        advice = "Find out who truncated or replaced the file while it was mapped; write files aside and rename them."
        return (
            "truncated-mapping",
            "likely",
            f"{access_verb(view)} behind the end of the mapped file {path}",
            advice,
            None,
        )
    where = {
        "in-storage": "in a live storage, whose memory was not accessible",
        "image": "in a loaded library or program",
        "file-mapping": "in a mapped file",
        "heap": "in memory of another allocator",
        "device-memory": "in a device's memory",
    }.get(kind, "whose owner is not known")
    verb = access_verb(view)
    return "unknown", "unknown", f"{verb} memory {where}, and was refused{at}", _READ_STACK, "who owns the memory"


def _behind_end(view: ProcessView) -> bool:
    """Whether the address lies behind the file's present end, by whole pages."""
    place, fault = view.place, view.report.fault
    size = fault.mapping.file_size if fault and fault.mapping else None
    if place is None or place.mapping is None or size is None:
        return False
    return place.mapping.offset + (place.addr - place.mapping.start) >= size
