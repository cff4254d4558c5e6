"""A DataLoader worker of one rank dies."""

import ctypes
import os
import signal
import time

import torch
import torch.distributed as dist
from job import agree, main
from torch.utils.data import DataLoader, Dataset, get_worker_info

VICTIM = 1
BAD_SAMPLE = 13


class Shard(Dataset):
    """Decodes samples; one of them is bad on one rank."""

    def __init__(self, rank, act):
        self.rank, self.act = rank, act

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if self.rank == VICTIM and index == BAD_SAMPLE and get_worker_info() is not None:
            self.act()
        return torch.full((4,), float(index))


def decode_badly():
    ctypes.memset(None, 0, 64)


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(60)


def _load(rank, act, **options):
    agree()
    for batch in DataLoader(Shard(rank, act), batch_size=4, num_workers=2, **options):
        dist.all_reduce(batch)
    dist.barrier()


def segfault(rank):
    _load(rank, decode_badly)


def killed(rank):
    _load(rank, kill_itself)


def slow(rank):
    _load(rank, hang, timeout=2)


def never_ready(rank):
    """Without a time-out of its own, the rank waits for its worker until the others give up."""
    _load(rank, hang)


def busy_elsewhere(rank):
    """A worker hangs ahead of its rank, which is late for a reason of its own."""
    agree()
    for batch in DataLoader(Shard(rank, hang), batch_size=4, num_workers=2):
        if rank == VICTIM:
            time.sleep(60)
        dist.all_reduce(batch)


def healthy(rank):
    _load(rank, int)


if __name__ == "__main__":
    main(segfault, killed, slow, never_ready, busy_elsewhere, healthy)
