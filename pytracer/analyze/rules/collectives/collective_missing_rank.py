"""collective-missing-rank: a rank did not enter a collective that others were in.

What: some ranks of a group called a collective, and a rank whose record is complete did not. It waited for no other
rank itself: it is where to look. When that rank died of a cause of its own, this only shows what its death led to.

Why it happens: a branch that skips the collective on one rank, a rank that is busy (reading data, saving a checkpoint)
for longer than the time-out, a rank that hangs, or one that died.

Where those that waited gave up by a time-out, the line that set it is named, and the loop in which the rank worked.

It may also wait to receive a message whose Work its sender has dropped: then the line that sends it is named. Or it is
in new_group(), which the others had not called, or in a loop that may not end by itself.

What to do: look at what the named rank did after its last collective, and compare its branch with that of the others.

An earlier call may have met another one of the same operation, from another line: then one rank is behind from there
on, and that pair is named, with the branch or loop that decided about it.

How it can be wrong: where nothing shows which earlier collective a rank skipped, the line that is named is where it
became visible. Ranks without a readable record are unknown, not late. Of a job that still
runs, a rank may be on its way: that is possible, and likely after ten minutes.
"""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer._text import capital
from pytracer.analyze.collectives.absent_ranks import (
    Absence,
    at_its_end,
    extra_before,
    find_absences,
    last_seen,
    paired_before,
)
from pytracer.analyze.collectives.between_calls import between_calls
from pytracer.analyze.collectives.call_sites import calls_by_site, site_of
from pytracer.analyze.collectives.common_calls import CommonCall, common_call
from pytracer.analyze.collectives.description import place_of, span_words
from pytracer.analyze.collectives.differing_values import differing_values
from pytracer.analyze.collectives.exchanges import exchange_with_any
from pytracer.analyze.collectives.extra_calls import ExtraCall
from pytracer.analyze.collectives.files_behind import why_alone
from pytracer.analyze.collectives.gone_on import GoneOn, gone_on
from pytracer.analyze.collectives.groups_alone import group_alone
from pytracer.analyze.collectives.late_words import handled_advice, running_advice
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.parted_branches import one_rank_way
from pytracer.analyze.collectives.polled_works import polling
from pytracer.analyze.collectives.program_lines import at_lines
from pytracer.analyze.collectives.rank_branches import branch_advice, branch_at_end, branch_head
from pytracer.analyze.collectives.served_locks import served_lock
from pytracer.analyze.collectives.time_limits import time_limit
from pytracer.analyze.collectives.unreceived_sends import UnreceivedSend, lost_message
from pytracer.analyze.collectives.work_loops import endless_loop, standing_while, work_loop
from pytracer.analyze.deaths.attribution import symptom_evidence, views_of
from pytracer.analyze.evidence.exceptions.handled import handled_at_end
from pytracer.analyze.evidence.exceptions.loaders import loading_words, slow_worker
from pytracer.analyze.evidence.waits.busy import Polled, polled_by
from pytracer.analyze.evidence.waits.ended_threads import EndedThread, ended_thread_evidence, thread_behind
from pytracer.analyze.evidence.waits.running import running_words
from pytracer.analyze.evidence.waits.stuck_loading import late_loading_advice, stuck_loading_words
from pytracer.analyze.evidence.waits.wait_chain import Blocked, blocked
from pytracer.analyze.evidence.waits.waits import wait_of, was_asleep
from pytracer.analyze.evidence.waits.worker_collectives import collective_in_worker, worker_advice
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, cannot_decide, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Confidence, Evidence, PythonFrame

_LISTED = 3
_LONG_NS = 600_000_000_000  # of a job that still runs: a checkpoint or an evaluation takes minutes


