"""The model has two heads, the loss uses one, and DDP is told that its graph is static."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = torch.nn.Linear(4, 3)
        self.depth = torch.nn.Linear(4, 1)

    def forward(self, rows):
        return self.classes(rows), self.depth(rows)


def train(model, steps):
    for _ in range(steps):
        classes, depth = model(torch.randn(8, 4))
        classes.sum().backward()


dist.init_process_group("gloo")
train(DistributedDataParallel(TwoHeads(), static_graph=True), 5)
dist.destroy_process_group()
