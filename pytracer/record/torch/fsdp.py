"""Names for FSDP: the units, their parameters in order, and the addresses of this rank's shards.

The addresses of unsharded parameters, gradients and communication buffers are recorded without private attributes: by
the operators and ranges of FSDP2 (csrc/hooks/distributed/), and for FSDP1 by the collectives themselves. The names
come from private attributes: those of torch 2.11 to 2.14 are supported. Unexpected attributes are recorded as notes,
and names are then missing.
"""

from __future__ import annotations

from pytracer.record.core import Core


def install(box: Core) -> None:
    """Patches FSDP, which the program has imported."""
    from pytracer.record.torch import fsdp1, fsdp2
    from pytracer.record.torch.fsdp_common import best_effort

    best_effort(box, "fully_shard", fsdp2.install, box)
    best_effort(box, "FullyShardedDataParallel", fsdp1.install, box)


def uninstall() -> None:
    """Restores what is still ours."""
    from pytracer.record.torch import fsdp1, fsdp2

    for part in (fsdp2, fsdp1):
        part.patches.put_back()
