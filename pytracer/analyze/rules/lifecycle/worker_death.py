"""worker-death: a rank reports that one of its DataLoader workers died.

What: "DataLoader worker (pid ...) exited unexpectedly" or "is killed by signal": the rank only noticed. Where the
worker's own record shows how it died, that is the cause, and this accompanies it.

Why it happens: the worker crashed in the dataset's code, was killed for memory, or found no room in /dev/shm.

What to do: look at the worker's own death; without its record, run with num_workers=0 to see the error in the rank.

How it can be wrong: a worker that vanished without a record leaves the signal's name in the message at best.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytracer.analyze.naming import introduction, name_words, subject_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import Death, JobView, ProcessView

_DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (exited unexpectedly|is killed by signal: [^.]+)")


@dataclass(frozen=True)
class _Report:
    """A rank's message about its worker, and that worker's own death, if it is recorded."""

    pids: str
    fate: str
    died: Death | None


class WorkerDeath:
    """Fires for ranks whose exception speaks of a dead DataLoader worker."""

    id = "worker-death"
    needs = ("EXCEPTION", "WORKER")

    def check(self, job: JobView) -> tuple[Judgement[_Report], ...] | NoFinding:
        """One judgement per rank."""
        judged = (_judge(job, death.view) for death in job.deaths)
        found = tuple(item for item in judged if item is not None)
        return found or not_found("no rank reports the death of a DataLoader worker")

    def describe(self, job: JobView, judgement: Judgement[_Report]) -> Description:
        """See Rule."""
        report = judgement.found
        if report.died is not None:
            return Description(
                f"{introduction(judgement.views)} raised because {subject_words([report.died.view])} had died "
                f"({report.died.what}): a consequence.",
                [],
                "Look at the worker's own death.",
            )
        return Description(
            f"A DataLoader worker of {name_words(judgement.views)} (pid {report.pids}) {report.fate}.",
            [],
            "Run with num_workers=0 to see the error in the rank itself; look at memory and /dev/shm.",
            ["the worker's own record: it was not traced, or left none of its end"],
        )


def _judge(job: JobView, view: ProcessView) -> Judgement[_Report] | None:
    match = _DIED.search((view.exception.message if view.exception else None) or "")
    if match is None or not view.raised:
        return None
    pids = {int(word) for word in re.findall(r"\d+", match[1])}
    host = _host(view)
    died = next((d for d in job.deaths if d.view.process.snapshot.pid in pids and _host(d.view) == host), None)
    report = _Report(match[1].strip(), match[2].strip(), died)
    if died is not None:
        return Judgement("python-exception", "certain", (view,), report, accompanies=True)
    return Judgement("unknown", "likely", (view,), report)


def _host(view: ProcessView) -> str:
    return view.process.snapshot.host
