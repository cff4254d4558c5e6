"""conditional-collective: one rank called a collective from a line from which the other ranks never called one.

What: a rank waited in a collective for ranks that had ended well, with as many optimizer steps as it; and the line that
called it never called a collective on them.

Why it happens: something that communicates is called below `if rank == 0`: the forward of a DistributedDataParallel
module in a validation loop (it broadcasts buffers), a metric that synchronises, a checkpoint that gathers.

What to do: call it on all ranks, or call what does not communicate: `model.module(...)` instead of `model(...)` for a
DistributedDataParallel model.

How it can be wrong: the other ranks may have skipped the line by an exception that they handled.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import capital
from pytracer.analyze.collectives.absent_ranks import Absence, find_absences, last_seen
from pytracer.analyze.collectives.conditional import is_conditional, same_step
from pytracer.analyze.collectives.description import at_place, span_words
from pytracer.analyze.collectives.exchanges import exchange_with_any
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.parted_branches import one_rank_way
from pytracer.analyze.collectives.rank_branches import branch_advice, branch_head
from pytracer.analyze.deaths.attribution import symptom_evidence, views_of
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Buckets
from pytracer.report.job import Evidence

_ADVICE = (
    "What led one rank there alone is not recorded: print on all ranks what the branches ask that lead to the line. "
    "Then call it on all ranks, or on one rank only what does not communicate."
)
_UNWRAPPED = " The forward of a DistributedDataParallel model communicates, too: call `model.module(...)` there."


class ConditionalCollective:
    """Fires for a collective whose line never called one on the ranks that it waited for, which ended well."""

    id = "conditional-collective"
    needs = ("COLLECTIVES", "GROUP", "status")

    def check(self, job: JobView) -> tuple[Judgement[Absence], ...] | NoFinding:
        """One judgement per collective."""
        found = tuple(_judge(job, item) for item in find_absences(job) if is_conditional(job, item))
        return found or not_found("no collective was called from a line that only some ranks reached")

    def describe(self, job: JobView, judgement: Judgement[Absence]) -> Description:
        """See Rule."""
        item = judgement.found
        waiters, absent, place = span_words(item.wait.waiters), span_words(item.ranks), at_place(item.wait.call)
        callers = views_of(job, item.wait.waiters[:1])
        inside = library_call(callers[0], item.wait.call) if callers else None
        below = branch_advice(callers[0], item.wait.call, inside) if callers else None
        asked = _exchanged(callers, item) or one_rank_way(callers[0], item.wait.call) if callers else None
        head = branch_head(callers[0], item.wait.call, below) if below is not None else None
        within = f" in {inside}()" if inside is not None else ""
        unwrapped = _UNWRAPPED if _may_be_ddp(item, inside) and _has_ddp(callers) else ""
        tail = f"; {asked[0]}" if asked is not None and asked[0] else f"; the call is {head}" if head else ""
        also = "" if len(item.ranks) == 1 else "any of "
        return Description(
            f"{capital(waiters)} called {item.where}{within}{place}, a line from which {also}{absent} never called "
            f"one, and waited in vain: {absent} had finished{tail}.",
            [
                Evidence(
                    "rank-state",
                    f"{absent} and {waiters} had made the same number of steps",
                    ranks=[*item.ranks, *item.wait.waiters],
                    step=item.views[0].step,
                )
                if same_step(job, item)
                else None,
                *(last_seen(view) for view in item.views[:2]),
                *symptom_evidence(job),
            ],
            asked[1] if asked is not None else f"{below if below is not None else _ADVICE}{unwrapped}",
            [f"whether {absent} should have called it, too" if asked is None else None],
        )


def _exchanged(callers: Sequence[ProcessView], item: Absence) -> tuple[str | None, str] | None:
    """The other part of an exchange, which the absent rank calls from a line of its own."""
    found = exchange_with_any(callers[0], item.wait.call, item.views)
    return (found.subject, found.advice) if found is not None else None


def _may_be_ddp(item: Absence, inside: str | None) -> bool:
    """Whether DDP may have called it: not a barrier, nor what the line itself calls."""
    call = item.wait.call
    return inside is None and (call.python is None or not call.python.file.endswith("/distributed_c10d.py"))


def _has_ddp(views: Sequence[ProcessView]) -> bool:
    """Whether the model of a rank was wrapped."""
    return any(next(iter(view.process.snapshot.recorded(Buckets)), None) is not None for view in views)


def _judge(job: JobView, item: Absence) -> Judgement[Absence]:
    waiters = tuple(views_of(job, item.wait.waiters))
    what = f"{item.wait.call.op} #{item.wait.call.sequence_nr}"
    judgement = Judgement("collective-mismatch", "likely", waiters or item.views, item)
    did = dict.fromkeys(item.wait.waiters, f"called {what} from a line that other ranks did not reach")
    why = f"had finished when {span_words(item.wait.waiters)} called {what}"
    return account(job, judgement, why, did, waited_ns=item.waited_ns, absent=item.views)
