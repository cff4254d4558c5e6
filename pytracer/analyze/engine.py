"""Runs the rules over a job and puts the report together: facts, findings, one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytracer._text import count_words
from pytracer.analyze.assemble.communication import build_collectives, build_flight_recorder
from pytracer.analyze.assemble.processes import process_report
from pytracer.analyze.assemble.run import build_counts, build_damage, build_run
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.collectives.matching import match_job
from pytracer.analyze.collectives.wait_graph import find_waiting
from pytracer.analyze.deaths.order import find_deaths
from pytracer.analyze.evidence.gpu_core import gpu_core_report
from pytracer.analyze.rules import RULES
from pytracer.analyze.timeline.clock import RunClock
from pytracer.analyze.timeline.restarts import split_attempts
from pytracer.analyze.view import Draft, JobView, ProcessView
from pytracer.decode.job.detail import in_full
from pytracer.decode.types.snapshot import Job
from pytracer.report import job as r

CONFIDENCES = ("certain", "likely", "possible", "unknown")
CLOSELY = 16  # suspects of a large job that are read in full
ORDER_RULE = "first-death"


def build_report(job: Job) -> r.Report:
    """Everything that can be concluded about a run.

    Args:
        job: All processes of one run, from `decode.merge.load_job`; native frames may carry function names.

    Returns:
        The report. Processes are in the job's order, findings strongest first. Nothing is read but the recordings of
        the suspects, if they were read lightly, and of the files that fault addresses lie in their sizes or symbols.
    """
    clock = RunClock(job)
    *earlier, (_, last) = split_attempts(job)
    examined = _examine(_judged(last, clock))
    before = [(number, _examine(_judged(part, clock))) for number, part in earlier]
    return r.Report(
        run=build_run(job, clock),
        verdict=_verdict(examined),
        findings=[draft.finding for draft in examined.drafts],
        checked=examined.checked,
        processes=_processes(job, [*(item.job for _, item in before), examined.job], clock),
        collectives=build_collectives(examined.job.matches),
        damage=build_damage(job),
        counts=build_counts(job),
        flight_recorder=build_flight_recorder(job),
        attempts=[r.Attempt(attempt=number, verdict=_verdict(item)) for number, item in before],
    )


@dataclass(frozen=True)
class _Examined:
    """A job after all rules: its deaths as the findings left them, findings strongest first, and what did not fire."""

    job: JobView
    drafts: list[Draft]
    checked: list[r.Checked]


def _judged(job: Job, clock: RunClock) -> JobView:
    """The processes with everything known about them, and the order of their deaths."""
    views = tuple(build_view(index, process, clock) for index, process in enumerate(job.processes))
    deaths = find_deaths(views, clock)
    suspects = [death.view.index for death in deaths if death.primary is not False and _is_light(death.view)]
    if suspects:
        job = in_full(job, suspects[:CLOSELY])
        closer = {index: build_view(index, job.processes[index], clock) for index in suspects[:CLOSELY]}
        views = tuple(closer.get(view.index, view) for view in views)
        deaths = find_deaths(views, clock)
    matches = match_job(job)
    return JobView(job, views, deaths, matches=matches, waiting=find_waiting(job, matches))


def _is_light(view: ProcessView) -> bool:
    return view.process.snapshot.light


def _processes(job: Job, attempts: Sequence[JobView], clock: RunClock) -> list[r.ProcessReport]:
    """All processes in the job's order, each as its own attempt judged it; the last one has those of none."""
    reports = {}
    for attempt in attempts:
        deaths = {death.view.index: death for death in attempt.deaths}
        for view in attempt.views:
            reports[view.process.snapshot.path] = process_report(
                view, clock, death=deaths.get(view.index), gpu_core=gpu_core_report(attempt.job, view)
            )
    return [reports[process.snapshot.path] for process in job.processes]


def _examine(view: JobView) -> _Examined:
    """All rules in their order; findings about the first death come first, then by confidence; circumstances last."""
    drafts: list[Draft] = []
    checked: list[r.Checked] = []
    for rule in RULES:
        explained = frozenset(item.index for draft in drafts if _is_cause(draft) for item in draft.views)
        outcome = rule.examine(replace(view, explained=explained))
        drafts.extend(outcome.drafts)
        for draft in outcome.drafts:
            view = _with_cause(view, draft)
        if not outcome.drafts:
            checked.append(r.Checked(id=rule.id, result=outcome.result, why=outcome.why))
    return _Examined(view, sorted(drafts, key=lambda draft: _weight(view, draft)), checked)


def _with_cause(view: JobView, draft: Draft) -> JobView:
    """The job with the deaths that a finding of another process's or of no process's doing explains: consequences."""
    reasons = {item.index: why for item, why in draft.explains}
    if not draft.leads or not reasons:
        return view
    culprits = {item.index for item in draft.views}
    deaths = []
    for death in view.deaths:
        index = death.view.index
        if index in reasons and (death.primary is not False or index in culprits):
            death = replace(death, primary=False, why=reasons[index], by_finding=index in culprits)
        deaths.append(death)
    return replace(view, deaths=tuple(deaths))


def _is_cause(draft: Draft) -> bool:
    """Whether the finding explains a death; the order of deaths and mere circumstances do not."""
    return draft.finding.id != ORDER_RULE and not draft.accompanies


def _weight(view: JobView, draft: Draft) -> tuple[bool, bool, bool, bool, int]:
    primary = {death.view.index for death in view.deaths if death.primary}
    about_primary = any(item.index in primary for item in draft.views)
    confidence = CONFIDENCES.index(draft.finding.confidence) if draft.finding.confidence in CONFIDENCES else 3
    return draft.finding.id == ORDER_RULE, draft.accompanies, not draft.leads, not about_primary, confidence


def _verdict(examined: _Examined) -> r.Verdict:
    """The finding about what died first, else a plain word on why there is none."""
    causes = [draft for draft in examined.drafts if _is_cause(draft)]
    if not causes:
        return _no_cause(examined.job)
    best = causes[0]
    first = best.views[0].process
    return r.Verdict(
        class_=best.verdict_class,
        confidence=best.finding.confidence if best.verdict_class != "unknown" else "unknown",
        rank=None if best.undecided or first.role != "rank" else first.rank,
        pid=None if best.undecided else first.snapshot.pid,
        summary=best.finding.summary,
        advice=best.finding.advice,
        evidence=list(best.finding.evidence or []),
    )


def _no_cause(view: JobView) -> r.Verdict:
    if view.deaths:  # every death was judged a consequence of another one: a contradiction, so say nothing more
        return r.Verdict(
            class_="unknown",
            confidence="unknown",
            summary=f"{count_words(len(view.deaths), 'process')} died; none of the deaths can be named as the first.",
            advice="Look at each process with --all.",
            evidence=[],
        )
    if not view.views:
        return r.Verdict(
            class_="unknown", confidence="unknown", summary="No process was recorded.", advice="See `pytracer doctor`."
        )
    running = sum(item.process.status_kind == "running" for item in view.views)
    total = len(view.views)
    summary = f"Nothing died: {total} process{'es' * (total != 1)} recorded."
    if running:
        summary = f"Nothing has died so far: {running} of {total} process{'es' * (total != 1)} still running."
    return r.Verdict(class_="clean", confidence="certain", summary=summary, evidence=[])
