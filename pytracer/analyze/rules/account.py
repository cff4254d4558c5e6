"""What the rules about collectives share: which deaths a finding accounts for, and why they may not apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytracer.analyze.collectives.absent_ranks import was_finished_off
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.collectives.matching import STOOD_NS, records_collectives
from pytracer.analyze.deaths.attribution import is_symptom
from pytracer.analyze.evidence.ends.sent_signals import last_request, obeyed
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGQUIT, SIGTERM
from pytracer.analyze.rules.base import F, Judgement, NoFinding, cannot_decide, not_found
from pytracer.analyze.view import Death, JobView, ProcessView

_OUTSIDE = (SIGTERM, SIGINT, SIGHUP, SIGQUIT)


def account(
    job: JobView,
    item: Judgement[F],
    why: str,
    did: Mapping[int, str],
    *,
    waited_ns: int = 0,
    stood_ns: int = STOOD_NS,
    ends: bool = False,
    absent: Sequence[ProcessView] = (),
) -> Judgement[F]:
    """The judgement, with the deaths that it accounts for; it leads when these are all there are.

    `why` is what the others died of, `did` what each culprit did, by rank; empty when all are alike. After an earlier
    cause, or beside a death of another nature, it only accompanies. `ends`: the culprits' own ends, whatever they were,
    came after what they did. `waited_ns`: how long they had waited in it; whoever ends a job that has waited for
    `stood_ns` ends a hang. `absent`: ranks that ended after it, or normally, and are not to blame.
    """
    was_told = any(launcher.killed_for is not None for launcher in job.job.launchers)
    stood = waited_ns >= (1 if was_told else stood_ns)
    culprits = {view.index for view in (*(item.views if ends else ()), *absent)}
    suspects = [death for death in job.deaths if death.primary is not False]
    mine = [
        death
        for death in suspects
        if death.view.index in culprits or is_symptom(death) or (stood and _from_outside(death))
    ]
    if _is_settled(job) or len(mine) < len(suspects):
        return replace(item, accompanies=True)
    views = {death.view.index: (death.view, why) for death in mine}
    for view in item.views:
        words = did.get(view.process.rank, "") if view.process.rank is not None and did else why
        if words:
            views[view.index] = (view, words)
    return replace(item, leads=True, explains=tuple(views.values()))


def nothing_to_compare(job: JobView) -> NoFinding | None:
    """Why rules about collectives do not apply; None when there are groups."""
    if job.matches.groups:
        return None
    blind = [process.rank for process in job.job.ranks if not records_collectives(process) and process.rank is not None]
    if blind:
        return cannot_decide(f"the collectives of {span_words(blind)} were not recorded")
    return not_found("no process group ran a collective")


def _is_settled(job: JobView) -> bool:
    """Whether an earlier finding has accounted for all deaths."""
    return bool(job.deaths) and not job.suspects


def _from_outside(death: Death) -> bool:
    if death.nature in ("exit", "abort") and obeyed(death.view):  # Ray's driver aborts on its way out
        return True
    if death.nature == "vanished" and last_request(death.view) is not None:
        return True
    if was_finished_off(death.view):
        return True
    return death.nature == "interrupt" or (death.nature == "sent" and death.view.process.signal in _OUTSIDE)
