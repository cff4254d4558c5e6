"""Names for FSDP: which unit holds which parameters, in which order, and where this rank's shards lie.

Where unsharded parameters, gradients and the buffers of collectives lie is seen without private attributes: by the
operators and ranges of FSDP2 (csrc/hooks/fsdp.cpp, ranges.cpp), and for FSDP1 by the collectives themselves. Here are
the names, which only private attributes tell: those of torch 2.11 to 2.14 are known. What is not found as expected is
noted, and names are missing then.
"""

from __future__ import annotations

from pytracer.record.core import Core


def install(box: Core) -> None:
    """Patches FSDP, which the program has imported."""
    from pytracer.record import fsdp_flat, fully_shard
    from pytracer.record.fsdp_units import care

    care(box, "fully_shard", fully_shard.install, box)
    care(box, "FullyShardedDataParallel", fsdp_flat.install, box)


def uninstall() -> None:
    """Puts back what is still ours."""
    from pytracer.record import fsdp_flat, fully_shard

    for part in (fully_shard, fsdp_flat):
        part.patches.put_back()
