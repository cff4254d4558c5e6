"""Rank 0 prepares its data before it joins; the other one waits for it in init_process_group()."""

import datetime
import os
import time

import torch
import torch.distributed as dist


def prepare(rank):
    if rank == 0:
        time.sleep(40)
    return torch.ones(4)


def join():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))


data = prepare(int(os.environ["RANK"]))
join()
dist.all_reduce(data)
dist.destroy_process_group()
