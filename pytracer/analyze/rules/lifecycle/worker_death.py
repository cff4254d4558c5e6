"""worker-death: a rank reports that one of its DataLoader workers died.

What: "DataLoader worker (pid ...) exited unexpectedly" or "is killed by signal", or an EOFError or the like below a
queue or pipe of multiprocessing: the process only noticed. Where the other one's own record shows how it died, that is
the cause, and this accompanies it.

Why it happens: the worker crashed in the dataset's code, was killed for memory, or found no room in /dev/shm.

What to do: look at the worker's own death; without its record, run with num_workers=0 to see the error in the rank.

How it can be wrong: a worker that vanished without a record leaves the signal's name in the message at best.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.naming import introduction, name_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import Death, JobView, WhyKind
from pytracer.report.job import Confidence

_DIED = Pattern(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (exited unexpectedly|is killed by signal: [^.]+)")


class _Report(msgspec.Struct, frozen=True):
    """What a process noticed of another one, and that one's own death, if it is recorded."""

    pids: str
    fate: str
    died: Death | None


class WorkerDeath:
    """Fires for processes whose exception speaks of a dead DataLoader worker, or of a connection to a dead process."""

    id = "worker-death"
    needs = ("EXCEPTION", "WORKER")

    def check(self, job: JobView) -> tuple[Judgement[_Report], ...] | NoFinding:
        """One judgement per rank."""
        judged = (_judge(job, death) for death in job.deaths)
        found = tuple(item for item in judged if item is not None)
        return found or not_found("no rank reports the death of a DataLoader worker")

    def describe(self, job: JobView, judgement: Judgement[_Report]) -> Description:
        """See Rule."""
        report = judgement.found
        if report.died is not None:
            return Description(
                f"{introduction(judgement.views)} raised because {name_words([report.died.view])} had died "
                f"({report.died.what}): a consequence.",
                [],
                f"Look at the {_kind(report.died)}'s own death.",
            )
        return Description(
            f"A DataLoader worker of {name_words(judgement.views)} (pid {report.pids}) {report.fate}.",
            [],
            "Run with num_workers=0 to see the error in the rank itself; look at memory and /dev/shm.",
            ["the worker's own record: it was not traced, or left none of its end"],
        )


def _kind(death: Death) -> str:
    return "worker" if death.view.process.role == "dataloader-worker" else "process"


def _judge(job: JobView, death: Death) -> Judgement[_Report] | None:
    view = death.view
    if not view.raised:
        return None
    if death.of is not None:
        died = next(item for item in job.deaths if item.view.index == death.of)
        report = _Report(str(died.view.process.snapshot.pid), died.what, died)
        sure: Confidence = "certain" if death.kind is WhyKind.REPORTED else "likely"  # that one names the pid
        return Judgement("python-exception", sure, (view,), report, accompanies=True)
    match = _DIED.search((view.exception.message if view.exception else None) or "")
    if match is None:
        return None
    return Judgement("unknown", "likely", (view,), _Report(match[1].strip(), match[2].strip(), None))