class CollectiveMissingRank:
    """Fires for ranks that others waited for in a collective; not for those that had ended well (uneven-inputs)."""

    id = "collective-missing-rank"
    needs = ("COLLECTIVES", "GROUP")

    def check(self, job: JobView) -> tuple[Judgement[Absence], ...] | NoFinding:
        """One judgement per collective and fate of the absent ranks."""
        polls = polling(job)  # why they did not come: polled-work
        absences = [
            item
            for item in find_absences(job)
            if item.fate != "left"
            and not polls.issuperset(view.index for view in item.views)
            and served_lock(item, job.views) is None  # served-lock tells it
        ]
        if absences:
            return tuple(_judge(job, item) for item in absences)
        groups = job.matches.groups
        unknown = sorted({rank for match in groups for rank in match.unknown})
        if unknown:
            return cannot_decide(f"the record of {span_words(unknown)} is missing or damaged: unknown, not late")
        return nothing_to_compare(job) or not_found(
            "no rank waited in a collective for a rank that waited for nobody and had not ended well"
        )

    def describe(self, job: JobView, judgement: Judgement[Absence]) -> Description:
        """See Rule."""
        item, unknown = judgement.found, _unknown(judgement.found)
        ranks = span_words(item.ranks)
        ended = "ended" if item.views[0].process.exit_code == 0 else "died"
        never = f"{ended} and never entered" if item.fate == "dead" else "did not enter"
        if item.goes_on:
            never = f"{'has' if len(item.views) == 1 else 'have'} not entered"
        worker = _worker(job, item)
        thread = _thread(item) if worker is None else None
        inside = collective_in_worker(worker) if worker is not None else None
        kept = blocked(job, worker) if worker is not None and inside is None else None
        why = f": {_loading(item, worker, plain=inside is not None or kept is not None)}" if worker is not None else ""
        why += f", in {inside.name}() at {place_words(inside.at)}: {inside.reason}" if inside is not None else ""
        why += f", and {kept.words}" if kept is not None else ""
        why += f": {thread.words}" if thread is not None else ""
        extra = _extra(job, item) if worker is None and thread is None else None
        if extra is not None:
            return _of_extra(job, item, extra)
        if worker is None and thread is None:
            lost = _lost_message(job, item)
            why = f"; {lost.lost_words}" if lost is not None else _last_place(job, item, ranks)
        handled = handled_at_end(item.views[0]) if len(item.views) == 1 and worker is None and thread is None else None
        if handled is not None:
            why += f", handling {handled.words}" if why else f"; {ranks} was handling {handled.words}"
        alone = _only_here(job, item) if worker is None and thread is None else None
        gone = _gone_on(job, item) if alone is not None else None
        why += f"; {alone[1]}" if alone is not None and alone[1] is not None and gone is None else ""
        first = f"{capital(gone.words)}. " if gone is not None else ""
        return Description(
            f"{first}{capital(ranks)} {never} {item.where}, in which {item.waiters}{_at_line(job, item)}"
            f"{_until(job, item)}{why}.",
            [
                *(last_seen(view) for view in item.views[:_LISTED]),
                *(fact for view in item.views[:_LISTED] for fact in ended_thread_evidence(view)),
                handled.evidence if handled is not None else None,
                _values(job, item) if worker is None and thread is None else None,
                paired_before(job, item),
                *symptom_evidence(job),
            ],
            f"{thread.advice} {_advice(job, item, ranks)}"
            if thread is not None
            else _advice_while_running(item, ranks)
            if item.goes_on
            else _advice(job, item, ranks)
            if worker is None
            else worker_advice(inside)
            if inside is not None
            else kept.advice
            if kept is not None
            else late_loading_advice(item.views[0], worker),
            [f"the collectives of {span_words(unknown)}: no readable record" if unknown else None],
        )


def _values(job: JobView, item: Absence) -> Evidence | None:
    """What is different on the rank that did not come and on one that waited."""
    waiters = views_of(job, item.wait.waiters[:1])
    return differing_values(item.views[0], waiters[0]) if waiters else None


def _extra(job: JobView, item: Absence) -> ExtraCall | None:
    """An earlier call that one side made and the other did not, where the source shows why."""
    found = extra_before(job, item) if item.fate == "late" else None
    return found if found is not None and found.known else None


def _of_extra(job: JobView, item: Absence, extra: ExtraCall) -> Description:
    unknown = _unknown(item)
    return Description(
        f"{capital(extra.subject)}. It met {extra.met}, so that {span_words(item.ranks)} did not enter {item.where}, "
        f"in which {item.waiters}{_at_line(job, item)}.",
        [*(last_seen(view) for view in item.views[:_LISTED]), paired_before(job, item), *symptom_evidence(job)],
        extra.advice,
        [f"the collectives of {span_words(unknown)}: no readable record" if unknown else None],
    )


def _last_place(job: JobView, item: Absence, ranks: str) -> str:
    """What the one rank that lived on did there, from the stacks of its end."""
    view = item.views[0]
    frame = view.python_frame
    if len(item.views) > 1 or item.fate != "late" or view.raised or frame is None or is_library_file(frame.file):
        return ""
    alone = group_alone(job, item)
    if alone is not None:
        return f"; {at_its_end(view)}, {ranks} {alone.words}"
    waits = blocked(job, view)
    polled = polled_by(view)
    works = work_loop(view) if polled is None else None
    loop = (
        _polled_words(job, item, polled) if polled is not None else f", in {works.words}" if works is not None else ""
    )
    common, running = _at_work(job, item) if works is None else (None, None)
    doing = "slept" if was_asleep(view) and works is None else f"was {running}" if running is not None else "was"
    called = f", {common.words}" if common is not None else ""
    endless = endless_loop(view) if polled is None and works is None else None
    called += f"{endless[1]}; {endless[0].words}" if endless is not None else ""
    slept = f"{doing} at {place_words(frame)}{loop}{called}"
    did = waits.words if waits is not None else slept
    return f"; {at_its_end(view)}, {ranks} {did}"


