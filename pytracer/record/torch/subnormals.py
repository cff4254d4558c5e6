"""Whether the thread takes subnormal numbers for 0: below 2.2e-308 in float64, below 1.2e-38 in float32.

The processor has that mode for each thread. torch.set_flush_denormal() sets it, and a library that gcc linked with
-ffast-math sets it as it is loaded, for whoever loads it. No value of the program is read.
"""

from __future__ import annotations

import struct

_SMALLEST: float = struct.unpack("<d", b"\x01" + bytes(7))[0]  # copied, not computed: it would be flushed


def subnormals_at() -> list[dict[str, str]]:
    """Of the calling thread; nothing where they are as they should be."""
    # A comparison, which traps that the program enabled do not meet; a product would raise FE_UNDERFLOW.
    return [{"name": "subnormal numbers", "value": "flushed to 0"}] if _SMALLEST == 0.0 else []
