"""A block with shared weights is checkpointed twice in a forward, below DDP."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.block = torch.nn.Linear(8, 8)

    def forward(self, rows):
        rows = self.first(rows)
        for _ in range(2):
            rows = checkpoint(self.block, rows, use_reentrant=True)
        return rows


def train(model, steps):
    for _ in range(steps):
        model(torch.randn(4, 8)).sum().backward()


dist.init_process_group("gloo")
train(DistributedDataParallel(Shared()), 3)
dist.destroy_process_group()
