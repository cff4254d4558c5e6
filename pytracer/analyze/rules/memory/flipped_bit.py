"""flipped-bit: the wild address is one bit away from memory of the process.

What: an address that no process can have becomes one in a live storage or a writable mapping when a single one of its
upper bits is turned. It accompanies a verdict and is none itself; never more than possible.

Why it happens: defective memory, or code that marks pointers in their upper bits and forgot to take the mark off.

What to do: when it happens again on the same host and elsewhere not, check that host's memory.

How it can be wrong: garbage hits such an address by chance, the more easily the more memory is mapped. The lower
bits, 47 on x86-64 and 48 on aarch64, are not looked at.
"""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.circumstance import CircumstanceRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

# User addresses lie below 1 << 47 on x86-64 with four-level page tables, below 1 << 48 on aarch64.
_USER_BITS = {"x86-64": 47, "aarch64": 48}
_KINDS = {"x86-64": ("non-canonical",), "aarch64": ("non-canonical", "unmapped")}


class FlippedBit(CircumstanceRule[Place]):
    """Fires for a non-canonical address with exactly one upper bit set."""

    id = "flipped-bit"
    needs = ("crash",)
    absent = "no fault address was one bit away from memory of the process"

    def judge(self, view: ProcessView) -> Judgement[Place] | None:
        """See CircumstanceRule."""
        place, arch = view.place, view.process.snapshot.arch
        if place is None or place.kind not in _KINDS.get(arch, ()) or (place.addr >> _USER_BITS[arch]).bit_count() != 1:
            return None
        meant = view.space.describe(place.addr ^ 1 << _bit(place.addr))
        in_storage = meant.storage is not None and meant.kind == "in-storage"
        if not in_storage and (meant.mapping is None or "rw" not in meant.mapping.permissions):
            return None
        return Judgement("unknown", "possible", (view,), meant)

    def describe(self, job: JobView, judgement: Judgement[Place]) -> Description:
        """See CircumstanceRule."""
        view, meant = judgement.views[0], judgement.found
        addr = view.place.addr if view.place else 0
        return Description(
            f"{introduction(judgement.views)} used {hex_addr(addr)}, which but for bit {_bit(addr)} is "
            f"{hex_addr(meant.addr)}, in {_owner(meant)}.",
            [Evidence("address-bits", f"only bit {_bit(addr)} of the upper bits is set", addr=hex_addr(addr))],
            f"If this happens on {view.process.snapshot.host} only, check that host's memory.",
            ["proof: garbage can look like this, too"],
        )


def _bit(addr: int) -> int:
    return addr.bit_length() - 1


def _owner(meant: Place) -> str:
    if meant.storage is not None and meant.kind == "in-storage":
        return f"the storage of {meant.names[0]}" if meant.names else "a live storage"
    return (meant.mapping.path if meant.mapping else "") or "anonymous memory"
