"""The address of a tensor that lost its upper 32 bits: passed as a C int, such as by ctypes without argtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.variables import line_words, variable_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import Confidence, Evidence

HALF = 1 << 32
_LEAST = 1 << 20  # below, a number may be anything
NEAR_BYTES = 4096  # where a function begins to read


@dataclass(frozen=True)
class TruncatedAddress(Explanation):
    """The register `held_in` had `value`: the lower half of where `storage` begins, with or without its sign."""

    held_in: str
    value: int
    storage: Storage

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        name = variable_of(view, self.storage.base) or f"a tensor of {size_words(self.storage.nbytes)}"
        return f": the lower 32 bits of the address of {name}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        own = Evidence(
            "register-value",
            f"{self.held_in} held {hex_addr(self.value)}, the lower 32 bits of {hex_addr(self.storage.base)}, where a "
            f"storage of {size_words(self.storage.nbytes)} begins",
            register=self.held_in,
            addr=hex_addr(self.value),
            base=hex_addr(self.storage.base),
            nbytes=self.storage.nbytes,
        )
        return (own, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return (
            f"Pass the address in 64 bits at {line_words(view)}: ctypes converts a Python int to a C int unless the "
            "function's argtypes (and restype) are set; wrap it in ctypes.c_void_p(...). In C, an int or a missing "
            "prototype does the same."
        )


def truncated_address(view: ProcessView) -> TruncatedAddress | None:
    """None where no register near the fault address holds half of a live storage's address."""
    crash, place = view.crash, view.place
    if crash is None or place is None or not is_half(place.addr):
        return None
    near = {
        value % HALF: (name, value)
        for name, value in crash.registers.items()
        if name not in STATE_REGISTERS and is_half(value) and abs(signed(place.addr - value)) < NEAR_BYTES
    }
    if not near:
        return None
    for storage in view.process.snapshot.storages.by_size():
        if storage.state == "live" and storage.base >= HALF and (found := near.get(storage.base % HALF)) is not None:
            return TruncatedAddress(*found, storage)
    return None


def is_half(value: int) -> bool:
    """Whether a number fits into 32 bits, or is negative and does."""
    number = signed(value % (1 << 64))
    return abs(number) >= _LEAST and -(HALF >> 1) <= number < HALF
