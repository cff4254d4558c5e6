"""Runs the rules over a job and puts the report together: facts, findings, one verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import msgspec
from msgspec import structs

from pytracer._errors import UsageError
from pytracer._library_files import counted_as_program
from pytracer._started_package import runs_text
from pytracer.analyze.alternatives import alternatives
from pytracer.analyze.assemble.communication import build_collectives, build_flight_recorder
from pytracer.analyze.assemble.processes import process_report
from pytracer.analyze.assemble.run import build_counts, build_damage, build_run
from pytracer.analyze.assemble.senders import recorded_senders
from pytracer.analyze.assemble.timeline import kept_per_process, received_states, sent_states, timeline
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.code_behind import code_behind
from pytracer.analyze.collectives.matching import match_job
from pytracer.analyze.collectives.wait_graph import find_waiting
from pytracer.analyze.deaths.order import find_deaths
from pytracer.analyze.describing import described
from pytracer.analyze.evidence.cuda.gpu_core import gpu_core_report
from pytracer.analyze.no_cause import no_cause
from pytracer.analyze.platform.signals import SIGKILL
from pytracer.analyze.program_packages import program_packages
from pytracer.analyze.rules import RULES
from pytracer.analyze.rules.base import AnyJudgement, AnyRule, Description, NoFinding, finding
from pytracer.analyze.rules.fault import FaultRule
from pytracer.analyze.timeline.clock import RunClock
from pytracer.analyze.timeline.restarts import beside_the_last, restarted, split_attempts
from pytracer.analyze.view import JobView, ProcessView, RecordedSender, WhyKind
from pytracer.decode.job.detail import in_full
from pytracer.decode.types.host_counters import SeenProcess
from pytracer.decode.types.snapshot import Job, Process
from pytracer.report import job as r

CONFIDENCES = get_args(r.Confidence)
CLOSELY = 16  # suspects of a large job that are read in full
ORDER_RULE = "first-death"


def build_report(job: Job, attempt: int | None = None, program: Iterable[str] = ()) -> r.Report:
    """Everything that can be concluded about a run.

    Args:
        job: All processes of one run, from `decode.merge.load_job`; native frames may carry function names.
        attempt: Of a restarted job, the attempt to report on alone; -1 is the last one.
        program: Installed packages whose files are the program's own, beside those that it was started from.

    Returns:
        The report. Processes are in the job's order, findings strongest first. Nothing is read but the recordings of
        the suspects, if they were read lightly, and of the files that fault addresses lie in their sizes or symbols.

    Raises:
        UsageError: There is no such attempt.
    """
    packages = sorted({*program, *program_packages(job)})
    has_files = not any(runs_text(process.snapshot.argv) for process in job.processes)
    with counted_as_program(packages, has_files=has_files):
        return _build(job, attempt, packages)


def _build(job: Job, attempt: int | None, packages: Sequence[str]) -> r.Report:
    clock = RunClock(job)
    parts = split_attempts(job)
    if attempt is not None:
        parts = (_part(parts, attempt),)
        job = parts[0][1]
    concluded = {number: conclude(job_view(part, clock)) for number, part in parts}
    failed = [number for number in restarted(job) if number in concluded and _has_failed(concluded[number])]
    told = _leading(concluded, failed, beside_the_last(job))
    shown = concluded[told]
    findings = _findings(shown)
    unread = [view.process for item in concluded.values() for view in _unread(item.job)]
    return r.Report(
        run=build_run(job, clock, unread, packages),
        verdict=_recovered(concluded, failed) or _with_code(_verdict(shown, told), shown),
        findings=findings,
        checked=shown.checked,
        alternatives=_alternatives(shown, findings),
        processes=_processes(job, [item.job for item in concluded.values()]),
        collectives=build_collectives(shown.job),
        damage=build_damage(job),
        counts=build_counts(job),
        flight_recorder=build_flight_recorder(job),
        attempts=[
            r.Attempt(attempt=number, verdict=msgspec.structs.replace(_verdict(item, number), finding=None))
            for number, item in concluded.items()
            if number != told
        ],
    )


def _part(parts: Sequence[tuple[int | None, Job]], attempt: int) -> tuple[int | None, Job]:
    numbers = [number for number, _ in parts]
    if attempt == -1 or (attempt == 0 and numbers == [None]):
        return parts[-1]
    found = next((part for part in parts if part[0] == attempt), None)
    if found is None:
        known = f"attempts {numbers[0]} to {numbers[-1]}" if len(parts) > 1 else "one attempt"
        raise UsageError(f"there is no attempt {attempt}: the run has {known}", "name one of them")
    return found


def _leading(concluded: dict[int | None, Concluded], failed: Sequence[int], beside: Sequence[int]) -> int | None:
    """The attempt that the report is about: the last one; when that failed as well, the first that has a cause.

    What fails after a restart often follows from the first crash: a port in use, a store or a checkpoint left behind.
    Of jobs that ran at the same time, one that failed.
    """
    last = next(reversed(concluded))
    if not _has_failed(concluded[last]):
        return next((number for number in beside if number in concluded and _has_failed(concluded[number])), last)
    told = next((number for number in failed if _has_cause(_verdict(concluded[number], number))), None)
    if told is None and not _is_sure(concluded[last], last):
        told = next((number for number in failed if _is_sure(concluded[number], number)), None)
    return told if told is not None else last


def _is_sure(concluded: Concluded, number: int | None) -> bool:
    """Whether it is known how the attempt ended: a `kill -9`, against a connection that was refused after a restart."""
    return _verdict(concluded, number).confidence in ("certain", "likely")


def _has_failed(concluded: Concluded) -> bool:
    return bool(concluded.job.deaths)


def _has_cause(verdict: r.Verdict) -> bool:
    """Whether a verdict names a cause of death: not an end from outside, nor a mere possibility."""
    return verdict.confidence in ("certain", "likely") and verdict.class_ not in ("unknown", "clean", "external-kill")


def _recovered(concluded: dict[int | None, Concluded], failed: Sequence[int]) -> r.Verdict | None:
    """The verdict on a job whose last attempt did not fail, after some that did."""
    last = next(reversed(concluded))
    if not failed or _verdict(concluded[last], last).class_ != "clean":
        return None
    crashes = f"{len(failed)} crash{'es' * (len(failed) != 1)}"
    runs = any(view.process.status_kind == "running" for view in concluded[last].job.views)
    return r.Verdict(
        class_="recovered",
        confidence="certain",
        summary=f"The job recovered after {crashes}: torchrun restarted its workers, and "
        f"attempt {last} {'is running' if runs else 'ended well'}.",
        advice=f"Look at the earlier attempts: each restart costs the steps since the last checkpoint. "
        f"--attempt {failed[0]} reports on attempt {failed[0]}.",
        evidence=[],
        facts=[],
        attempt=last,
    )


Conclusion = tuple[AnyRule, AnyJudgement]  # a rule, and one of its judgements


@dataclass(frozen=True)
class Concluded:
    """A job after all rules: its deaths as the judgements left them, these strongest first, and what did not fire."""

    job: JobView
    conclusions: list[Conclusion]
    checked: list[r.Checked]

    @cached_property
    def place(self) -> int | None:
        """Of the strongest conclusion that explains a death; None if there is none."""
        return next((place for place, item in enumerate(self.conclusions) if _is_cause(item)), None)

    @property
    def best(self) -> Conclusion | None:
        """That conclusion."""
        return self.conclusions[self.place] if self.place is not None else None

    @cached_property
    def words(self) -> Description | None:
        """That conclusion in words, which the verdict and its finding share."""
        return _described(self.job, self.best) if self.best is not None else None


def job_view(job: Job, clock: RunClock) -> JobView:
    """The processes with everything known about them, and the order of their deaths."""
    senders = recorded_senders(job.processes)
    views = tuple(_view(job, index, clock, senders) for index in range(len(job.processes)))
    deaths = find_deaths(views)
    suspects = [death.view.index for death in deaths if death.primary is not False and _is_light(death.view)]
    if suspects:
        job = in_full(job, suspects[:CLOSELY])
        closer = {index: _view(job, index, clock, senders) for index in suspects[:CLOSELY]}
        views = tuple(closer.get(view.index, view) for view in views)
        deaths = find_deaths(views)
    matches = match_job(job)
    return JobView(job, views, deaths, matches=matches, waiting=find_waiting(job, matches))


def _view(job: Job, index: int, clock: RunClock, senders: Mapping[int, tuple[RecordedSender, ...]]) -> ProcessView:
    process = job.processes[index]
    return build_view(index, process, clock, senders.get(index, ()), _seen(job, process), _killed_for(job, process))


def _seen(job: Job, process: Process) -> SeenProcess | None:
    """What its launcher saw of it."""
    launcher = job.launcher_of(process.snapshot)
    witness = launcher.witness if launcher is not None else None
    return witness.process(process.snapshot.pid, process.snapshot.start_ticks) if witness is not None else None


def _killed_for(job: Job, process: Process) -> str | None:
    """Why its launcher killed it, where it did."""
    launcher = job.launcher_of(process.snapshot)
    is_killed = process.signal == SIGKILL and launcher is not None and process.snapshot.pid in launcher.killed
    return launcher.killed_for if launcher is not None and is_killed else None


def _unread(job: JobView) -> list[ProcessView]:
    """Suspects that were read partially, because their recordings cannot be reached."""
    return [death.view for death in job.deaths if death.primary is not False and _is_light(death.view)][:CLOSELY]


def _is_light(view: ProcessView) -> bool:
    return view.process.snapshot.light


def _processes(job: Job, attempts: Sequence[JobView]) -> list[r.ProcessReport]:
    """All processes in the job's order, each as its own attempt judged it; the last one has those of none."""
    reports = {}
    kept = kept_per_process(len(job.processes))
    for attempt in attempts:
        deaths = {death.view.index: death for death in attempt.deaths}
        sent = sent_states(attempt)
        for view in attempt.views:
            reports[_identity(view.process)] = process_report(
                view,
                death=deaths.get(view.index),
                gpu_core=gpu_core_report(attempt.job, view),
                timeline=timeline(view, kept, sent),
                collectives=received_states(view, sent),
            )
    return [reports[_identity(process)] for process in job.processes]


