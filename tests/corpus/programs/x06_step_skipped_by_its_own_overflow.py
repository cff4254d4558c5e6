"""Loss scaling with a sharded optimizer: a step is skipped where the gradients overflow."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()


class Scaler:
    def __init__(self, scale):
        self.scale = scale

    def overflow(self, parameters):
        return not all(torch.isfinite(p.grad).all() for p in parameters if p.grad is not None)

    def step(self, optimizer, parameters):
        if self.overflow(parameters):
            self.scale /= 2
            return False
        optimizer.step()
        return True


def reduce_gradients(model, scaler):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.div_(dist.get_world_size()))


def train(steps):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.01)
    scaler = Scaler(2.0**16)
    for step in range(steps):
        batch = torch.randn(4, 8) * (1e36 if step == 3 and rank == 1 else 1)
        reduce_gradients_first = step < 2
        (model(batch).sum() * scaler.scale).backward()
        if reduce_gradients_first:
            reduce_gradients(model, scaler)
        scaler.step(optimizer, list(model.parameters()))
        optimizer.zero_grad()
        loss = torch.ones(1)
        dist.all_reduce(loss)


train(8)
dist.destroy_process_group()
