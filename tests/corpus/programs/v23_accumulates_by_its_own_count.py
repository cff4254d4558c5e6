"""DDP with accumulation of gradients: a step is due when enough tokens have been seen."""

import contextlib
import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank = dist.get_rank()


def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(40):
        length = int(torch.randint(20, 60, (), generator=generator))
        yield torch.rand(4, length, 8, generator=generator)


class Accumulator:
    def __init__(self, model, tokens):
        self.model, self.tokens, self.seen = model, tokens, 0

    def due(self, batch):
        self.seen += batch.shape[0] * batch.shape[1]
        if self.seen < self.tokens:
            return False
        self.seen = 0
        return True


def train(epochs):
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accumulator = Accumulator(model, 600)
    for epoch in range(epochs):
        for batch in batches(epoch * 2 + rank):
            due = accumulator.due(batch)
            with contextlib.nullcontext() if due else model.no_sync():
                model(batch).square().mean().backward()
            if due:
                optimizer.step()
                optimizer.zero_grad()
        loss = torch.tensor([float(epoch)])
        dist.all_reduce(loss)
        print(rank, "epoch", epoch)


train(2)
dist.barrier()
dist.destroy_process_group()