def _identity(process: Process) -> tuple[str, str, int, int]:
    """What one process has in all attempts; those without a recording have the path of another one."""
    box = process.snapshot
    return (box.path, box.host, box.pid, box.created_mono_ns)


def conclude(job: JobView) -> Concluded:
    """All rules in their order; what is about the first death comes first, then by confidence; circumstances last."""
    conclusions: list[Conclusion] = []
    checked: list[r.Checked] = []
    for rule in RULES:
        explained = frozenset(view.index for item in conclusions if _is_cause(item) for view in item[1].views)
        outcome = rule.check(replace(job, explained=explained))
        if isinstance(outcome, NoFinding):
            checked.append(r.Checked(id=rule.id, result=outcome.result, why=outcome.why))
            continue
        for judgement in outcome:
            conclusions.append((rule, judgement))
            job = _with_cause(job, judgement)
    return Concluded(job, sorted(conclusions, key=lambda item: _weight(job, item)), checked)


def _with_cause(job: JobView, judgement: AnyJudgement) -> JobView:
    """The job with the deaths that a finding of another process's or of no process's doing explains: consequences."""
    reasons = {view.index: why for view, why in judgement.explains}
    if not judgement.leads or not reasons:
        return job
    culprits = {view.index for view in judgement.views}
    deaths = []
    for death in job.deaths:
        index = death.view.index
        if index in reasons and (death.primary is not False or index in culprits):
            why, mine = reasons[index], index in culprits
            death = structs.replace(death, primary=False, kind=WhyKind.FINDING, why=why, by_finding=mine)
        deaths.append(death)
    return replace(job, deaths=tuple(deaths))


