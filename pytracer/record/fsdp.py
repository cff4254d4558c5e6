"""Names for FSDP: which unit holds which parameters, in which order, and where this rank's shards lie.

Where unsharded parameters, gradients and the buffers of collectives lie is seen without private attributes: by the
operators and ranges of FSDP2 (csrc/hooks/fsdp.cpp, ranges.cpp), and for FSDP1 by the collectives themselves. Here are
the names, which only private attributes tell: those of torch 2.11 to 2.14 are known. What is not found as expected is
noted, and names are missing then.
"""

from __future__ import annotations

from pytracer.record.core import Core
from pytracer.record.torch_import import when_imported

_installed = False


def install(box: Core) -> None:
    """Patches FSDP when, and only when, the program imports it."""
    global _installed
    _installed = True
    when_imported("torch.distributed.fsdp", lambda: _patch(box))


def uninstall() -> None:
    """Puts back what is still ours."""
    global _installed
    _installed = False
    from pytracer.record import fsdp_flat, fully_shard

    for part in (fully_shard, fsdp_flat):
        part.patches.put_back()


def _patch(box: Core) -> None:
    if not _installed:
        return
    from pytracer.record import fsdp_flat, fully_shard
    from pytracer.record.fsdp_units import care

    care(box, "fully_shard", fully_shard.install, box)
    care(box, "FullyShardedDataParallel", fsdp_flat.install, box)
