"""unchecked-view: a NumPy view that is larger than the memory it was made of.

What: the fault address lies in an array that numpy.lib.stride_tricks.as_strided() made, and behind or before the array
or tensor that this was made of.

Why it happens: as_strided() takes any shape and strides and checks neither. Strides are in bytes, as `x.strides` are:
with the size of an element once more, or that of another type, the last rows lie behind the memory. So they do where
more windows are asked for than fit, such as where `x.size` counts the elements of all dimensions and `x.strides[0]` is
a whole row.

What to do: correct the shape or the strides at the line that makes the view; sliding_window_view() checks.

How it can be wrong: the line that makes the view is found in the source. Where no variable held the view, its shape and
strides are computed from recorded arrays and numbers, and the finding is *likely*. Of a view of memory that may not be
accessed any more, it is *likely*, too. Where nothing on record is what the view was made of, the memory map has up to
where that memory reaches at most: the finding is *likely* where the source has the call, as the memory may have been
given back in part, and else *possible*, only of arrays whose dimensions overlap, which no slice of an array has.
Another order of the strides is named where the view would reach just as far as there is memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.address_space.stack_bounds import ran_over
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.own_code.unchecked_view import UncheckedView, unchecked_view
from pytracer.analyze.evidence.own_code.unowned_view import UnownedView, unowned_view
from pytracer.analyze.evidence.phrases import (
    access_verb,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
)
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class UncheckedViewRule(MemoryFaultRule[UncheckedView | UnownedView]):
    """Fires for an address in a view by as_strided(), outside of what the view was made of."""

    id = "unchecked-view"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[UncheckedView | UnownedView] | None:
        """See MemoryFaultRule."""
        if ran_over(view) or wild_jump(view) is not None:
            return None
        found = unchecked_view(view)
        if found is None:
            unowned = unowned_view(view)
            if unowned is None:
                return None
            return Judgement("out-of-bounds", "likely" if unowned.made is not None else "possible", (view,), unowned)
        sure = found.recorded and _is_mapped(view, found)
        return Judgement("out-of-bounds", "certain" if sure else "likely", (view,), found)

    def describe(self, job: JobView, judgement: Judgement[UncheckedView | UnownedView]) -> Description:
        """See MemoryFaultRule."""
        view, found = judgement.views[0], judgement.found
        if isinstance(found, UnownedView):
            return _of_unowned(judgement, found)
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} out of bounds{in_function(view)}: "
            f"{found.summary(view)}.",
            [
                fault_evidence(view),
                Evidence(
                    "tensor",
                    found.fact(view.place.addr if view.place is not None else 0),
                    tensor=found.name,
                    nbytes=found.owner.nbytes,
                    limit=found.reach,
                ),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            found.advice(view),
            [] if found.recorded else ["the view itself: no variable held it, its shape and strides are computed"],
            names_source=True,
            behind=Behind.of([], (found.file, found.line), found.rows, found.order),
            explained=True,
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no array of the line was made by as_strided() and reaches the fault address")


def _of_unowned(judgement: Judgement[UncheckedView | UnownedView], found: UnownedView) -> Description:
    """Of a view of memory whose size is not on record."""
    view = judgement.views[0]
    return Description(
        f"{introduction(judgement.views)} {access_verb(view)} out of bounds{in_function(view)}: {found.summary}.",
        [
            fault_evidence(view),
            Evidence(
                "tensor",
                found.fact(view.place.addr if view.place is not None else 0),
                tensor=found.array.expression,
                nbytes=found.there,
                limit=found.reach,
            ),
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        found.advice,
        ["how large that memory really was: no variable held what the view is made of"],
        names_source=found.made is not None,
        behind=Behind.of([], found),
        explained=found.made is not None,
    )


def _is_mapped(view: ProcessView, found: UncheckedView) -> bool:
    """Whether what the view was made of may be accessed, so that it was not freed."""
    mappings = view.crash.mappings if view.crash is not None else ()
    ends = [mapping_at(mappings, addr) for addr in (found.owner.data, found.owner.end - 1)]
    return all(item is not None and item.permissions.startswith("r") for item in ends)
