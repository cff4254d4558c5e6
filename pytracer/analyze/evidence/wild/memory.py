"""Explanations by a tensor's memory: it ends before what the sizes reach, or what lies beside it is overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.heap.behind_storage import Overwritten, overwritten
from pytracer.analyze.evidence.heap.beyond_storage import BeyondStorage, beyond_advice, beyond_storage
from pytracer.analyze.evidence.heap.heap_suspects import beside_advice
from pytracer.analyze.evidence.operators.state_sizes import unfit_state
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class MissingMemory(Explanation):
    """A tensor whose storage ends before the address, which its sizes reach."""

    verdict_class = "out-of-bounds"
    beyond: BeyondStorage

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.beyond.summary}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return beyond_advice(view, self.beyond)


@dataclass(frozen=True)
class OverwrittenMemory(Explanation):
    """An object on the heap, or what it points at, was overwritten, as was the memory beside a tensor."""

    verdict_class = "heap-corruption"
    beside: Overwritten

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        state = unfit_state(view)  # what was written past
        return f": {state.summary if state is not None else self.beside.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (address, self.beside.evidence)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return beside_advice(view, self.beside)


def missing_memory(view: ProcessView) -> MissingMemory | None:
    """None where the address is not in what such a tensor lacks."""
    place, beyond = view.place, beyond_storage(view)
    if place is None or beyond is None:
        return None
    reach = range(beyond.tensor.base + beyond.nbytes, beyond.tensor.base + beyond.needed)
    return MissingMemory(beyond) if place.addr in reach else None


def overwritten_memory(view: ProcessView) -> OverwrittenMemory | None:
    """None where the handler found the heap whole."""
    beside = overwritten(view)
    return OverwrittenMemory(beside) if beside is not None else None
