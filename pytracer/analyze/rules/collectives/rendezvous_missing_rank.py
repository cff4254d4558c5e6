"""rendezvous-missing-rank: a rank had not called init_process_group() when the others gave up waiting for it there.

What: a rank's call of init_process_group() ended by a time-out, and another process of the same job, alive then, had
not called it; or no process with some of the ranks was ever there.

Why it happens: one rank downloads, tokenizes or reads first what the others find ready; or it is on a slower host; or
it hangs before it joins. More ranks are counted (world_size, WORLD_SIZE) than processes are started.

What to do: let all ranks join first and prepare afterwards, with a barrier, or pass a longer `timeout` to
init_process_group().

How it can be wrong: a process that joins by means of its own, such as a store that it passes, leaves no such record.
Ranks of another host, whose recordings are not here, look as if they had not been started.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital, count_words, span_words, time_words
from pytracer.analyze.collectives.absent_ranks import at_its_end
from pytracer.analyze.collectives.left_unjoined import left_unjoined
from pytracer.analyze.collectives.matching import STOOD_NS
from pytracer.analyze.collectives.rendezvous import Join, find_mismatch, is_loopback, met_with, open_joins
from pytracer.analyze.collectives.world_size import spawned, world_size_source
from pytracer.analyze.deaths.attribution import symptom_evidence
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.waits.waits import program_stack, was_asleep
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Rendezvous
from pytracer.report.job import Evidence, PythonFrame

_NUMBERS = tuple(f"`{digit}" for digit in range(10))
_MOST = 65536  # a recording may name any size


class _Late(msgspec.Struct, frozen=True):
    """The calls that gave up, the one that waited longest first, and the ranks that had not called."""

    waiting: tuple[Join, ...]
    absent: tuple[ProcessView, ...]
    missing: tuple[int, ...] = ()
    """Ranks that no process had, where nobody else was late."""


class RendezvousMissingRank:
    """Fires once, for ranks that lived on without a call while others gave up."""

    id = "rendezvous-missing-rank"
    needs = ("RENDEZVOUS",)

    def check(self, job: JobView) -> tuple[Judgement[_Late], ...] | NoFinding:
        """At most one judgement."""
        waiting = [] if find_mismatch(job) is not None else open_joins(job)
        waiting.sort(key=lambda join: -join.waited_ns)
        first = min((join.view.process.ended_mono_ns or 0 for join in waiting), default=0)
        absent = tuple(view for view in job.views if first and _had_not_called(view, first))
        missing = _never_there(job, waiting) if not absent else ()
        if missing:
            return (_judge_missing(job, tuple(waiting), missing),)
        if not waiting or not absent:
            return not_found("no rank gave up in init_process_group() while another one had not called it")
        found = _Late(tuple(waiting), absent)
        judgement = Judgement("missing-rank", "likely", absent, found)
        ranks = [view.process.rank for view in absent if view.process.rank is not None]
        did = dict.fromkeys(ranks, "had not called init_process_group()")
        why = f"waited in init_process_group() for {span_words(ranks)}"
        return (account(job, judgement, why, did, waited_ns=waiting[0].waited_ns, ends=True),)

    def describe(self, job: JobView, judgement: Judgement[_Late]) -> Description:
        """See Rule."""
        if judgement.found.missing:
            return _describe_missing(job, judgement.found.waiting[0], judgement.found.missing)
        found, view = judgement.found, judgement.found.absent[0]
        join, caller = found.waiting[0], found.waiting[0].data.caller
        absent = span_words([item.process.rank for item in found.absent if item.process.rank is not None])
        waiters = span_words(sorted(item.data.rank for item in found.waiting if item.data.rank is not None))
        called = PythonFrame(caller.function, caller.file, caller.line) if caller is not None else None
        at = f" at {place_words(called)}" if called is not None else ""
        frame = view.python_frame if len(found.absent) == 1 else None
        known = frame is not None and not is_library_file(frame.file) and not view.raised
        was = (
            f"; {at_its_end(view)}, it {'slept' if was_asleep(view) else 'was'} at {place_words(frame)}"
            if known and frame
            else ""
        )
        place = (
            f"{place_words(frame)}, where {absent} was" if known and frame is not None else f"what {absent} did first"
        )
        return Description(
            f"{capital(absent)} had not called init_process_group(), in which {waiters} waited "
            f"{time_words(join.waited_ns)}{at}{was}.",
            [
                Evidence(
                    "rank-state",
                    f"the recording of {absent} has no call of init_process_group()",
                    rank=view.process.rank,
                    pid=view.process.snapshot.pid,
                    python=frame,
                ),
                *symptom_evidence(job),
            ],
            f"Look at {place}: it takes longer than the others wait, or stands still. Let all ranks call "
            "init_process_group() first and prepare afterwards, with barrier(), or pass it a longer `timeout`.",
            has_place=True,
        )


def _never_there(job: JobView, waiting: list[Join]) -> tuple[int, ...]:
    """The ranks up to the world size that no process of the run has, where all that waited agree on it."""
    sizes = {(join.store, join.data.world_size) for join in waiting}
    there = {view.process.rank for view in job.views if view.process.rank is not None}
    there |= {join.data.rank for join in waiting if join.data.rank is not None}
    size = waiting[0].data.world_size if len(sizes) == 1 else None
    return tuple(rank for rank in range(size) if rank not in there) if size is not None and size <= _MOST else ()


def _judge_missing(job: JobView, waiting: tuple[Join, ...], missing: tuple[int, ...]) -> Judgement[_Late]:
    views = tuple(join.view for join in waiting)
    judgement = Judgement("missing-rank", "likely", views, _Late(waiting, (), missing))
    why = f"waited in init_process_group() for {span_words(missing)}"
    stood_ns = max(waiting[0].waited_ns, STOOD_NS)  # or it gave up by itself: open_joins
    return replace(account(job, judgement, why, {}, waited_ns=stood_ns), undecided=True)


def _describe_missing(job: JobView, join: Join, missing: tuple[int, ...]) -> Description:
    there = met_with(job, join)
    ranks, count = sorted({item.data.rank for item in there if item.data.rank is not None}), len(there)
    size, caller = join.data.world_size or 0, _caller(join)
    at = f" at {place_words(caller)}" if caller is not None else ""
    given = f"{_size_name(join)}="
    snapshot = join.view.process.snapshot
    source, started = world_size_source(snapshot, caller, _size_name(join)), spawned(snapshot, caller)
    what = f", by {source}" if source is not None and not source.startswith(_NUMBERS) else ""
    ran = started is not None and _ran(job, join, started[0])
    by = f", of which line {started[0]} starts nprocs=`{started[1]}`" if ran and started is not None else ""
    made = f" is {source}, here {size}" if source is not None else f" is {size}"
    starts = f"; line {started[0]} starts nprocs=`{started[1]}`" if started is not None else ""
    local = is_loopback(join.data.master_addr)
    left = left_unjoined(job, join, len(missing), _size_name(join))
    waited = f"{capital(span_words(ranks))} waited {time_words(join.waited_ns)} in init_process_group(){at}"
    called = f"{given}{size}; {count_words(count, 'process')} called init_process_group()"
    evidence = [Evidence("rank-state", called, ranks=ranks, count=size), *symptom_evidence(job)]
    if left is not None:
        return Description(
            f"{waited} for a job of {size} ranks, and {left.subject}.", evidence, left.advice, has_place=True
        )
    return Description(
        f"{waited} for a job of {size} ranks{what}{by}, and no process of {span_words(missing)} was recorded.",
        evidence,
        f"{_size_name(join)}{made}{starts}, and {count_words(count, 'process')} called it: start as many processes "
        "(mp.spawn(nprocs=...), torchrun, one srun task for each), or make "
        f"{given.rstrip('=')} the number of those that are started. If {span_words(missing)} "
        f"should run on other hosts, start them there with the same MASTER_ADDR and MASTER_PORT"
        f"{f': not {join.data.master_addr}, which is each host itself' if local else ''}.",
        [None if local else "the processes of other hosts, whose recordings are not here"],
        has_place=True,
    )


def _ran(job: JobView, join: Join, line: int) -> bool:
    """Whether the parent of that rank was in the line."""
    parent, caller = parent_of(job, join.view), _caller(join)
    if parent is None or caller is None:
        return False
    stacks = (parent.exception_stack_of_program, parent.python_stack or (), program_stack(parent))
    return any((frame.file, frame.line) == (caller.file, line) for stack in stacks for frame in stack)


def _size_name(join: Join) -> str:
    return "world_size" if "world_size" in join.data.passed else "WORLD_SIZE"


def _caller(join: Join) -> PythonFrame | None:
    caller = join.data.caller
    return PythonFrame(caller.function, caller.file, caller.line) if caller is not None else None


def _had_not_called(view: ProcessView, first_ns: int) -> bool:
    """Whether a rank lived when the first one gave up, and had not called by then, although that would be recorded."""
    process = view.process
    ending = view.crash or asked_to_end(process)
    known = (ending.mono_ns if ending is not None else None, process.exception_mono_ns, process.ended_mono_ns)
    lived = min((at for at in known if at is not None), default=first_ns + 1) > first_ns  # a parent may notice it late
    return (
        process.role == "rank"
        and process.rank is not None
        and lived
        and not process.snapshot.recorded(Rendezvous)
        and process.snapshot.versions.torch is not None
    )
