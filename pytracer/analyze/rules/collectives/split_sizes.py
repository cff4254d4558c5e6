"""split-sizes: in an all_to_all a rank got more from another one than it had room for.

What: gloo aborted a rank with "Received data size doesn't match expected size" while it stood in all_to_all or
all_to_all_single. Ranks may pass other sizes there, so that they are not compared.

Why it happens: `output_split_sizes` says how much a rank receives from each one, and must be what these send to it. A
rank that passes its own counts for both directions, or counts of another batch, expects other sizes.

What to do: exchange the counts first, by an all_to_all_single of an int64 tensor of them.

How it can be wrong: the message may belong to another call, where ranks are out of step.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.collectives.description import at_place, call_evidence, group_words
from pytracer.analyze.collectives.matching import UNFINISHED, GroupMatch
from pytracer.analyze.collectives.split_counts import same_counts
from pytracer.analyze.deaths.attribution import abort_words, symptom_evidence
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Evidence

_SIZES = Pattern(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_OPS = ("all_to_all", "all_to_all_single")
_EXCHANGE = (
    "What a rank receives must be what the others send to it. Exchange the counts first (all_to_all_single of an int64 "
    "tensor of them), pass what came as output_split_sizes, and make the output for its sum."
)


class _Split(msgspec.Struct, frozen=True):
    """The call of the rank that received more than it had room for, in bytes."""

    match: GroupMatch
    call: Collective
    got: int
    room: int


class SplitSizes:
    """Fires for gloo's abort over the size of a message in an all_to_all."""

    id = "split-sizes"
    needs = ("COLLECTIVES", "GROUP")

    def check(self, job: JobView) -> tuple[Judgement[_Split], ...] | NoFinding:
        """One judgement for the first rank."""
        for view in job.views:
            found = _find(job, view)
            if found is not None:
                judgement = Judgement[_Split]("collective-mismatch", "likely", (view,), found)
                name = f"{found.call.op} #{found.call.sequence_nr}"
                return (account(job, judgement, f"split sizes of {name} do not fit", {}, ends=True),)
        return nothing_to_compare(job) or not_found("no rank aborted over the size of a message in an all_to_all")

    def describe(self, job: JobView, judgement: Judgement[_Split]) -> Description:
        """See Rule."""
        view, found = judgement.views[0], judgement.found
        rank, call = view.process.rank or 0, found.call
        others = [other for other in found.match.ranks if other != rank]
        sender = f"rank {others[0]}" if len(others) == 1 else "another rank"
        got, room, unit = _in_rows(found)
        same = same_counts(view, call)
        why = f": {same.subject}" if same is not None else ""
        return Description(
            f"Rank {rank} got {got} {unit} from {sender} in {call.op} (collective {call.sequence_nr} of "
            f"{group_words(found.match)}){at_place(call)}, where it had asked for {room}: the ranks' split sizes do "
            f"not fit{why}.",
            [
                call_evidence(rank, call, found.match),
                Evidence(
                    "rank-state",
                    f"{capital(f'rank {rank}')} aborted, {abort_words(view)}, as the receiver of the larger message",
                    rank=rank,
                    pid=view.process.snapshot.pid,
                    text=abort_words(view),
                ),
                *symptom_evidence(job),
            ],
            f"{same.advice} {_EXCHANGE}" if same is not None else _EXCHANGE,
            [f"which of the ranks sent it: {len(others)} did"] if len(others) > 1 else [],
        )


def _find(job: JobView, view: ProcessView) -> _Split | None:
    message = (view.exception.message if view.exception is not None else None) or ""
    sizes = _SIZES.search(message) if abort_words(view) is not None else None
    opened = [item for item in view.process.snapshot.collectives if item.state in UNFINISHED]
    if sizes is None or len(opened) != 1 or opened[0].op not in _OPS:
        return None
    rank = view.process.rank
    match = next((item for item in job.matches.groups if item.name == opened[0].group and rank in item.ranks), None)
    return _Split(match, opened[0], int(sizes[1]), int(sizes[2])) if match is not None and not match.mismatch else None


def _in_rows(found: _Split) -> tuple[int, int, str]:
    """Of the first dimension, where both are whole rows of the tensor."""
    call = found.call
    row = call.nbytes // call.sizes[0] if call.nbytes and call.sizes and call.sizes[0] else 0
    if len(call.sizes) > 1 and row and not found.got % row and not found.room % row:
        return found.got // row, found.room // row, "rows"
    return found.got, found.room, "bytes"
