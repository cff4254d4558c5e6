"""DistributedSampler and the process group: created before it, after it, or without it. samplers.py SCENARIO"""

import os
import sys
import time

import torch
import torch.distributed as dist
from job import classifier, join
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DATA = TensorDataset(torch.arange(64.0).repeat(16, 1).T)


def train(loader):
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


def meet():
    """All ranks reach this point before torchrun ends any of them; its own store counts them."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store.add("here", 1)
    while store.add("here", 0) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)


def before():
    """Every rank raises: the sampler queries the process group for the number of ranks."""
    meet()
    loader = DataLoader(DATA, batch_size=8, sampler=DistributedSampler(DATA))
    join()
    train(loader)


def forgotten():
    """A check for the process group runs too early, so that every rank trains on the same data. Nothing dies."""
    sampler = DistributedSampler(DATA) if dist.is_initialized() else None
    loader = DataLoader(DATA, batch_size=8, sampler=sampler)
    join()
    train(loader)


def after():
    """The correct order."""
    join()
    train(DataLoader(DATA, batch_size=8, sampler=DistributedSampler(DATA)))


if __name__ == "__main__":
    {"before": before, "forgotten": forgotten, "after": after}[sys.argv[1]]()
