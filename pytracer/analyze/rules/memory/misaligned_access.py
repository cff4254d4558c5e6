"""misaligned-access: an instruction that needs an aligned address was given another one.

What: a vector load or store of the kind that the processor refuses unless the address is a multiple of its size
(movaps, vmovdqa, what _mm256_load_ps compiles to), at an address in mapped memory that is none. The tensor there is
named, with what makes it unaligned: where its view begins, or how far its rows lie apart.

Why it happens: torch aligns storages to 64 bytes and malloc() blocks to 16, but a slice (`x[1:]`), a row whose width is
no multiple, or an array over another buffer (np.frombuffer with an offset) begins anywhere. Code that was written with
aligned loads, or was compiled for aligned types, then works on some inputs only.

What to do: use the unaligned load or store (_mm256_loadu_ps), which costs nothing on aligned addresses; or pass a copy
that begins at an aligned address, with rows of a multiple of the size.

How it can be wrong: the processor reports no address for such a fault; it is computed from the instruction's registers.
A pointer that was overwritten and still leads into mapped memory looks the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import hex_addr
from pytracer.analyze.evidence.native.alignment import Unaligned, needed_alignment, unaligned
from pytracer.analyze.evidence.phrases import (
    access_verb,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class MisalignedAccess(MemoryFaultRule[Unaligned]):
    """Fires for a refused aligned load or store whose address is in mapped memory, and no multiple of its size."""

    id = "misaligned-access"
    needs = ("crash", "registers")

    def judge(self, view: ProcessView) -> Judgement[Unaligned] | None:
        """See MemoryFaultRule."""
        nbytes = needed_alignment(view)
        return Judgement("misaligned-access", "certain", (view,), unaligned(view, nbytes)) if nbytes else None

    def describe(self, job: JobView, judgement: Judgement[Unaligned]) -> Description:
        """See MemoryFaultRule."""
        view, found = judgement.views[0], judgement.found
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} {found.what}{in_function(view)} by an instruction "
            f"for addresses that are multiples of {found.nbytes}{found.why}.",
            [
                fault_evidence(view),
                Evidence(
                    "alignment",
                    f"the address is {found.behind} bytes behind a multiple of {found.nbytes}",
                    addr=hex_addr(view.place.addr) if view.place is not None else None,
                    nbytes=found.nbytes,
                    offset_bytes=found.behind,
                ),
                storage_evidence(view),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            found.advice,
            explained=True,
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no instruction that needs an aligned address was refused at another one")
