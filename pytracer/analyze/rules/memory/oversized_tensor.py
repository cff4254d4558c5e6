"""oversized-tensor: a tensor that claims more memory than there is.

What: the fault address lies in a live storage, but behind the end of the heap in which that storage begins. The heap
only grows and shrinks at its end; nothing in the middle of the storage was unmapped.

Why it happens: the tensor was made of memory of others with wrong sizes or strides: `numpy` `as_strided` and
`from_numpy`, `torch.from_blob`, DLPack, `frombuffer` of a C array.

What to do: compare sizes, strides and dtype with the memory that the tensor was made of.

How it can be wrong: a heap whose end was released to the system while the tensor was live looks the same; C
libraries do that only with memory that was freed.
"""

from __future__ import annotations

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.overrun import heap_behind
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.evidence.variables import variable_of
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class OversizedTensor(StorageFaultRule[int]):
    """Fires for an address in a live storage that begins in the heap and reaches beyond its end. Found: bytes there."""

    id = "oversized-tensor"
    needs = ("crash", "storages", "mappings")
    absent = "no fault address lay in a storage that reaches beyond the heap it begins in"

    def judge(self, view: ProcessView) -> Judgement[int] | None:
        """See FaultRule."""
        place, crash = view.place, view.crash
        if place is None or crash is None or place.kind != "in-storage" or place.storage is None:
            return None
        there = heap_behind(crash, place.storage, place.addr)
        return Judgement("out-of-bounds", "likely", (view,), there) if there is not None else None

    def describe(self, job: JobView, judgement: Judgement[int]) -> Description:
        """See FaultRule."""
        view, storage = judgement.views[0], judgement.views[0].storage
        claimed = size_words(storage.nbytes or 0) if storage is not None else "more"
        made = (storage.allocated.caller or storage.allocated.python) if storage and storage.allocated else None
        base = view.place.storage.base if view.place is not None and view.place.storage is not None else 0
        name = variable_of(view, base) or "a tensor"
        at = f" made at {place_words(made)}" if made else ""
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} out of bounds{in_function(view)}: {name}{at} claims "
            f"{claimed}, of which at most {size_words(judgement.found)} exist.",
            [
                fault_evidence(view),
                storage_evidence(view),
                Evidence(
                    "mapping",
                    "the storage begins in the heap, and the heap ends before the address",
                    base=hex_addr(base),
                    nbytes=judgement.found,
                ),
                allocation_evidence(storage, "made"),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            "Compare sizes, strides and dtype with the memory that the tensor was made of (as_strided, from_numpy, "
            "from_blob, DLPack): they describe more than there is.",
            ["how large that memory really was"],
        )
