"""Training workloads shared by several benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any


def steps_of(model: Any, inputs: Any) -> Callable[[int], None]:
    """A function of a count of training steps: forward, backward, AdamW."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()

    return steps


def small_ddp() -> Any:
    """A DDP module for batches of 4 x 8 x 32: 1.3 ms per step alone on its core, 55 autograd nodes, 240 storages."""
    from torch import nn

    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.parallel.DistributedDataParallel(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))


def join_alone() -> None:
    """A process group of this process only, over gloo."""
    import torch.distributed as dist

    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
