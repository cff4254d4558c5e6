"""Trains a linear model data-parallel with NCCL."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train for a few steps."""
    dist.init_process_group("nccl")
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(128, 16).cuda()
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(5):
        inputs = torch.randn(32, 128, device="cuda")
        loss = wrapped(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