def _is_cause(item: Conclusion) -> bool:
    """Whether it explains a death; the order of deaths and mere circumstances do not."""
    rule, judgement = item
    return rule.id != ORDER_RULE and not judgement.accompanies


def _weight(job: JobView, item: Conclusion) -> tuple[bool, bool, bool, bool, int]:
    rule, judgement = item
    primary = {death.view.index for death in job.deaths if death.primary}
    about_primary = any(view.index in primary for view in judgement.views)
    confidence = CONFIDENCES.index(judgement.confidence)
    return rule.id == ORDER_RULE, judgement.accompanies, not judgement.leads, not about_primary, confidence


def _findings(concluded: Concluded) -> list[r.Finding]:
    """In order; those that explain the verdict's fault in another way are marked, as a process faults once."""
    best, found = concluded.best, []
    for item in concluded.conclusions:
        words = _finding(concluded, item)
        same = best is not None and item is not best and _is_same_fault(item, best)
        found.append(msgspec.structs.replace(words, same_fault=True) if same else words)
    return found


def _is_same_fault(item: Conclusion, best: Conclusion) -> bool:
    if not isinstance(item[0], FaultRule) or not isinstance(best[0], FaultRule) or not _is_cause(item):
        return False
    told = {view.index for view in best[1].views}
    return all(view.index in told for view in item[1].views)


def _described(job: JobView, item: Conclusion) -> Description:
    return described(job, *item, is_cause=_is_cause(item))


def _finding(concluded: Concluded, item: Conclusion) -> r.Finding:
    words = concluded.words if item is concluded.best else None
    return finding(item[0].id, item[1], words if words is not None else _described(concluded.job, item))


def _with_code(verdict: r.Verdict, concluded: Concluded) -> r.Verdict:
    best, words = concluded.best, concluded.words
    if best is None or words is None:
        return verdict
    code = code_behind(best[1], words)
    return msgspec.structs.replace(verdict, code=code) if code else verdict


def _alternatives(concluded: Concluded, findings: Sequence[r.Finding]) -> list[r.Alternative]:
    best = concluded.best
    return alternatives(concluded.job, best, findings, concluded.checked) if best is not None else []


def _verdict(concluded: Concluded, attempt: int | None) -> r.Verdict:
    """What died first, else a plain word on why there is none."""
    best = concluded.best
    if best is None:
        return msgspec.structs.replace(no_cause(concluded.job), attempt=attempt)
    judgement, words = best[1], _finding(concluded, best)
    first = judgement.views[0].process
    return r.Verdict(
        class_=judgement.verdict_class,
        confidence=judgement.confidence if judgement.verdict_class != "unknown" else "unknown",
        rank=None if judgement.undecided or first.role != "rank" else first.rank,
        pid=None if judgement.undecided else first.snapshot.pid,
        summary=words.summary,
        advice=words.advice,
        evidence=words.evidence,
        facts=words.facts,
        quotes_exception=words.quotes_exception,
        finding=concluded.place,
        attempt=attempt,
    )
