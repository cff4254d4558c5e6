"""A wild address that a thread of OpenMP took from behind a table that was made for fewer threads."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.per_thread_memory import PerThreadMemory, per_thread_memory
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence


@dataclass(frozen=True)
class ThreadTable(Explanation):
    """See PerThreadMemory: by the source of the library."""

    found: PerThreadMemory

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "possible"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


def thread_table(view: ProcessView) -> ThreadTable | None:
    """None where the failing function is no parallel region that indexes memory by its thread."""
    found = per_thread_memory(view)
    return ThreadTable(found) if found is not None else None