def _polled_words(job: JobView, item: Absence, polled: Polled) -> str:
    own = why_alone(job, item)
    return f", {polled.words}{f'; {own.alone}' if own is not None else ''}"


def _advice(job: JobView, item: Absence, ranks: str) -> str:
    """With the line where the rank was when it ended: there it spent the time, or hung."""
    frames = [view.python_frame for view in item.views]
    group = group_alone(job, item)
    if group is not None:
        return group.advice
    alone = _only_here(job, item)
    if alone is not None:
        return alone[0]
    lost = _lost_message(job, item)
    if lost is not None:
        return lost.advice
    waits = _blocked(job, item)
    if waits is not None:
        return waits.advice
    if len(frames) == 1 and frames[0] is not None and item.fate == "late":
        return _late_advice(job, item, frames[0], ranks)
    between = between_calls(job, item.views[0]) if len(item.views) == 1 and item.fate == "dead" else None
    if between is not None:
        return f"Look at what {ranks} did {between.place}."
    return f"Look at what {ranks} did after {'its' if len(item.ranks) == 1 else 'their'} last collective."


def _only_here(job: JobView, item: Absence) -> tuple[str, str | None] | None:
    """What to do, and the words of a branch on the rank that the waiting ranks alone went into, or of two loops.

    Of a group of all ranks, whose absent ones ran, never called a collective from that line, and are in no branch on
    the rank themselves, in which they may come to the same.
    """
    call, group = item.wait.call, item.wait.group
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    site = site_of(call)
    if waiter is None or group is None or site is None or item.fate != "late" or item.goes_on:
        return None
    other = exchange_with_any(waiter, call, item.views)
    if other is not None:
        return other.advice, other.subject
    gone = _gone_on(job, item)
    if gone is not None:
        return gone.advice, gone.words
    if any(branch_at_end(view) is not None for view in item.views):
        return None
    counts = [calls_by_site(view, group.name) for view in item.views if view.process.snapshot.collectives]
    if len(group.ranks) != waiter.process.world_size or any(count is None or count[site] for count in counts):
        return None
    asked = one_rank_way(waiter, call)
    if asked is not None:
        return asked[1], asked[0]
    advice = branch_advice(waiter, call, library_call(waiter, call))
    head = branch_head(waiter, call, advice) if advice is not None else None
    said = f"the call of {span_words(item.wait.waiters)} is {head}"
    return (advice, said) if advice is not None and head is not None else None


def _gone_on(job: JobView, item: Absence) -> GoneOn | None:
    """Of the one absent rank, which had left the loop that the first of those that wait is in."""
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    if waiter is None or len(item.views) > 1 or item.fate != "late" or item.goes_on:
        return None
    return gone_on(waiter, item.wait.call, item.views[0])


def _late_advice(job: JobView, item: Absence, frame: PythonFrame, ranks: str) -> str:
    """With the branch on the rank that it was below, and with the time-out that the others had."""
    limit = time_limit(item.wait.call, item.wait.group, views_of(job, item.wait.waiters))
    handled = handled_at_end(item.views[0])
    if handled is not None:
        return handled_advice(handled, frame, ranks, limit)
    polled = polled_by(item.views[0])
    if polled is not None:
        own = why_alone(job, item)
        return f"{capital(ranks)} waited there by itself. {(own or polled).advice}"
    view = item.views[0]
    below, works = branch_at_end(view), work_loop(view)
    raised = f"give {limit.set_at(frame.file)} a larger timeout="
    longer = f"If {f'the {works.short}' if works is not None else 'it'} may take longer"
    if works is not None and not view.process.snapshot.collectives:
        raised = f"do that work before the job, in a program of its own, or {raised}"
    endless = endless_loop(view) if works is None else None
    if below is not None:
        until = f" until their time-out of {limit.time}" if limit.time is not None else ""
        waited = f"{below.words}: the others waited for what {ranks} did there{until}."
        if endless is not None:
            return f"{waited} {endless[0].advice} If it only takes long, {raised}."
        loop = standing_while(view)
        if loop is not None:
            return f"{waited} See whether {loop} ever ends: print what it asks. If it only takes long, {raised}."
        return f"{waited} {longer}, {raised}; else see what is slow at line {frame.line} in {frame.function}."
    if endless is not None:
        return f"{endless[0].advice} If it only takes long, {raised}."
    common, running = _at_work(job, item) if works is None else (None, None)
    if common is not None and running is not None:
        return running_advice(view, common, running, ranks, limit)
    more = f" {longer} than {limit.time}, {raised}." if limit.time is not None else ""
    called = f", {common.words}" if common is not None else ""
    if works is not None:
        return (
            f"See how many rounds the {works.short} makes on {ranks} and on the others, and how long each takes: "
            f"{ranks} was still in it, at {place_words(frame)}, when it was ended.{more}"
        )
    return (
        f"Look at {place_words(frame)}, where {ranks} was when it was ended{called}: it is slow, waits for something, "
        f"or is a branch that the other ranks did not take.{more}"
    )


