"""oversized-tensor: a tensor that claims more memory than there is.

What: the fault address lies in a live storage whose memory belongs to others, or begins in the heap. Its beginning is
there, and the memory ends, or refuses the access, before the address.

Why it happens: the tensor was made of memory of others with wrong sizes or strides: `numpy` `as_strided` and
`from_numpy`, `torch.from_blob`, DLPack, `frombuffer` of a C array.

Where that memory is of a bytearray, an `array` or a NumPy array that the program shrinks or grows, or may have, behind
the line that made the tensor, its sizes were right: the class is use-after-free, *likely*, and the line is named.
torch.frombuffer() compares sizes with the buffer, and does not keep it from being resized.

What to do: compare sizes, strides and dtype with the memory that the tensor was made of.

How it can be wrong: memory of which only the end was unmapped while the tensor lived looks the same; owners unmap what
they mapped as a whole, and C libraries give the end of the heap back only when it was freed.
"""

from __future__ import annotations

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.overrun import oversized_bytes
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.lifetime.resized_owner import ResizedOwner, resized_owner
from pytracer.analyze.evidence.lifetime.variables import variable_of
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class OversizedTensor(StorageFaultRule[int]):
    """Fires for an address in a live storage whose beginning is there and whose end is not. Found: bytes there."""

    id = "oversized-tensor"
    needs = ("crash", "storages", "mappings")
    absent = "no fault address lay in a storage that reaches beyond the memory it begins in"

    def judge(self, view: ProcessView) -> Judgement[int] | None:
        """See FaultRule."""
        place, crash = view.place, view.crash
        if place is None or crash is None or place.kind != "in-storage" or place.storage is None:
            return None
        there = oversized_bytes(crash, place)
        if there is None:
            return None
        shrunk = resized_owner(view, shrunk=True) is not None
        return Judgement("use-after-free" if shrunk else "out-of-bounds", "likely", (view,), there)

    def describe(self, job: JobView, judgement: Judgement[int]) -> Description:
        """See FaultRule."""
        view, storage = judgement.views[0], judgement.views[0].storage
        claimed = size_words(storage.nbytes or 0) if storage is not None else "more"
        made = storage.allocated.place if storage and storage.allocated else None
        base = view.place.storage.base if view.place is not None and view.place.storage is not None else 0
        name = variable_of(view, base) or "a tensor"
        at = f" made at {place_words(made)}" if made else ""
        resized = resized_owner(view, shrunk=True)
        if resized is not None:
            return _of_resized(judgement, resized, name)
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} out of bounds{in_function(view)}: {name}{at} claims "
            f"{claimed}, of which at most {size_words(judgement.found)} exist.",
            [
                fault_evidence(view),
                storage_evidence(view),
                Evidence(
                    "mapping",
                    "the memory is there from the beginning of the storage, and ends before the address",
                    base=hex_addr(base),
                    nbytes=judgement.found,
                ),
                allocation_evidence(storage, "made"),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            "Compare sizes, strides and dtype with the memory that the tensor was made of (as_strided, from_numpy, "
            "from_blob, DLPack): they describe more than there is. If they were right when it was made, its owner has "
            "shrunk the memory since, such as by ndarray.resize(refcheck=False) or realloc(): make the tensor again, "
            "or copy.",
            ["how large that memory really was"],
        )


def _of_resized(judgement: Judgement[int], resized: ResizedOwner, name: str) -> Description:
    """Of memory that its owner gave back while the tensor was in use: the sizes of the tensor were right."""
    view, storage = judgement.views[0], judgement.views[0].storage
    base = view.place.storage.base if view.place is not None and view.place.storage is not None else 0
    there = f"at most {size_words(judgement.found)} are there where the tensor's memory begins"
    return Description(
        f"{introduction(judgement.views)} {access_verb(view)} memory that is gone{in_function(view)}: {name} "
        f"{resized.summary}.",
        [
            fault_evidence(view),
            storage_evidence(view),
            Evidence("mapping", there, base=hex_addr(base), nbytes=judgement.found),
            allocation_evidence(storage, "made"),
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        resized.advice,
        ["which call resized it: that follows from the program's source"],
        behind=Behind.of([], resized),
    )
