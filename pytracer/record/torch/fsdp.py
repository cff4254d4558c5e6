"""Names for FSDP: which unit holds which parameters, in which order, and where this rank's shards lie.

Where unsharded parameters, gradients and the buffers of collectives lie is seen without private attributes: by the
operators and ranges of FSDP2 (csrc/hooks/distributed/), and for FSDP1 by the collectives themselves. Here are
the names, which only private attributes tell: those of torch 2.11 to 2.14 are known. What is not found as expected is
noted, and names are missing then.
"""

from __future__ import annotations

from pytracer.record.core import Core


def install(box: Core) -> None:
    """Patches FSDP, which the program has imported."""
    from pytracer.record.torch import fsdp1, fsdp2
    from pytracer.record.torch.fsdp_common import care

    care(box, "fully_shard", fsdp2.install, box)
    care(box, "FullyShardedDataParallel", fsdp1.install, box)


def uninstall() -> None:
    """Puts back what is still ours."""
    from pytracer.record.torch import fsdp1, fsdp2

    for part in (fsdp2, fsdp1):
        part.patches.put_back()
