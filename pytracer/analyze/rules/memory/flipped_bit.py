"""flipped-bit: the wild address is one bit away from memory of the process.

What: an address that no process can have becomes one in a live storage or a writable mapping when a single one of its
upper bits is turned. It accompanies a verdict and is none itself; never more than possible.

Why it happens: defective memory, or code that marks pointers in their upper bits and forgot to take the mark off.

What to do: when it happens again on the same host and elsewhere not, check that host's memory.

How it can be wrong: garbage hits such an address by chance, the more easily the more memory is mapped. The lower 47
bits are not looked at.
"""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.evidence.circumstance import CircumstanceRule
from pytracer.analyze.view import Draft, ProcessView, draft, subject_words

_USER_BITS = 47  # x86-64 with four-level page tables: user addresses lie below 1 << 47


class FlippedBit(CircumstanceRule):
    """Fires for a non-canonical address with exactly one upper bit set."""

    id = "flipped-bit"
    needs = ("crash",)
    absent = "no fault address was one bit away from memory of the process"

    def consider(self, views: list[ProcessView]) -> Draft | None:
        """See CircumstanceRule."""
        view = views[0]
        place = view.place
        if place is None or place.kind != "non-canonical" or (place.addr >> _USER_BITS).bit_count() != 1:
            return None
        bit = place.addr.bit_length() - 1
        meant = view.space.describe(place.addr ^ 1 << bit)
        if meant.storage is None or meant.kind != "in-storage":
            if meant.mapping is None or "rw" not in meant.mapping.permissions:
                return None
            owner = meant.mapping.path or "anonymous memory"
        else:
            owner = f"the storage of {meant.names[0]}" if meant.names else "a live storage"
        return draft(
            self.id,
            "unknown",
            "possible",
            views,
            f"{subject_words(views)} used {hex_addr(place.addr)}, which but for bit {bit} is {hex_addr(meant.addr)}, "
            f"in {owner}.",
            [f"only bit {bit} of the upper bits is set"],
            f"If this happens on {view.process.snapshot.host} only, check that host's memory.",
            ["proof: garbage can look like this, too"],
        )
