"""Which addresses a processor has, and which bits of a pointer it ignores."""

from __future__ import annotations

from pytracer.analyze.platform.aarch64 import has_address, untagged
from pytracer.analyze.platform.instruction import is_canonical


def exists(arch: str, addr: int) -> bool:
    """Whether there is such an address; of processors that are not known here all exist."""
    if arch == "aarch64":
        return has_address(addr)
    return is_canonical(addr) or not arch.startswith("x86")


def why_none(arch: str) -> str:
    """Why an address that does not exist does not."""
    return "beyond the 52 bits of aarch64's page tables" if arch == "aarch64" else "not canonical on x86-64"


def without_tag(arch: str, addr: int) -> int:
    """The address as the processor uses it."""
    return untagged(addr) if arch == "aarch64" else addr
