"""polled-work: a rank polls is_completed() of a send or receive of gloo, which only wait() completes.

What: the rank was in a loop that ends only by is_completed() of the Work of isend(), irecv() or batch_isend_irecv(),
long after the other rank had made its call. The message has been begun on both sides; the loop does not see it.

Why it happens: gloo finishes the Work of a send or receive in its wait() (ProcessGroupGloo::SendWork, RecvWork), and
is_completed() reads whether it is finished. With NCCL, and for gloo's collectives, is_completed() can be polled.

What to do: call wait() in place of the loop; or let a thread wait, and ask whether that is done.

How it can be wrong: the loop may have been in its first round, in a line that takes as long; it does not end either.
"""

from __future__ import annotations

from pytracer._text import capital, time_words
from pytracer.analyze.collectives.absent_ranks import last_seen, wait_words
from pytracer.analyze.collectives.description import at_place, span_words
from pytracer.analyze.collectives.polled_works import PolledWork, polled_works
from pytracer.analyze.deaths.attribution import symptom_evidence
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class PolledWorkRule:
    """Fires for ranks in a loop that only is_completed() of a send or receive of gloo ends."""

    id = "polled-work"
    needs = ("COLLECTIVES", "GROUP", "python_stack")

    def check(self, job: JobView) -> tuple[Judgement[PolledWork], ...] | NoFinding:
        """One judgement per loop, about all ranks in it."""
        loops: dict[tuple[str | None, int | None], list[PolledWork]] = {}
        for found in polled_works(job):
            loops.setdefault((found.at.file, found.at.line), []).append(found)
        if loops:
            return tuple(_judge(job, items) for items in loops.values())
        return nothing_to_compare(job) or not_found("no rank polled the Work of a send or receive of gloo")

    def describe(self, job: JobView, judgement: Judgement[PolledWork]) -> Description:
        """See Rule."""
        found = judgement.found
        ranks = _ranks(judgement.views)
        leave = "never leaves" if len(ranks) == 1 else "never leave"
        others = [item for item in job.waiting.waits if set(item.targets) & {*ranks} and not {*item.waiters} & {*ranks}]
        also = f"; {wait_words(others[0])}" if others else ""
        return Description(
            f"{capital(span_words(ranks))} {leave} the loop {found.loop_words}: {found.words}{also}.",
            [_both(found), *(last_seen(view) for view in judgement.views[:2]), *symptom_evidence(job)],
            found.advice,
            has_place=True,
            line=found.at,
        )


def _both(found: PolledWork) -> Evidence:
    """That both sides had made their call, and for how long."""
    rank, call = found.view.process.rank, found.call
    return Evidence(
        "collective-call",
        f"rank {rank} had called {call.op} #{call.sequence_nr}, and rank {found.peer.process.rank} its counterpart"
        f"{at_place(found.met)}, {time_words(found.waited_ns)} before the end of rank {rank}",
        rank=rank,
        group=call.group,
        op=call.op,
        sequence_nr=call.sequence_nr,
        python=found.at,
    )


def _ranks(views: tuple[ProcessView, ...]) -> list[int]:
    return [view.process.rank for view in views if view.process.rank is not None]


def _judge(job: JobView, items: list[PolledWork]) -> Judgement[PolledWork]:
    views = tuple(item.view for item in items)
    judgement = Judgement("hang", "certain", views, items[0])
    did = dict.fromkeys(_ranks(views), "polled a Work that only wait() completes")
    why = f"waited for {span_words(_ranks(views))}"
    return account(job, judgement, why, did, waited_ns=items[0].waited_ns, ends=True)
