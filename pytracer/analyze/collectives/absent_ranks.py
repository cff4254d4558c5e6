"""Ranks that others waited for in vain: which they are, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import time_words
from pytracer.analyze.collectives.description import at_place, global_rank, group_words, place_of, span_words
from pytracer.analyze.collectives.extra_calls import ExtraCall, extra_call
from pytracer.analyze.collectives.matching import STOOD_NS, UNFINISHED, roused_ns, state_of
from pytracer.analyze.collectives.pairing import pairing_evidence
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.deaths.attribution import is_symptom, views_of, waited_ns
from pytracer.analyze.deaths.ending import asked_to_end, ended_while_awaited
from pytracer.analyze.deaths.peer_errors import PEER_SILENT
from pytracer.analyze.evidence.ends.sent_signals import last_request
from pytracer.analyze.evidence.native.aborts import aborted_at_shutdown
from pytracer.analyze.naming import place_words
from pytracer.analyze.platform.signals import SIGABRT, SIGKILL
from pytracer.analyze.view import JobView, ProcessView
from pytracer.blackbox.schema import REQUEST_SIGNAL
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Confidence, Evidence

_TEARDOWN = ("destroy_process_group", "shutdown", "_shutdown_backend")


class Absence(msgspec.Struct, frozen=True):
    """One wait at the end of all chains, with the absent ranks. `fate`: "dead", "left" (ended well) or "late"."""

    wait: Wait
    views: tuple[ProcessView, ...]
    fate: str
    waited_ns: int
    goes_on: bool = False  # these ranks and those that wait were running when their recordings were read

    @property
    def ranks(self) -> tuple[int, ...]:
        """The absent ones."""
        return tuple(view.process.rank for view in self.views if view.process.rank is not None)

    @property
    def where(self) -> str:
        """`all_reduce (collective 4 of the default group)`."""
        return f"{self.wait.call.op} (collective {self.wait.call.sequence_nr} of {group_words(self.wait.group)})"

    @property
    def waiters(self) -> str:
        """`ranks 0 and 2 waited 6.000 s`."""
        lasted = f" {time_words(self.waited_ns)}" if self.waited_ns else ""
        verb = f"{'has' if len(self.wait.waiters) == 1 else 'have'} waited" if self.goes_on else "waited"
        return f"{span_words(self.wait.waiters)} {verb}{lasted}"


def still_run(views: Sequence[ProcessView]) -> bool:
    """Whether all of them were running when their recordings were read, one after another."""
    return bool(views) and all(view.process.running_mono_ns is not None for view in views)


def confidence_of_circle(job: JobView, cycle: Sequence[int], waits: Sequence[Wait]) -> Confidence:
    """Of ranks that wait for each other; while they run, they may never have waited at the same time."""
    if not still_run(views_of(job, cycle)):
        return "certain"
    lasted = (waited_ns(view, wait.call) for wait in waits for view in views_of(job, wait.waiters[:1]))
    return "likely" if min(lasted, default=0) >= STOOD_NS else "possible"


def find_absences(job: JobView) -> list[Absence]:
    """Ranks that others waited for in collectives and that waited for none themselves, by their fate."""
    found = []
    for wait in job.waiting.waits:
        if wait.call.point_to_point:
            continue
        sinks = views_of(job, [rank for rank in wait.targets if rank in job.waiting.sinks])
        absent = [view for view in sinks if not _failed_before(view, wait)]
        waiters = views_of(job, wait.waiters[:1])
        lasted = waited_ns(waiters[0], wait.call) if waiters else 0
        by_fate: dict[str, list[ProcessView]] = {}
        for view in absent:
            by_fate.setdefault(_fate(job, view, wait, _since(waiters, lasted)), []).append(view)
        waiting = wait.call.state in ("scheduled", "started") and still_run(views_of(job, wait.waiters))
        found += [
            Absence(wait, tuple(views), fate, lasted, goes_on=waiting and still_run(views))
            for fate, views in by_fate.items()
        ]
    return found


def _since(waiters: Sequence[ProcessView], lasted: int) -> int | None:
    """When the first one began to wait, in the run's time."""
    ended = waiters[0].ended_ns if waiters else None
    return ended - lasted if ended is not None else None


def _fate(job: JobView, view: ProcessView, wait: Wait, since: int | None) -> str:
    if view.left_well:
        return "dead" if ended_while_awaited(view.process.snapshot) else "left"
    if aborted_at_shutdown(view):  # its program was done: that torch then aborts is no reason why others wait
        return "left"
    death = next((death for death in job.deaths if death.view.index == view.index), None)
    leaving = _left(view) or any(frame.function in _TEARDOWN for frame in view.python_stack or ())
    if death is None or is_symptom(death) or (leaving and death.nature in ("sent", "left", "interrupt")):
        return "left" if leaving else "late"
    ended = death.nature in ("left", "interrupt") or (death.nature == "sent" and view.process.signal != SIGKILL)
    ended = ended or (death.nature == "vanished" and last_request(view) is not None)  # its framework handles SIGTERM
    if was_finished_off(view):
        return "late"
    return "late" if ended and (_timed_out(job, wait) or _stood(view, since)) else "dead"


