"""One rank reads its statistics from a slow disk, while the others wait in a barrier that tells who is missing."""

import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def statistics():
    if rank == 1:
        time.sleep(25)
    return torch.ones(4)


def prepare():
    means = statistics()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=6))
    dist.all_reduce(means)


dist.barrier()
prepare()
dist.destroy_process_group()
