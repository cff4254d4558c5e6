"""other-death: everything that no other rule explains, said plainly.

What: names how a process died when no cause was found: the signal or the exit status, who sent it, what is missing.
A signal from outside gets its class, and its sender is named with its command line and its part in the job.

Why it happens: see each sentence.

What to do: see each sentence.

How it can be wrong: a signal's number alone is not a cause.
"""

from __future__ import annotations

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.mapped_file import mapped_file
from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.oom import oom_trace
from pytracer.analyze.evidence.phrases import (
    access_verb,
    bucket_words,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
    storage_words,
)
from pytracer.analyze.evidence.sent_signals import deadly_signal
from pytracer.analyze.evidence.sigkill import elimination
from pytracer.analyze.evidence.signal_senders import command_evidence, sender_words
from pytracer.analyze.platform.signals import (
    SIGBUS,
    SIGHUP,
    SIGINT,
    SIGQUIT,
    SIGTERM,
    signal_name,
)
from pytracer.analyze.tensors.fsdp_words import unit_words
from pytracer.analyze.view import (
    Draft,
    JobView,
    Outcome,
    ProcessView,
    draft,
    group_alike,
    not_found,
    subject_words,
)

_BUS_ADRALN = 1
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
            fault_evidence(view) if view.is_fault else command_evidence(view),
            *((storage_words(view), bucket_words(view), unit_words(view)) if view.is_fault else ()),
            python_evidence(view),
            collective_evidence(views),
        ]
        if view.process.status_kind == "vanished":
            evidence += map(str, elimination(job, view, oom_trace(job, view)))
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
    sent, name = deadly_signal(view), signal_name(number)
    if sent is not None and sent.sender_pid == view.process.snapshot.pid:
        advice = "Look for raise(), os.kill() or os.abort() at this place; no memory was touched."
        return "unknown", "unknown", f"sent {name} to itself", advice, "why it did"
    who = sender_words(job, view)
    if who is not None:
        advice = "Find out why that process sent the signal; the program itself did nothing wrong at this place."
        return "external-kill", "certain", f"was ended by {name}, sent by {who}", advice, None
    if number in _OUTSIDE:
        advice = f"Find out who sent {name}: a scheduler's time limit, a launcher, or a person."
        return "external-kill", "likely", f"was ended by {name} from outside", advice, "the sender of the signal"
    missing = "the crash record: the process was not traced at that time, or its handler did not run"
    return "unknown", "unknown", f"died of {name}", "Run it again under `pytracer run`; see `pytracer doctor`.", missing


def _fault(view: ProcessView) -> _Explanation:
    crash, place = view.crash, view.place
    if crash is not None and crash.signal == SIGBUS:
        return _bus_error(view, crash.code)
    kind = place.kind if place else "none"
    where = {
        "in-storage": f"in {_live_storage(place)}, whose memory was not accessible",
        "image": "in a loaded library or program",
        "file-mapping": "in a mapped file",
    }.get(kind, _region(view))
    says = f"{access_verb(view)} memory {where}, and was refused{in_function(view)}"
    return "unknown", "unknown", says, _READ_STACK, "who owns the memory"


def _live_storage(place: Place | None) -> str:
    return f"the storage of {place.names[0]}" if place is not None and place.names else "a live storage"


def _region(view: ProcessView) -> str:
    """The part of the process that was touched: the stack of another thread, reserved memory and the like."""
    region = view.fault.region if view.fault else None
    if region is not None and region.kind not in ("unmapped", "anonymous"):
        return f"in {region.says}"
    return "in memory of another allocator" if region is not None and region.permissions else "whose owner is not known"


def _bus_error(view: ProcessView, code: int) -> _Explanation:
    at, verb = in_function(view), access_verb(view)
    if code == _BUS_ADRALN:
        advice = "Look for a pointer that was cast to a larger type, or alignment checks that a library switched on."
        return "unknown", "unknown", f"{verb} memory at a misaligned address{at}", advice, None
    file = mapped_file(view)
    if file is None:
        return "unknown", "unknown", f"{verb} memory that could not be provided{at}", _READ_STACK, "who owns the memory"
    if file.then_bytes is None and file.now_bytes is None:
        missing = "the size of the file, at the crash or now"
        says = f"{verb} byte {file.offset} of the mapped file {file.path}, which could not be provided{at}"
        return "unknown", "unknown", says, "Find out whether the file was truncated, or its disk failed.", missing
    says = f"{verb} byte {file.offset} of the mapped file {file.path}, which is long enough but could not be read{at}"
    advice = "Check the disk or network file system that holds the file (dmesg): reading a page of it failed."
    return "unknown", "unknown", says, advice, "the error of the file system"
