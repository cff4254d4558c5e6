"""One rank of a DDP job keeps the address of a gradient; DDP releases the bucket, and the next backward reads there.

examples/ddp_use_after_free.py, small enough for an emulator. torch for aarch64 allocates by mimalloc, which unmaps what
is above 16 MiB when it is released, with MIMALLOC_ARENA_RESERVE=0: the first bucket is, of 18 MB.
"""

import ctypes
import os

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.element.argtypes = [ctypes.c_void_p, ctypes.c_long]
library.element.restype = ctypes.c_float
kept = []


class LateRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx, activations):
        return activations.view_as(activations)

    @staticmethod
    def backward(ctx, gradient):
        for address in kept:
            library.element(address, 16)
        return gradient


class Network(torch.nn.Module):
    """Registered in another order than used: DDP's second set of buckets, by use, differs from its first."""

    def __init__(self):
        super().__init__()
        self.last, self.middle = torch.nn.Linear(2048, 1024), torch.nn.Linear(1024, 2048)
        self.first = torch.nn.Linear(512, 1024)

    def forward(self, batch):
        return self.last(self.middle(self.first(batch)))


def main():
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = DistributedDataParallel(Network(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        LateRead.apply(model(torch.ones(4, 512))).sum().backward()
        if not kept:
            kept.append(model.module.last.weight.grad.data_ptr())
        optimizer.step()
        optimizer.zero_grad()


main()