def _at_work(job: JobView, item: Absence) -> tuple[CommonCall | None, str | None]:
    """What the one absent rank had called where the first of those that wait is, too, and how it worked there.

    The latter is None where it may have passed them by.
    """
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    view = item.views[0]
    common = common_call(waiter, item.wait.call, view) if waiter is not None and len(item.views) == 1 else None
    return common, running_words(view, common.frame) if common is not None and common.comes else None


def _at_line(job: JobView, item: Absence) -> str:
    return at_lines(job, [(item.wait.waiters[0], item.wait.call)])[0]


def _until(job: JobView, item: Absence) -> str:
    """` until its time-out of 12 s (line 61)`, where those that waited named it, and a line of the program set it."""
    limit = time_limit(item.wait.call, item.wait.group, views_of(job, item.wait.waiters))
    if limit.time is None or limit.at is None or item.fate != "late":
        return ""
    place = place_of(item.wait.call)
    where = line_in(limit.at[0], limit.at[1], place.file if place is not None else None)
    return f" until {'its' if len(item.wait.waiters) == 1 else 'their'} time-out of {limit.time} ({where})"


def _lost_message(job: JobView, item: Absence) -> UnreceivedSend | None:
    """What the one absent rank was to receive."""
    return lost_message(job, item.views[0]) if len(item.views) == 1 else None


def _blocked(job: JobView, item: Absence) -> Blocked | None:
    """What the one absent rank waited for itself."""
    return blocked(job, item.views[0]) if len(item.views) == 1 and item.fate == "late" else None


def _advice_while_running(item: Absence, ranks: str) -> str:
    hosts = dict.fromkeys(view.process.snapshot.host for view in item.views[:_LISTED])
    return (
        f"`pytracer attach` on {', '.join(hosts)} shows what {ranks} {'does' if len(item.ranks) == 1 else 'do'}. "
        "A long checkpoint, evaluation or compilation looks the same."
    )


def _worker(job: JobView, item: Absence) -> ProcessView | None:
    """The DataLoader worker that kept the one absent rank."""
    single = item.views[0] if len(item.views) == 1 and item.fate == "late" else None
    return slow_worker(job, single, item.waited_ns) if single is not None else None


def _thread(item: Absence) -> EndedThread | None:
    """Of the one absent rank: the thread that it waited for, which an exception had ended."""
    single = item.views[0] if len(item.views) == 1 and item.fate == "late" else None
    wait = wait_of(single) if single is not None else None
    return thread_behind(single, wait) if single is not None and wait is not None else None


def _loading(item: Absence, worker: ProcessView, *, plain: bool) -> str:
    """How long the worker had been loading; unless `plain`, in which loop of the program, and why that went on."""
    until = item.views[0].process.ended_mono_ns
    return loading_words(worker, until) if plain else stuck_loading_words(item.views[0], worker, until)


def _judge(job: JobView, item: Absence) -> Judgement[Absence]:
    call = item.wait.call
    if item.goes_on:
        confidence: Confidence = "likely" if item.waited_ns >= _LONG_NS else "possible"
    else:
        confidence = "likely" if _unknown(item) else "certain"
    judgement = Judgement("missing-rank", confidence, item.views, item)
    did = dict.fromkeys(item.ranks, f"did not enter {call.op} #{call.sequence_nr}")
    why = f"waited in {call.op} #{call.sequence_nr} for {span_words(item.ranks)}"
    return account(job, judgement, why, did, waited_ns=item.waited_ns, ends=item.fate == "late")


def _unknown(item: Absence) -> tuple[int, ...]:
    """The ranks of the group without a readable record."""
    return tuple(item.wait.group.unknown) if item.wait.group is not None else ()
