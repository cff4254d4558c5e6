"""DistributedSampler and the process group: made before it, after it, or forgotten. samplers.py SCENARIO"""

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
    """All ranks come this far before torchrun ends any of them; its own store counts them."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store.add("here", 1)
    while store.add("here", 0) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)


def before():
    """Every rank raises: the sampler asks the process group how many ranks there are."""
    meet()
    loader = DataLoader(DATA, batch_size=8, sampler=DistributedSampler(DATA))
    join()
    train(loader)


def forgotten():
    """A test for the process group comes too early, so that every rank trains on the same data. Nothing dies."""
    sampler = DistributedSampler(DATA) if dist.is_initialized() else None
    loader = DataLoader(DATA, batch_size=8, sampler=sampler)
    join()
    train(loader)


def after():
    """As it should be."""
    join()
    train(DataLoader(DATA, batch_size=8, sampler=DistributedSampler(DATA)))


if __name__ == "__main__":
    {"before": before, "forgotten": forgotten, "after": after}[sys.argv[1]]()