def was_finished_off(view: ProcessView) -> bool:
    """Whether it had stood still, was asked to end, and was killed by who had asked: `timeout -k`, a launcher.

    As at the request alone, the signal is not why the ranks stood.
    """
    if view.killed_for is not None:
        return True
    if view.process.signal != SIGKILL or roused_ns(view.process.snapshot) is None:
        return False
    request = last_request(view)
    return request is not None and any(item.sender.snapshot.pid == request.sender_pid for item in view.senders)


def _left(view: ProcessView) -> bool:
    """Whether it left the group by itself; a rank that stood still leaves on the way out, when it is asked to end."""
    left, roused = view.process.snapshot.left_mono_ns, roused_ns(view.process.snapshot)
    return left is not None and (roused is None or left < roused)


def _failed_before(view: ProcessView, wait: Wait) -> bool:
    """Whether its last collective in that group failed: what ended that one kept it from this one.

    Also where it had not ended yet, as gloo aborted the process over a message of it: the others may have had theirs.
    """
    name = wait.group.name if wait.group is not None else None
    items = [item for item in view.process.snapshot.collectives if item.group == name]
    if not items or items[-1].sequence_nr >= wait.call.sequence_nr:
        return False
    thrown = (view.exception.type or "") if view.exception is not None and view.process.signal == SIGABRT else ""
    return items[-1].state == "failed" or (items[-1].state in UNFINISHED and thrown.startswith("gloo::"))


def _timed_out(job: JobView, wait: Wait) -> bool:
    """Whether a waiting rank gave up by itself: had the other one died, its connection would have been closed."""
    errors = [view.exception for view in views_of(job, wait.waiters)]
    return any(error is not None and PEER_SILENT.search(error.message or "") for error in errors)


def _stood(view: ProcessView, since: int | None) -> bool:
    """Whether it ended long after its last collective; of one that has called none, long after others waited for it."""
    items, ended = view.process.snapshot.collectives, view.process.ended_mono_ns
    if not items:
        asked = view.crash or asked_to_end(view.process)  # whoever reaps it may be late
        end_ns = view.clock.relative(asked.mono_ns) if asked is not None else view.ended_ns
        return since is not None and end_ns is not None and end_ns - since >= STOOD_NS
    last = items[-1].completed_ns or items[-1].started_ns  # irecv() is not done before its wait()
    return ended is not None and last is not None and ended - last >= STOOD_NS


def last_seen(view: ProcessView) -> Evidence:
    """The last collective of a process, and where its Python code was when it ended."""
    items = view.process.snapshot.collectives
    rank = view.process.rank
    words = f"rank {rank} called no collective"
    last = items[-1] if items else None
    state = state_of(view.process, last) if last is not None else None
    if last is not None:
        words = f"rank {rank} was last seen in {_name(last)}{at_place(last)}, {state}"
    frame = view.python_frame
    if frame is not None:
        words += f"; {at_its_end(view)}, its Python code was at {place_words(frame)}"
    return Evidence(
        "rank-state",
        words,
        rank=rank,
        pid=view.process.snapshot.pid,
        group=last.group if last is not None else None,
        op=last.op if last is not None else None,
        sequence_nr=last.sequence_nr if last is not None else None,
        state=state,
        python=frame,
    )


def at_its_end(view: ProcessView) -> str:
    """The moment that its stacks are of: one that still runs has handled a request to end, or was asked for them."""
    live = view.process.snapshot.live
    if live is not None and live.signal == REQUEST_SIGNAL:
        return "when the job ended"
    return "when it was asked to end" if view.process.status_kind == "running" else "when it ended"


def paired_before(job: JobView, item: Absence) -> Evidence | None:
    """That the absent rank and one that waits had been out of step before."""
    ranks = [item.wait.waiters[0], item.ranks[0]] if item.wait.waiters and item.ranks else []
    return pairing_evidence(job, item.wait.group, ranks, item.wait.call.sequence_nr)


def extra_before(job: JobView, item: Absence) -> ExtraCall | None:
    """A call that one side had made more than the other, and which had met another one of the same operation."""
    waiters = views_of(job, item.wait.waiters)
    number, ended = item.wait.call.sequence_nr, item.fate == "left"
    return extra_call(waiters, item.views, item.wait.group, number, ended=ended)


def wait_evidence(wait: Wait) -> Evidence:
    """Who waits, in what."""
    call = wait.call
    return Evidence(
        "collective-state",
        wait_words(wait),
        ranks=list(wait.waiters),
        group=call.group,
        op=call.op,
        sequence_nr=call.sequence_nr,
        state=call.state,
        python=place_of(call),
    )


def wait_words(wait: Wait) -> str:
    """`rank 1 waits in recv from rank 0 (train.py:12 in main)`."""
    call, verb = wait.call, "waits" if len(wait.waiters) == 1 else "wait"
    frame = place_of(call)
    line = f" ({place_words(frame)})" if frame is not None else ""
    if call.point_to_point and call.peer is not None:
        way = "from" if call.op == "recv" else "to"
        tag = f", tag {call.tag}" if call.tag else ""
        peer = global_rank(wait.group, call.peer)
        return f"{span_words(wait.waiters)} {verb} in {call.op} {way} rank {peer}{tag}{line}"
    return f"{span_words(wait.waiters)} {verb} in {_name(call)} of {group_words(wait.group)} for {_few(wait)}{line}"


def _few(wait: Wait) -> str:
    return span_words(wait.targets)


def _name(item: Collective) -> str:
    return f"{item.op} #{item.sequence_nr}"
