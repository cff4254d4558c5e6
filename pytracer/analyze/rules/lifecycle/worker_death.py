"""worker-death: a rank reports that one of its DataLoader workers died.

What: "DataLoader worker (pid ...) exited unexpectedly" or "is killed by signal": the rank only noticed. Where the
worker's own record says how it died, that is the cause, and this accompanies it.

Why it happens: the worker crashed in the dataset's code, was killed for memory, or found no room in /dev/shm.

What to do: look at the worker's own death; without its record, run with num_workers=0 to see the error in the rank.

How it can be wrong: a worker that vanished without a record leaves the signal's name in the message at best.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pytracer.analyze.view import Draft, JobView, Outcome, ProcessView, draft, not_found, subject_words

_DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (exited unexpectedly|is killed by signal: [^.]+)")


class WorkerDeath:
    """Fires for ranks whose exception speaks of a dead DataLoader worker."""

    id = "worker-death"
    needs = ("EXCEPTION", "WORKER")

    def examine(self, job: JobView) -> Outcome:
        """One finding per rank."""
        drafts = []
        for death in job.deaths:
            exception = death.view.exception
            match = _DIED.search((exception.message if exception else None) or "")
            if match is not None and death.view.raised:
                drafts.append(_explain(job, death.view, match))
        return Outcome(tuple(drafts)) if drafts else not_found("no rank reports the death of a DataLoader worker")


def _explain(job: JobView, view: ProcessView, match: re.Match[str]) -> Draft:
    pids = {int(word) for word in re.findall(r"\d+", match[1])}
    host = view.process.snapshot.host
    died = next((d for d in job.deaths if d.view.process.snapshot.pid in pids and _host(d.view) == host), None)
    if died is not None:
        who = subject_words([died.view])
        item = draft(
            WorkerDeath.id,
            "python-exception",
            "certain",
            [view],
            f"{subject_words([view])} raised because {who} had died ({died.what}): a consequence.",
            [],
            "Look at the worker's own death.",
        )
        return replace(item, accompanies=True)
    return draft(
        WorkerDeath.id,
        "unknown",
        "likely",
        [view],
        f"A DataLoader worker of {subject_words([view]).lower()} (pid {match[1].strip()}) {match[2].strip()}.",
        [],
        "Run with num_workers=0 to see the error in the rank itself; look at memory and /dev/shm.",
        ["the worker's own record: it was not traced, or left none of its end"],
    )


def _host(view: ProcessView) -> str:
    return view.process.snapshot.host
