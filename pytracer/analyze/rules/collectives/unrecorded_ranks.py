"""unrecorded-ranks: all ranks that were recorded only noticed that a peer was gone, and of some ranks there is nothing.

What: every death of a rank is an exception about a lost or silent peer, and the job has ranks without a recording.

Why it happens: a node, a switch or a power supply failed, and took the recordings with it; or the recordings of a node
are elsewhere: each node has a run directory or a digest of its own.

What to do: find the nodes of these ranks, what ended them, and what they recorded.

How it can be wrong: the network between the recorded ranks may have failed while, for another reason, recordings are
missing. What is not recorded proves nothing, so the class stays unknown.
"""

from __future__ import annotations

import msgspec

from pytracer._text import capital, count_words
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.deaths.attribution import symptom_evidence
from pytracer.analyze.deaths.peer_errors import peer_gone
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView
from pytracer.report.job import Evidence


class _Unrecorded(msgspec.Struct, frozen=True):
    """Ranks without a recording, and those that noticed; `gone`: a connection was closed, not only silent."""

    ranks: tuple[int, ...]
    noticed: tuple[int, ...]
    gone: bool


class UnrecordedRanks:
    """Fires when nothing that was recorded ended the job."""

    id = "unrecorded-ranks"
    needs = ("RANK", "EXCEPTION")

    def check(self, job: JobView) -> tuple[Judgement[_Unrecorded], ...] | NoFinding:
        """One judgement; it explains all deaths that no other finding explains, or there is none."""
        missing = job.job.unrecorded_ranks
        if not missing:
            return not_found("every rank of the job was recorded")
        suspects = [death for death in job.deaths if death.primary is not False]
        noticed = [death for death in suspects if death.lost_peer and death.view.process.role == "rank"]
        if not noticed or len(noticed) < len(suspects):
            return not_found(f"{span_words(missing)} left no recording, but what was recorded shows a cause")
        views = tuple(death.view for death in noticed)
        if not any(view.process.snapshot.collectives for view in views):
            return not_found(f"{span_words(missing)} left no recording; the others never reached them")
        ranks = tuple(sorted(view.process.rank for view in views if view.process.rank is not None))
        gone = any(peer_gone(view) for view in views)
        why = f"lost {span_words(missing)}, of which nothing was recorded"
        judgement = Judgement(
            "unknown", "likely", views, _Unrecorded(missing, ranks, gone), leads=True, undecided=True,
            explains=tuple((view, why) for view in views),
        )  # fmt: skip
        return (judgement,)

    def describe(self, job: JobView, judgement: Judgement[_Unrecorded]) -> Description:
        """See Rule."""
        found = judgement.found
        kind = "digest" if job.job.digests is not None else "recording"
        many = len(found.ranks) > 1
        did = "ended" if found.gone else "ended or stood still"
        how = "lost a connection to a peer" if found.gone else "waited in vain for a peer"
        others = "the other rank" if len(found.noticed) == 1 else f"the {len(found.noticed)} ranks that died"
        return Description(
            f"{capital(span_words(found.ranks))} probably {did} first: {'they are' if many else 'it is'} in no {kind}, "
            f"and {others} only {how}.",
            [
                Evidence(
                    "rank-state",
                    f"no recorded rank died of anything of its own: {count_words(len(found.noticed), 'rank')} noticed "
                    f"a lost peer",
                    ranks=list(found.noticed),
                ),
                *symptom_evidence(job),
            ],
            f"Ask the scheduler for the node{'s' * many} of {span_words(found.ranks)}: what went down (power, network, "
            f"host), or who ended the processes. If there are {kind}s of {'them' if many else 'it'}, add them to this "
            f"command.",
            [f"how {span_words(found.ranks)} ended"],
        )
