"""A pointer beside a variable into which PyArg_ParseTuple() stored more than it has room for, by the C source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.parsed_arguments import ParsedArgument, parsed_argument
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class OverwrittenByParse(Explanation):
    """The pointer itself is not known: only that the failing line uses one which lies in the same frame."""

    names_source = True
    found: ParsedArgument

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return True

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self.found.evidence, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


def overwritten_by_parse(view: ProcessView) -> OverwrittenByParse | None:
    """None where each variable has room for what is stored into it."""
    found = parsed_argument(view)
    return OverwrittenByParse(found) if found is not None else None
