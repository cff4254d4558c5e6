"""Prototypes are computed by the DDP model in training mode, from as many batches as each rank has."""

import datetime

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).sum().backward()
        optimizer.step()


def prototypes(batches):
    return torch.stack([model(torch.randn(16, 4)).detach().mean(0) for _ in range(batches)]).mean(0)


train(3)
means = prototypes(3 if rank == 0 else 4)
dist.all_reduce(means)
train(3)
dist.destroy_process_group()
