"""served-lock: a rank waits in a collective inside of a lock that a remote call of the missing rank needs.

What: one rank called a collective inside of `with lock:`, and waited there. The rank that is missing in it waited for a
remote call (torch.distributed.rpc), which a thread of the first one runs: it stood at a line that takes the same lock.

Why it happens: remote calls run on threads of the called rank, beside its own work. A lock keeps them apart, and a
collective inside of it waits for a rank that may be waiting for just such a call.

What to do: call the collective outside of the lock.

How it can be wrong: locks are told apart by their names in the source; two of one name in two objects look alike.
"""

from __future__ import annotations

from pytracer._text import capital
from pytracer.analyze.collectives.absent_ranks import Absence, find_absences, last_seen
from pytracer.analyze.collectives.served_locks import ServedLock, served_lock
from pytracer.analyze.deaths.attribution import symptom_evidence, views_of
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView


class ServedLockRule:
    """Fires where the threads of both ranks show the circle."""

    id = "served-lock"
    needs = ("COLLECTIVES", "GROUP", "python_stack")

    def check(self, job: JobView) -> tuple[Judgement[ServedLock], ...] | NoFinding:
        """One judgement per circle."""
        found = [(item, lock) for item in find_absences(job) if (lock := served_lock(item, job.views)) is not None]
        if found:
            return tuple(_judge(job, item, lock) for item, lock in found)
        return nothing_to_compare(job) or not_found("no rank held a lock in a collective that a remote call waited for")

    def describe(self, job: JobView, judgement: Judgement[ServedLock]) -> Description:
        """See Rule."""
        found = judgement.found
        ranks = f"ranks {min(found.rank, found.absent)} and {max(found.rank, found.absent)}"
        return Description(
            f"{capital(ranks)} wait for each other: {found.words}.",
            [found.evidence, *(last_seen(view) for view in judgement.views), *symptom_evidence(job)],
            found.advice,
            has_place=True,
            line=found.at,
        )


def _judge(job: JobView, item: Absence, lock: ServedLock) -> Judgement[ServedLock]:
    views = tuple(views_of(job, sorted((lock.rank, lock.absent))))
    judgement = Judgement("hang", "likely", views, lock, undecided=True)
    return account(job, judgement, "waited in a cycle", {}, waited_ns=item.waited_ns, ends=True)
