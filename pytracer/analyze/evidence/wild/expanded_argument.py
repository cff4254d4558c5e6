"""An expanded tensor whose elements, if they lay in a row, would reach the address: native code counted them so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.expanded import Expanded, behind_evidence, expanded_behind
from pytracer.analyze.evidence.phrases import access_verb
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class ExpandedArgument(Explanation):
    """Where the address is near no storage: what lies behind the tensor's may have ended, as the heap does."""

    verdict_class = "out-of-bounds"
    tensor: Expanded

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return True

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.tensor.words}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (address, behind_evidence(view, self.tensor))

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.tensor.advice(access_verb(view) == "wrote")


def expanded_argument(view: ProcessView) -> ExpandedArgument | None:
    """Of the tensors whose address the failing line passes to native code of the program."""
    found = expanded_behind(view)
    return ExpandedArgument(found) if found is not None else None
