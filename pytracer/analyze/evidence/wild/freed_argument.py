"""The start of a large block of malloc() that is gone, and the only argument of the line whose memory had ended."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.own_code.returned_address import PassedTemporary, ReturnedAddress, dangling_argument
from pytracer.analyze.evidence.wild.address import was_large_block
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence


@dataclass(frozen=True)
class FreedArgument(Explanation):
    """An array of NumPy, whose memory is not recorded."""

    verdict_class = "use-after-free"
    passed: ReturnedAddress | PassedTemporary

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.passed.summary}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.passed.advice


def freed_argument(view: ProcessView) -> FreedArgument | None:
    """None where another address may be meant, or C was not called by ctypes or cffi."""
    if not was_large_block(view) or not called_by_ctypes(view):
        return None
    passed = dangling_argument(view)
    return FreedArgument(passed) if passed is not None else None
